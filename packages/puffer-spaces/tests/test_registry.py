import math
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

import puffer_spaces.registry as registry
from puffer_spaces import (
    EnvSpec,
    Parameter,
    PufferEnv,
    UnknownEnvError,
    env_ids,
    load_config,
    load_object,
    make_env,
    register,
    spec,
)


class Configurable(PufferEnv):
    def __init__(self, num_envs=1, size=4, speed=1.0, name="a", hard=False, buf=None, seed=None, **others):
        self.single_observation_space = spaces.Box(0, 1, (1,))
        self.single_action_space = spaces.Discrete(2)
        self.num_agents = self.num_envs = num_envs
        self.given = {"size": size, "speed": speed, "name": name, "hard": hard, "seed": seed, **others}
        super().__init__(buf)


PARAMETERS = (
    Parameter("size", int, 4, 2, 9, "cells on a side"),
    Parameter("speed", float, 1.0, 0.0, None),
    Parameter("name", str, "a"),
    Parameter("hard", bool, False),
    Parameter("limit", int, None, 1),
)


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_discovered", lambda: ({}, ()))


def test_a_registered_env_is_made_by_its_id():
    added = register(id="my-env", entry_point=Configurable, kwargs={"size": 5})

    assert spec("my-env") is added
    assert env_ids() == ["my-env"]
    assert make_env("my-env").given["size"] == 5
    assert make_env("my-env", seed=3, size=6).given == {
        "size": 6,
        "speed": 1.0,
        "name": "a",
        "hard": False,
        "seed": 3,
    }
    assert make_env("my-env", num_envs=4).num_agents == 4


def test_aliases_lead_to_the_same_spec_and_are_not_listed():
    register(EnvSpec("ocean-breakout", Configurable, aliases=("puffer_breakout",)))

    assert spec("puffer_breakout") is spec("ocean-breakout")
    assert env_ids() == ["ocean-breakout"]
    assert isinstance(make_env("puffer_breakout"), Configurable)


def test_a_later_registration_takes_the_place_of_an_earlier():
    register("my-env", Configurable, kwargs={"size": 5})
    register("my-env", Configurable, kwargs={"size": 6})

    assert make_env("my-env").given["size"] == 6


def test_entry_points_are_imported_when_the_env_is_made(monkeypatch):
    module = types.ModuleType("lazy_envs")
    register("my-env", "lazy_envs:suite.Configurable")
    monkeypatch.setitem(sys.modules, "lazy_envs", module)
    module.suite = SimpleNamespace(Configurable=Configurable)

    assert isinstance(make_env("my-env"), Configurable)
    assert load_object("lazy_envs:suite.Configurable") is Configurable
    assert load_object(Configurable) is Configurable
    with pytest.raises(ValueError, match="\"module:attribute\"; got 'lazy_envs'"):
        load_object("lazy_envs")


def test_unknown_ids_name_near_ones():
    for name in ("ocean-breakout", "ocean-pong", "gym-CartPole-v1"):
        register(name, Configurable)

    with pytest.raises(UnknownEnvError, match=r"got .ocean-brekout.\. Did you mean ocean-breakout") as caught:
        spec("ocean-brekout")
    assert caught.value.near[0] == "ocean-breakout"
    assert caught.value.env_id == "ocean-brekout"
    with pytest.raises(UnknownEnvError, match="Did you mean gym-CartPole-v1"):
        make_env("cartpole")
    with pytest.raises(ValueError, match=r"env_ids\(\) lists all of them"):
        spec("zzz")


