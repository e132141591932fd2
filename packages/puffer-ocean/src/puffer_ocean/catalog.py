"""The environments of this package by id, by class name, and as documentation."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from puffer_ocean import parameters
from puffer_ocean.env import OceanEnv
from puffer_ocean.native import EnvTable, built_tables
from puffer_spaces import EnvSpec, Parameter


def env_specs() -> list[EnvSpec]:
    """Return the specs of all environments of this package; the entry point of the group `puffer.envs`."""
    specs = [_spec(table) for table in built_tables().values()]
    twin = next(spec for spec in specs if spec.id == "ocean-squared")
    specs.append(
        EnvSpec(
            id="ocean-pysquared",
            entry_point="puffer_ocean.envs.pysquared:PySquared",
            parameters=tuple(parameter for parameter in twin.parameters if parameter.name != "onehot"),
            batched=True,
            config="puffer_ocean:envs/pysquared/pysquared.toml",
            version=twin.version,
            aliases=("puffer_pysquared",),
        )
    )
    return specs


def _spec(table: EnvTable) -> EnvSpec:
    folder = f"envs/{table.name}"
    toml = f"{folder}/{table.name}.toml"
    policy = f"puffer_ocean.envs.{table.name}.policy:{_class_name(table.name)}Policy"
    return EnvSpec(
        id=f"ocean-{table.name}",
        entry_point="puffer_ocean:OceanEnv",
        kwargs={"name": table.name},
        parameters=parameters.declared(table),
        batched=True,
        config=f"puffer_ocean:{toml}" if _is_shipped(toml) else None,
        policy=policy if _is_shipped(f"{folder}/policy.py") else None,
        version=str(table.version),
        aliases=(f"puffer_{table.name}",),
    )


def _is_shipped(path: str) -> bool:
    return resources.files("puffer_ocean").joinpath(path).is_file()


def class_names() -> dict[str, str]:
    """Return the name of each environment's class, such as Squared, and the environment's own name."""
    return {_class_name(name): name for name in built_tables()}


def _class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


@cache
def env_class(class_name: str) -> type[OceanEnv]:
    """Return the class of one environment: an OceanEnv that needs no name, with the environment's documentation."""
    table = built_tables()[class_names()[class_name]]

    def __init__(  # noqa: N807 - the method of the class made below
        self: OceanEnv,
        num_envs: int = 1,
        buf: Any = None,
        seed: int | None = None,
        render_mode: str | None = None,
        **env_parameters: Any,
    ) -> None:
        OceanEnv.__init__(self, table.name, num_envs, buf, seed, render_mode, **env_parameters)

    members = {"__init__": __init__, "__doc__": describe(table), "__module__": "puffer_ocean"}
    return type(class_name, (OceanEnv,), members)


def describe(table: EnvTable) -> str:
    """Return what the table says of an environment: its sentence, its parameters and its metrics."""
    lines = [f"{table.doc}.", "", "Args:"]
    lines += [
        "    num_envs: Worlds in this object.",
        "    buf: Buffers, a dict of arrays, or None to allocate them.",
        "    seed: Seed of the first reset that is given none.",
        '    render_mode: "rgb_array", "ansi", "human" or None.',
    ]
    lines += [f"    {_described(parameter)}" for parameter in parameters.declared(table)]
    metrics = ", ".join(("score", "perf", *table.extras))
    return "\n".join([*lines, "", f"Metrics of an episode: {metrics}."])


def _described(parameter: Parameter) -> str:
    limits = "" if parameter.type is bool else f" in [{parameter.low}, {parameter.high}]"
    return f"{parameter.name}: {parameter.doc} ({parameter.type.__name__}{limits}, default {parameter.default})"
