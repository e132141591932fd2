"""The guide for authors, core/README.md: its example is an environment, and what it leaves out is said elsewhere."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import puffer_ocean
from puffer_ocean import OceanEnv, load_env
from puffer_ocean.native import built_tables
from puffer_ocean.parameters import ENV_ARGUMENTS, check_names_and_defaults
from puffer_spaces import check_env, make_env

CORE = Path(puffer_ocean.__file__).parent / "core"
GUIDE = (CORE / "README.md").read_text()
EXAMPLE = re.search(r"```c\n(.*?)```", GUIDE, re.DOTALL)[1]


@pytest.fixture
def write_env(tmp_path, flock_path):
    """Write the guide's example with replacements into a file; the cache is that of flock_path."""

    def write(*replacements, name="walk"):
        code = EXAMPLE
        for old, new in replacements:
            assert code.count(old) >= 1, old
            code = code.replace(old, new)
        file = tmp_path / f"{name}.c"
        file.write_text(code)
        return file

    return write


def test_its_example_is_a_whole_environment(write_env):
    file = write_env()
    env = OceanEnv(file, 64, slip=0)
    env.reset(seed=1)
    for _ in range(7):
        env.step(np.full(64, 2, np.int32))
    records = env.episodes()

    assert check_env(OceanEnv(file, 2)) == []
    assert env.parameters == {"max_steps": 80, "length": 8, "slip": 0}
    assert set(records["world"]) == set(range(64))
    assert records["perf"].tolist() == records["score"].tolist() == [1] * len(records)
    assert records["slips"].tolist() == [0] * len(records)
    assert make_env(load_env(file), num_envs=2, length=12).num_agents == 2


def test_its_code_is_clean_by_the_flags_of_the_build(write_env, compiled):
    assert compiled(write_env(), "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror") is not None


def test_it_names_every_macro_that_an_author_may_define():
    headers = "".join(file.read_text() for file in CORE.glob("*.h"))
    tested = set(re.findall(r"(?:ifn?def|defined\()\s*(OC_[A-Z_]+)", headers))
    internal = {"OC_EXPORT_TABLE", *re.findall(r"#ifndef (OC_[A-Z]+_H)\b", headers), "OC_OCEAN_H"}

    assert {name for name in tested - internal if name not in GUIDE} == set()


def test_arguments_of_an_env_are_no_names_of_parameters():
    named = [name for name in inspect.signature(OceanEnv).parameters if name != "parameters"]

    assert list(ENV_ARGUMENTS) == named
    for table in built_tables().values():
        check_names_and_defaults(table)


MISTAKES = {
    "a call of no function": (("oc_chance(", "oc_chanse("), RuntimeError, "implicit.*oc_chanse"),
    "a missing function": (("static void env_metrics", "void env_metric"), RuntimeError, "env_metrics"),
    "a missing return": (("    return OC_TERMINATED;\n", ""), RuntimeError, "return"),
    "a pointer of another type": (("OC_OBS_T float", "OC_OBS_T uint8_t"), RuntimeError, "incompatible"),
    "a number of no state": (("OC_OBS_T float", "OC_OBS_T double"), RuntimeError, "OC_OBS_T must be uint8_t, int8_t"),
    "actions of bytes": (
        ("#define OC_OBS_T float", "#define OC_OBS_T float\n#define OC_ACT_T uint8_t"),
        RuntimeError,
        "OC_ACT_T must be int32_t, float or oc_act",
    ),
    "a check that is not announced": (
        (
            "static void env_spec",
            "static int env_check(const params *p, oc_message *m) { return 0; }\nstatic void env_spec",
        ),
        RuntimeError,
        r"env_check.*(?s:.)*#define OC_HAS_CHECK",
    ),
    "no last line": (('#include "ocean_impl.h"', ""), RuntimeError, r'(?s:.)*last line, #include "ocean_impl.h"'),
    "agents of a single-agent env": (
        (".obs_high", ".agents = 3, .obs_high"),
        ValueError,
        "got agents=3. Define OC_MULTI",
    ),
    "a negative number of agents": ((".obs_high", ".agents = -3, .obs_high"), ValueError, "got agents=-3"),
    "no kind of action": ((".obs_high", ".act_kind = 7, .obs_high"), ValueError, "got act_kind=7"),
    "continuous actions in integers": (
        (".act_sizes", ".act_kind = OC_BOX, .act_sizes"),
        ValueError,
        "OC_BOX must have OC_ACT_T float or oc_act; got int32_t",
    ),
    "no observation": ((".obs_shape = {1}", ".obs_shape = {0}"), ValueError, r"must give obs_shape.*got obs_shape=\{0"),
    "a huge observation": (("= {1}", "= {1 << 20, 1 << 20}"), ValueError, "obs_shape of less than 2\\^31 elements"),
    "no action": ((".act_sizes = {3}", ".act_sizes = {0}"), ValueError, "must give obs_shape and act_sizes.*0 sizes"),
    "bounds the wrong way round": (
        (".obs_high", ".obs_low = 2, .obs_high"),
        ValueError,
        "obs_low below obs_high.*2 and 1",
    ),
    "negative memory": ((".obs_high", ".extra_bytes = -64, .obs_high"), ValueError, "got 0, 0 and extra_bytes=-64"),
    "a default out of range": (
        ("length, 8, 2", "length, 1, 2"),
        ValueError,
        r"length in walk.c must be in \[2, 1000\]; got 1",
    ),
    "a parameter with the name of an argument": (
        ("length", "seed"),
        ValueError,
        "must have other names than.*got seed",
    ),
    "a parameter with the name of another": (("length", "max_steps"), RuntimeError, "duplicate member.*max_steps"),
    "a metric that is there already": (("K(slips)", "K(score)"), ValueError, "got 'score' twice"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_words(write_env, mistake):
    replacement, error, message = MISTAKES[mistake]
    with pytest.raises(error, match=message):
        OceanEnv(write_env(replacement))


def test_a_function_that_is_declared_but_nowhere_defined_is_named(write_env):
    file = write_env(
        ("static void env_spec", "int there(void);\nstatic void env_spec"), (".max_steps = 10", ".max_steps = there()")
    )
    with pytest.raises(RuntimeError, match=r"walk.c must make a library that can be loaded.*there"):
        OceanEnv(file)


def test_a_file_whose_name_is_no_identifier_is_refused(write_env):
    with pytest.raises(ValueError, match=r"must be named by a C identifier; got my-walk.c"):
        OceanEnv(write_env(name="my-walk"))


def test_a_change_is_noticed_in_the_same_process(write_env):
    old = OceanEnv(write_env())
    new = OceanEnv(write_env(("length, 8, 2", "length, 9, 2")))
    old.reset(0)

    assert (old.parameters["length"], new.parameters["length"]) == (8, 9)
    assert OceanEnv(write_env()).parameters["length"] == 8
