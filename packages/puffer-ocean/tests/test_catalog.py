"""What stands beside each environment: its page, its training settings; and what its C file must not contain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import puffer_ocean
from puffer_ocean import env_specs
from puffer_ocean.native import built_tables
from puffer_spaces import load_config, load_object

ENVS = Path(puffer_ocean.__file__).parent / "envs"
SOURCES = Path(__file__).parents[1] / "src" / "puffer_ocean" / "envs"
SPECS = env_specs()
HEADINGS = [
    "Description",
    "Observations",
    "Actions",
    "Rewards",
    "Termination and truncation",
    "Parameters",
    "Metrics",
    "Randomness",
    "Source",
]
FORBIDDEN = re.compile(
    r"\b(s?rand(om)?(_r)?|time|clock\w*|getpid|getenv|exit|abort|v?f?printf|puts|fopen|[mc]alloc|realloc|free|"
    r"sinf?|cosf?|tanf?|expf?|powf?|logf?|atan2?f?)\s*\("
)

every_spec = pytest.mark.parametrize("spec", SPECS, ids=[spec.id for spec in SPECS])


def folder(spec):
    return ENVS / spec.id.removeprefix("ocean-")


@every_spec
def test_its_page_has_the_headings_and_names_every_parameter_and_metric(spec):
    page = (folder(spec) / "README.md").read_text()

    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == HEADINGS
    for parameter in spec.parameters:
        assert f"`{parameter.name}`" in page, parameter.name
    env = load_object(spec.entry_point)(**spec.kwargs)
    for metric in ("score", "perf", *env.episode_extras):
        assert f"`{metric}`" in page, metric


@every_spec
def test_its_page_states_the_defaults_of_the_table(spec):
    page = (folder(spec) / "README.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", page, re.MULTILINE))
    for parameter in spec.parameters:
        if parameter.name in rows:
            stated = rows[parameter.name]
            assert str(parameter.default).lower() == stated or float(stated) == parameter.default, parameter.name


@every_spec
def test_its_training_settings_can_be_read(spec):
    config = load_config(spec)

    assert set(config) == {"env", "vec", "policy", "train"}
    assert set(config["env"]) <= {parameter.name for parameter in spec.parameters}
    assert config["train"]["total_timesteps"] > 0


@pytest.mark.parametrize("name", sorted(built_tables()))
def test_its_code_uses_only_what_is_the_same_everywhere(name):
    code = re.sub(r"/\*.*?\*/", "", (SOURCES / name / f"{name}.c").read_text(), flags=re.DOTALL)
    code = re.sub(r'"(\\.|[^"\\])*"', '""', code)

    assert not FORBIDDEN.findall(code)
    assert not re.search(r"^(static )?(?!const|inline)\w+ \w+( = .*)?;$", code, re.MULTILINE), "mutable global state"


@pytest.mark.parametrize("name", sorted(built_tables()))
def test_its_table_is_complete(name):
    table = built_tables()[name]

    assert table.doc
    assert not table.doc.endswith(".")
    assert table.parameters[0][0] == "max_steps"
    for parameter, _kind, _offset, default, low, high, doc in table.parameters:
        assert low <= default <= high, parameter
        assert doc, parameter
