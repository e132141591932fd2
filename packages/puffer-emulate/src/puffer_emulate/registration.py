"""The ids `gym-<id>`: every environment of Gymnasium's registry."""

from __future__ import annotations

import importlib
import importlib.resources
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, overload

import gymnasium

from puffer_spaces import EnvSpec, Parameter

_TYPES: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
# Arguments of `make_gymnasium` and of every env, which are no parameters of the task.
_NO_PARAMETERS = frozenset({"self", "render_mode", "env_id", "num_envs", "buf", "seed"})


def env_specs() -> list[EnvSpec]:
    """Return an EnvSpec for each id of Gymnasium's registry that has a single environment.

    Ids that a package registers on import are there once it was imported.
    """
    configs = importlib.resources.files("puffer_emulate").joinpath("configs")
    specs = []
    for env_id, registered in list(gymnasium.registry.items()):
        if registered.entry_point is None:
            continue
        config = f"gym-{env_id.replace('/', '-')}.toml"
        specs.append(
            EnvSpec(
                f"gym-{env_id}",
                "puffer_emulate.gymnasium:make_gymnasium",
                kwargs={"env_id": env_id},
                parameters=SignatureParameters(env_id),  # type: ignore[arg-type]
                batched=True,
                config=f"puffer_emulate:configs/{config}" if configs.joinpath(config).is_file() else None,
                version=str(registered.version if registered.version is not None else 1),
            )
        )
    return specs


class SignatureParameters(Sequence[Parameter]):
    """The parameters of a registered env, read from its constructor's signature when they are first asked for.

    The signature is only there once the env's module is imported, and listing ids must not import every simulator. An
    env whose module cannot be imported has no parameters here; making it says what is missing.

    Args:
        env_id: Gymnasium's id.
    """

    def __init__(self, env_id: str) -> None:
        self._env_id = env_id
        self._parameters: tuple[Parameter, ...] | None = None

    def _resolved(self) -> tuple[Parameter, ...]:
        if self._parameters is None:
            self._parameters = _read_parameters(self._env_id)
        return self._parameters

    @overload
    def __getitem__(self, index: int) -> Parameter: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Parameter, ...]: ...
    def __getitem__(self, index: int | slice) -> Parameter | tuple[Parameter, ...]:
        return self._resolved()[index]

    def __len__(self) -> int:
        return len(self._resolved())

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._resolved())

    def __repr__(self) -> str:
        return repr(self._resolved())


def _read_parameters(env_id: str) -> tuple[Parameter, ...]:
    registered = gymnasium.registry[env_id]
    try:
        entry_point = registered.entry_point
        if isinstance(entry_point, str):
            module, _, attribute = entry_point.partition(":")
            entry_point = getattr(importlib.import_module(module), attribute)
        arguments = inspect.signature(entry_point).parameters.values()  # type: ignore[arg-type]
    except Exception:
        # A suite without its simulator raises what it likes on import; making its env raises it where it is read.
        return ()
    limit = Parameter(
        "max_episode_steps", int, registered.max_episode_steps, low=-1, doc="Steps until truncation; -1 for no limit."
    )
    parameters = [limit]
    for argument in arguments:
        is_known = argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
        if is_known and argument.name not in _NO_PARAMETERS and argument.name != limit.name:
            default = registered.kwargs.get(argument.name, argument.default)
            if default is argument.empty:
                default = None
            parameters.append(Parameter(argument.name, _type_of(argument.annotation, default), default))
    return tuple(parameters)


def _type_of(annotation: Any, default: Any) -> type:
    """Return bool, int, float or str where that is clear, else object, which takes anything.

    A default of 0 without an annotation is not clear: the argument may well be a float.
    """
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    names = {part.strip() for part in name.replace("Optional[", "").replace("]", "").split("|")} - {"None"}
    if len(names) == 1 and (found := _TYPES.get(names.pop())) is not None:
        return found
    return type(default) if type(default) in (bool, float, str) else object