def test_ids_of_a_package_that_is_not_installed_say_so():
    with pytest.raises(UnknownEnvError, match=r"pip install \./packages/puffer-ocean\."):
        spec("ocean-breakout")

    register("ocean-pong", Configurable)
    with pytest.raises(UnknownEnvError) as caught:
        spec("ocean-zzz")
    assert "pip" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("size", 5, 5),
        ("size", np.int64(5), 5),
        ("size", 5.0, 5),
        ("speed", 2, 2.0),
        ("speed", np.float32(0.5), 0.5),
        ("speed", math.inf, math.inf),
        ("hard", True, True),
        ("hard", np.True_, True),
        ("name", "b", "b"),
        ("limit", None, None),
        ("limit", 3, 3),
    ],
)
def test_parameters_are_brought_to_their_type(name, given, taken):
    (parameter,) = [parameter for parameter in PARAMETERS if parameter.name == name]
    value = parameter.check(given)

    assert (value, type(value)) == (taken, type(taken))


@pytest.mark.parametrize(
    ("name", "given", "error", "words"),
    [
        ("size", 1, ValueError, r"size must be in \[2, 9\]; got 1"),
        ("size", 10, ValueError, r"size must be in \[2, 9\]; got 10"),
        ("size", 2.5, TypeError, r"size must be int; got 2.5 \(float\)"),
        ("size", True, TypeError, "size must be int; got True"),
        ("size", "5", TypeError, "size must be int; got '5'"),
        ("size", None, TypeError, "size must be int; got None"),
        ("speed", -0.1, ValueError, r"speed must be in \[0.0, inf\]; got -0.1"),
        ("speed", math.nan, ValueError, "speed must be in"),
        ("speed", "fast", TypeError, "speed must be float"),
        ("hard", 1, TypeError, "hard must be bool; got 1"),
        ("name", 3, TypeError, "name must be str; got 3"),
        ("sise", 5, TypeError, "my-env must get parameters it has; got sise=5. Did you mean size"),
        ("zzz", 5, TypeError, "Its parameters are hard, limit, name, size, speed"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_made(name, given, error, words):
    made = []
    register("my-env", lambda **kwargs: made.append(kwargs), parameters=PARAMETERS)

    with pytest.raises(error, match=words):
        make_env("my-env", **{name: given})
    assert made == []


def test_arguments_that_the_creator_names_need_no_parameter():
    register("my-env", Configurable, parameters=PARAMETERS)

    assert make_env("my-env", num_envs=3, size=np.int64(7)).given["size"] == 7
    with pytest.raises(TypeError, match="got others_=1"):
        make_env("my-env", others_=1)


def test_the_config_beside_an_env_is_read(tmp_path, monkeypatch):
    package = tmp_path / "toml_envs"
    (package / "envs").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "envs" / "my.toml").write_text("[train]\nlearning_rate = 0.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    with_config = register("my-env", Configurable, config="toml_envs:envs/my.toml")

    assert load_config(with_config) == load_config("my-env") == {"train": {"learning_rate": 0.5}}
    assert load_config(EnvSpec("other", Configurable)) == {}


def test_what_cannot_be_registered_is_refused():
    for arguments in [("my-env",), ("", Configurable), (3, Configurable)]:
        with pytest.raises(TypeError, match="register takes an id and an entry_point"):
            register(*arguments)


def test_installed_packages_are_asked_through_entry_points(monkeypatch):
    monkeypatch.undo()

    def broken():
        raise ImportError("no compiler")

    def entry(name, load):
        return SimpleNamespace(name=name, load=load, value=f"{name}_package:env_specs")

    entries = [
        entry("second", lambda: lambda: iter([EnvSpec("b-env", Configurable), EnvSpec("a-env", Configurable)])),
        entry("first", lambda: lambda: [EnvSpec("a-env", Configurable, kwargs={"size": 9}, aliases=("old_a",))]),
        entry("third", broken),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entries if group == "puffer.envs" else [])
    registry._discovered.cache_clear()
    monkeypatch.setattr(registry, "_registered", {})
    try:
        assert env_ids() == ["a-env", "b-env"]
        assert make_env("old_a").given["size"] == 9
        with pytest.raises(
            UnknownEnvError, match="environments of third_package:env_specs could not be read: ImportError"
        ):
            spec("c-env")
        register("a-env", Configurable, kwargs={"size": 3})
        assert make_env("a-env").given["size"] == 3
        assert env_ids() == ["a-env", "b-env"]
    finally:
        registry._discovered.cache_clear()


def test_an_id_or_alias_belongs_to_one_env():
    register(EnvSpec("ocean-one", Configurable, aliases=("one",)))

    with pytest.raises(ValueError, match="got 'one' for one, which ocean-one has"):
        register("one", Configurable)
    with pytest.raises(ValueError, match="got 'ocean-one' for ocean-two, which ocean-one has"):
        register(EnvSpec("ocean-two", Configurable, aliases=("ocean-one",)))
    assert env_ids() == ["ocean-one"]


def test_a_later_registration_takes_the_aliases_of_an_earlier_away():
    register(EnvSpec("my-env", Configurable, aliases=("mine",)))
    register("my-env", Configurable)

    with pytest.raises(UnknownEnvError):
        spec("mine")


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"entry_point": 5}, ValueError, 'entry_point of my-env must be "module:name"; got 5'),
        ({"entry_point": "module"}, ValueError, "must be \"module:name\"; got 'module'"),
        ({"entry_point": ":attribute"}, ValueError, 'must be "module:name"'),
        ({"config": "my.toml"}, ValueError, "config of my-env must be \"module:name\"; got 'my.toml'"),
        ({"policy": "module:"}, ValueError, 'policy of my-env must be "module:name"'),
        ({"kwargs": 5}, TypeError, "kwargs a dict; got .* and 5"),
        ({"aliases": "mine"}, TypeError, "must be a tuple .* got 'mine'"),
        ({"aliases": ("",)}, ValueError, "an environment id must be a name without spaces; got ''"),
        ({"id": "my env"}, ValueError, "an environment id must be a name without spaces; got 'my env'"),
    ],
)
def test_fields_of_a_spec_are_checked_when_it_is_made(fields, error, words):
    with pytest.raises(error, match=words):
        EnvSpec(**{"id": "my-env", "entry_point": Configurable, **fields})


