import sys
import textwrap
from pathlib import Path

import pytest

from puffer_spaces import EnvSpec, PufferEnv, UnknownEnvError, register, world_seed
from puffer_train.environments import find_spec, make_vector, why_unavailable
from puffer_train.errors import UsageError


@pytest.fixture(autouse=True)
def _users_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.delitem(sys.modules, "users_module", raising=False)
    Path("users_module.py").write_text(
        textwrap.dedent("""
            from puffer_spaces import register

            def grid(num_envs, width: int = 3, speed=0.5, odd=0, *, wet: bool = False, buf=None, **rest): ...

            register("users-grid", grid)
        """)
    )
    sys.modules.pop("users_module", None)


def test_a_module_in_the_working_directory_gives_a_creator():
    spec = find_spec("users_module:grid")

    assert (spec.id, spec.batched) == ("users_module:grid", True)
    assert [(p.name, p.type, p.default) for p in spec.parameters] == [
        ("width", int, 3),
        ("speed", float, 0.5),
        ("odd", object, 0),
        ("wet", bool, False),
    ]


def test_a_module_may_register_the_name():
    spec = find_spec("users_module:users-grid")

    assert spec.id == "users-grid"
    assert [parameter.name for parameter in spec.parameters] == ["width", "speed", "odd", "wet"]


def test_what_a_registration_declares_is_kept(walk_spec):
    assert find_spec("puffer_walk") is walk_spec


def test_a_creator_that_cannot_be_imported_keeps_its_spec():
    spec = register(EnvSpec("test-broken", "no_such_module:Env"))

    assert find_spec("test-broken") is spec


def test_unknown_ids_are_named():
    with pytest.raises(UnknownEnvError):
        find_spec("nothing")
    with pytest.raises(UsageError, match="there is none named nothing"):
        find_spec("nothing:Env")
    with pytest.raises(UsageError, match="users_module must register or define Nothing"):
        find_spec("users_module:Nothing")
    for incomplete in (":", ":Env", "users_module:"):
        with pytest.raises(UsageError, match="an id with a colon must be module:name"):
            find_spec(incomplete)
    with pytest.raises(UsageError, match="must be a class or function that makes an environment; it is <module"):
        find_spec("os:path")


@pytest.mark.parametrize("name", ["Network", "network"])
def test_a_network_in_place_of_an_environment_is_told_where_it_belongs(name):
    Path("networks.py").write_text("from torch import nn\nclass Network(nn.Linear): pass\nnetwork = nn.Linear(1, 1)\n")

    with pytest.raises(UsageError, match=f"networks:{name} is a network.*--policy.name networks:{name}"):
        find_spec(f"networks:{name}")


def test_what_has_no_default_must_be_given():
    Path("needing_module.py").write_text("def tall(max_height: int, *, buf=None): ...\n")
    spec = find_spec("needing_module:tall")

    with pytest.raises(UsageError, match=r"--env\.max-height must be given; needing_module:tall has no default for it"):
        make_vector(spec, {"num_envs": 1}, {}, 1)


def test_an_environments_own_word_on_its_parameters_is_a_mistakes_sentence(walk_spec, monkeypatch):
    check = PufferEnv.__init__

    def check_width(env, buf=None, seed=None):
        if getattr(env, "width", 0) == 4:
            world_seed(-1, 0)
        check(env, buf, seed)

    monkeypatch.setattr(PufferEnv, "__init__", check_width)
    with pytest.raises(UsageError, match="seed"):
        make_vector(walk_spec, {"num_envs": 2}, {"width": 4}, 1)


def test_an_import_error_inside_a_users_module_is_not_hidden():
    Path("broken_module.py").write_text("import no_such_module\n")

    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        find_spec("broken_module:Env")


def test_what_keeps_an_environment_from_being_made_is_told():
    def moved():
        raise ImportError("it has moved to another package.\nhttps://example.org")

    moved.__module__ = "gymnasium.envs"

    assert why_unavailable(EnvSpec("here", "puffer_spaces:PufferEnv")) is None
    assert why_unavailable(EnvSpec("gone", "no_such_module:Env")) == "No module named 'no_such_module'"
    assert why_unavailable(EnvSpec("moved", moved)) == "it has moved to another package"
