"""Each `--policy.*` option changes the network, or is refused where it could not."""

import dataclasses

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

import puffer_vector
from puffer_policies import (
    AttentionMemory,
    AutoregressiveHead,
    BetaHead,
    ImpalaCNN,
    IndependentPolicies,
    RecurrentPolicy,
    ResidualMLP,
    TanhNormalHead,
)
from puffer_spaces import EnvSpec, PufferEnv
from puffer_train.config import PolicyConfig
from puffer_train.environments import make_vector
from puffer_train.errors import UsageError, usage_errors
from puffer_train.policies import make_policy
from puffer_train.trainer import PuffeRL

SPACES = {
    "vector": (Box(-1, 1, (3,), np.float32), Discrete(2)),
    "image": (Box(0, 255, (44, 44, 1), np.uint8), Discrete(2)),
    "arm": (Box(-1, 1, (3,), np.float32), Box(-1, 1, (2,), np.float32)),
    "panel": (Box(-1, 1, (3,), np.float32), MultiDiscrete([3, 2])),
}


class Still(PufferEnv):
    """Two agents a world, in any spaces; nothing ever happens."""

    rebinds_buffers = True
    has_final_observations = True

    def __init__(self, kind="vector", num_agents=2, buf=None):
        self.single_observation_space, self.single_action_space = SPACES[kind]
        self.num_agents = num_agents
        super().__init__(buf)

    def reset(self, seed=None):
        return self.observations, []

    def step(self, actions):
        return self.observations, self.rewards, self.terminals, self.truncations, []


SPEC = EnvSpec("test-still", Still)


@pytest.mark.parametrize(
    ("kind", "options", "part"),
    [
        ("vector", {"rnn": "attention"}, AttentionMemory),
        ("vector", {"rnn": "gru", "hidden_size": 8}, RecurrentPolicy),
        ("vector", {"residual": True}, ResidualMLP),
        ("vector", {"layer_norm": True}, torch.nn.LayerNorm),
        ("vector", {"activation": "tanh"}, torch.nn.Tanh),
        ("image", {"cnn": "impala"}, ImpalaCNN),
        ("arm", {"action_distribution": "tanh_normal"}, TanhNormalHead),
        ("arm", {"action_distribution": "beta"}, BetaHead),
        ("panel", {"autoregressive": True}, AutoregressiveHead),
        ("vector", {"independent": True}, IndependentPolicies),
        ("vector", {"independent": True, "rnn": "lstm"}, IndependentPolicies),
    ],
)
def test_an_option_puts_its_part_into_a_network_that_trains(kind, options, part):
    with make_vector(SPEC, {"num_envs": 2}, {"kind": kind}, 1) as vec:
        policy = make_policy(SPEC, vec, options, seed=1)
        with PuffeRL(vec, policy, horizon=4, num_iterations=1, cpu_threads=1) as trainer:
            trainer.evaluate()
            trainer.train()

    assert any(isinstance(module, part) for module in policy.modules())


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"hidden_size": 16}, "vector"),
        ({"num_layers": 3}, "vector"),
        ({"state_dependent_std": True}, "arm"),
        ({"state_dependent_std": True, "action_distribution": "tanh_normal"}, "arm"),
    ],
)
def test_an_option_changes_the_number_of_weights(options, kind):
    with make_vector(SPEC, {"num_envs": 1}, {"kind": kind}, 1) as vec:
        sizes = [
            sum(parameter.numel() for parameter in make_policy(SPEC, vec, given, seed=1).parameters())
            for given in ({}, options)
        ]

    assert sizes[0] != sizes[1]


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("vector", {"cnn": "impala"}, "--policy.cnn needs an image among the observations; test-still has none."),
        ("image", {"num_layers": 3}, "--policy.num-layers needs a vector among the observations"),
        ("image", {"residual": True}, "--policy.residual needs a vector among the observations"),
        ("vector", {"residual": True, "num_layers": 1}, "--policy.residual needs --policy.num-layers of at least 2"),
        ("vector", {"action_distribution": "beta"}, "--policy.action-distribution needs continuous actions"),
        ("vector", {"state_dependent_std": True}, "--policy.state-dependent-std needs continuous actions"),
        ("arm", {"state_dependent_std": True, "action_distribution": "beta"}, "needs a normal or tanh_normal"),
        ("vector", {"autoregressive": True}, "an autoregressive head needs a MultiDiscrete"),
    ],
)
def test_an_option_that_could_do_nothing_is_refused(kind, options, sentence):
    vec = make_vector(SPEC, {"num_envs": 1}, {"kind": kind}, 1)
    with vec, pytest.raises(UsageError) as caught, usage_errors():
        make_policy(SPEC, vec, options, seed=1)

    assert sentence in str(caught.value)


def test_one_agent_has_no_independent_networks():
    vec = puffer_vector.make(Still, num_envs=2, env_kwargs={"num_agents": 1})
    with vec, pytest.raises(UsageError, match="independent needs several agents in a world; test-still has 1"):
        make_policy(SPEC, vec, {"independent": True}, seed=1)


def test_a_default_that_is_written_down_is_never_refused():
    defaults = dataclasses.asdict(PolicyConfig())
    for kind in SPACES:
        with make_vector(SPEC, {"num_envs": 1}, {"kind": kind}, 1) as vec:
            make_policy(SPEC, vec, defaults, seed=1)