def test_a_spec_and_an_entry_point_together_are_refused():
    with pytest.raises(TypeError, match="register takes an id and an entry_point, or an EnvSpec"):
        register(EnvSpec("my-env", Configurable), Configurable)


@pytest.mark.parametrize("env_id", [None, 5, ["my-env"]])
def test_ids_are_strings(env_id):
    for look_up in (spec, make_env, load_config):
        with pytest.raises(TypeError, match="an environment id must be a string; got"):
            look_up(env_id)


def test_an_entry_point_that_leads_nowhere_is_named():
    register("no-module", "no_such_module:Env")
    register("no-attribute", "math:Env")

    with pytest.raises(ModuleNotFoundError) as caught:
        make_env("no-module")
    assert caught.value.__notes__ == ["raised by the import of the entry point 'no_such_module:Env'"]
    with pytest.raises(AttributeError, match="got 'math:Env', but module 'math' has no attribute 'Env'"):
        make_env("no-attribute")


def test_what_an_entry_point_raises_is_kept_with_the_id():
    def fail():
        raise RuntimeError("boom")

    register("my-env", fail)

    with pytest.raises(RuntimeError, match="boom") as caught:
        make_env("my-env")
    assert "raised while my-env was made by" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("kind", "value"), [(int, np.array([3])), (float, np.array([3.0, 1.0])), (float, 10**400), (int, np.nan)]
)
def test_what_only_looks_like_a_number_is_refused_with_the_name(kind, value):
    with pytest.raises(TypeError, match=f"size must be {kind.__name__}; got"):
        Parameter("size", kind, 1).check(value)


def test_registering_from_several_threads_is_safe():
    def register_many(thread):
        for index in range(100):
            register(f"env-{thread}-{index}", Configurable)
            env_ids()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(register_many, range(4)))

    assert len(env_ids()) == 400
