import dataclasses
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import puffer_vector
from puffer_policies import LSTMWrapper, RecurrentPolicy
from puffer_spaces import EnvSpec
from puffer_train.config import PolicyConfig
from puffer_train.environments import make_vector
from puffer_train.errors import UsageError
from puffer_train.policies import make_policy


@pytest.fixture(autouse=True)
def _users_policies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.delitem(sys.modules, "users_policies", raising=False)
    Path("users_policies.py").write_text(
        textwrap.dedent("""
            import torch

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
        """)
    )


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
    with puffer_vector.make(walk_spec, num_envs=2) as vec:
        policy = make_policy(walk_spec, vec, {"name": "users_policies:Net", "hidden_size": 4, **settings}, 1)

    assert isinstance(policy, kind)
    assert policy.hidden_size == 4


def test_an_option_that_a_policy_does_not_take_is_named(walk_spec):
    with (
        puffer_vector.make(walk_spec, num_envs=2) as vec,
        pytest.raises(
            UsageError, match=r"--policy\.num-layers must be an argument of users_policies:Net, .*num_layers=3"
        ),
    ):
        make_policy(walk_spec, vec, {"name": "users_policies:Net", "num_layers": 3}, 1)


def test_an_option_that_has_its_default_asks_a_policy_for_nothing(walk_spec):
    defaults = {**dataclasses.asdict(PolicyConfig()), "name": "users_policies:Net", "hidden_size": 4}
    with puffer_vector.make(walk_spec, num_envs=2) as vec:
        assert make_policy(walk_spec, vec, defaults, 1).hidden_size == 4


def test_an_option_as_the_environment_ships_it_asks_a_policy_of_ones_own_for_nothing(walk_spec, monkeypatch):
    Path("users_policies.py").write_text(
        textwrap.dedent("""
            import torch

            class Small(torch.nn.Linear):
                def __init__(self, env):
                    super().__init__(2, 3)

                def forward(self, observations):
                    return super().forward(observations).split([2, 1], 1)
        """)
    )
    monkeypatch.setattr("puffer_train.policies.load_config", lambda spec: {"policy": {"hidden_size": 64}})
    with make_vector(walk_spec, {"num_envs": 2}, {}, 1) as vec:
        assert make_policy(walk_spec, vec, {"name": "users_policies:Small", "hidden_size": 64}, 1).out_features == 3
        with pytest.raises(UsageError, match=r"--policy\.hidden-size must be an argument of users_policies:Small"):
            make_policy(walk_spec, vec, {"name": "users_policies:Small", "hidden_size": 32}, 1)


def test_a_policy_takes_the_vector_env(walk_spec):
    Path("users_policies.py").write_text("class Lonely:\n    def __init__(self):\n        pass\n")
    with (
        make_vector(walk_spec, {"num_envs": 2}, {}, 1) as vec,
        pytest.raises(UsageError, match="users_policies:Lonely must take the vector env first"),
    ):
        make_policy(walk_spec, vec, {"name": "users_policies:Lonely"}, 1)


def test_a_policy_with_a_memory_is_given_no_other(walk_spec):
    Path("users_policies.py").write_text(
        textwrap.dedent("""
            import torch

            class Remembers(torch.nn.Module):
                def __init__(self, env):
                    super().__init__()
                    self.cell = torch.nn.GRUCell(2, 4)
                    self.heads = torch.nn.Linear(4, 3)

                def forward(self, observations, state):
                    state = self.cell(observations, state)
                    logits, value = self.heads(state).split([2, 1], 1)
                    return logits, value, state
        """)
    )
    with (
        make_vector(walk_spec, {"num_envs": 2}, {}, 1) as vec,
        pytest.raises(UsageError, match=r"--policy\.rnn needs a policy without memory"),
    ):
        make_policy(walk_spec, vec, {"name": "users_policies:Remembers", "rnn": "lstm"}, 1)


def test_a_policy_may_take_any_option(walk_spec, monkeypatch):
    def free(env, **options):
        return options

    monkeypatch.setattr("puffer_train.policies.load_object", lambda _name: free)
    with puffer_vector.make(walk_spec, num_envs=2) as vec:
        taken = make_policy(walk_spec, vec, {"name": "users_policies:free", "num_layers": 3, "residual": False}, 1)

    assert taken == {"num_layers": 3}


def test_the_envs_own_policy_is_taken_where_none_is_named(walk_spec):
    spec = EnvSpec("test-own", walk_spec.entry_point, policy="users_policies:Net", batched=True)
    with puffer_vector.make(spec, num_envs=2) as vec:
        assert type(make_policy(spec, vec, {}, 1)).__name__ == "Net"
