import sys
import textwrap
from pathlib import Path

import pytest
import torch

import puffer_vector
from puffer_policies import LSTMWrapper, RecurrentPolicy
from puffer_spaces import EnvSpec, UnknownEnvError, register
from puffer_train.building import find_spec, make_policy, make_vector, usage_errors
from puffer_train.options import UsageError


@pytest.fixture(autouse=True)
def _users_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.delitem(sys.modules, "users_module", raising=False)
    Path("users_module.py").write_text(
        textwrap.dedent("""
            import torch
            from puffer_spaces import register

            def grid(num_envs, width: int = 3, speed=0.5, odd=0, *, wet: bool = False, buf=None, **rest): ...

            class Net(torch.nn.Module):
                def __init__(self, env, hidden_size=16):
                    super().__init__()
                    self.hidden_size = hidden_size
                    self.encoder = torch.nn.Linear(env.single_observation_space.shape[0], hidden_size)
                    self.actor = torch.nn.Linear(hidden_size, env.single_action_space.n)
                    self.critic = torch.nn.Linear(hidden_size, 1)

                def encode_observations(self, observations, state=None):
                    return torch.relu(self.encoder(observations))

                def decode_actions(self, hidden):
                    return self.actor(hidden), self.critic(hidden)

                def forward(self, observations, state=None):
                    return self.decode_actions(self.encode_observations(observations))

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


def test_an_import_error_inside_a_users_module_is_not_hidden():
    Path("broken_module.py").write_text("import no_such_module\n")

    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        find_spec("broken_module:Env")


def test_weights_depend_on_the_seed_only(walk_spec):
    with make_vector(walk_spec, {"num_envs": 2}, {}, 1) as vec:
        before = torch.get_rng_state()
        one, other, third = (make_policy(walk_spec, vec, {"hidden_size": 8}, seed) for seed in (1, 1, 2))

    assert torch.equal(torch.get_rng_state(), before)
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
    assert any(not torch.equal(value, third.state_dict()[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize(
    ("settings", "kind"), [({}, torch.nn.Module), ({"rnn": "lstm"}, LSTMWrapper), ({"rnn": "gru"}, RecurrentPolicy)]
)
def test_a_policy_of_the_users_is_found_and_wrapped(walk_spec, settings, kind):
    find_spec("users_module:grid")
    with puffer_vector.make(walk_spec, num_envs=2) as vec:
        policy = make_policy(walk_spec, vec, {"name": "users_module:Net", "hidden_size": 4, **settings}, 1)

    assert isinstance(policy, kind)
    assert policy.hidden_size == 4


def test_an_option_that_a_policy_does_not_take_is_named(walk_spec):
    find_spec("users_module:grid")
    with (
        puffer_vector.make(walk_spec, num_envs=2) as vec,
        pytest.raises(
            UsageError, match=r"--policy\.num-layers must be an option of users_module:Net, which takes none"
        ),
    ):
        make_policy(walk_spec, vec, {"name": "users_module:Net", "num_layers": 3}, 1)


def test_the_envs_own_policy_is_taken_where_none_is_named(walk_spec):
    find_spec("users_module:grid")
    spec = EnvSpec("test-own", walk_spec.entry_point, policy="users_module:Net", batched=True)
    with puffer_vector.make(spec, num_envs=2) as vec:
        assert type(make_policy(spec, vec, {}, 1)).__name__ == "Net"


def test_only_errors_of_our_own_checks_become_sentences(walk_spec):
    with pytest.raises(UsageError, match="num_envs must be at least 1"), usage_errors():
        puffer_vector.make(walk_spec, num_envs=0)
    with pytest.raises(ValueError, match="invalid literal") as raised, usage_errors():
        int("x")
    assert not isinstance(raised.value, UsageError)
