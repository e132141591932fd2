"""What `adapt_policy` says of modules that do not fit, and what it makes of odd ones."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from puffer_policies import adapt_policy, default_policy
from puffer_spaces import Layout

BOX, DISCRETE, CONTINUOUS = spaces.Box(-1, 1, (5,)), spaces.Discrete(3), spaces.Box(-1, 1, (2,))
NESTED = spaces.Dict(image=spaces.Box(0, 255, (2, 2, 3), np.uint8), vector=spaces.Box(-1, 1, (5,)))


class Function(nn.Module):
    """A function as a policy."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, observations):
        return self.function(observations)


class Counter(nn.Module):
    """A memory that counts steps from a number."""

    def __init__(self, first):
        super().__init__()
        self.first = first

    def forward(self, observations, state=None):
        state = torch.full((len(observations), 1), self.first) if state is None else state
        return observations[:, :3] + state, observations[:, 0], state + 1.0


@pytest.mark.parametrize(
    ("forward", "action_space", "message"),
    [
        (lambda x: (x[:, :2], x[:, :1]), DISCRETE, r"must return logits \(rows, 3\); got a tensor \(3, 2\)"),
        (
            lambda x: (x[:, :3], x[:, :2]),
            DISCRETE,
            r"one value per row, \(rows,\) or \(rows, 1\); got a tensor \(2, 2\)",
        ),
        (lambda x: (x[:, :2], torch.zeros(1, 2), x[:, 0]), CONTINUOUS, r"the deviation positive.*not its logarithm"),
        (lambda x: x[:, :3], DISCRETE, r"must return \(logits, value\).*got a tensor \(2, 3\)"),
        (lambda x: (x[:, :2], x[:, :1]), CONTINUOUS, r"must return mean and standard deviation, each \(rows, 2\)"),
        (lambda x: (x[:, :3], x[:, 0], torch.zeros(7)), DISCRETE, "each part of the policy's state must have an axis"),
        (lambda x: (x[:, :3], x[:, 0], "state"), DISCRETE, "a state must be a tensor, or a tuple, list or dict"),
        (lambda x: (x @ torch.zeros(9, 3), x[:, 0]), DISCRETE, r"must take observations torch.float32 \(2, 5\)"),
    ],
)
def test_what_does_not_fit_is_explained(forward, action_space, message):
    with pytest.raises(ValueError, match=message):
        adapt_policy(Function(forward), BOX, action_space)


def test_every_way_that_failed_is_named():
    module = Function(lambda parts: (parts["vektor"][:, :3], parts["vektor"][:, 0]))

    with pytest.raises(ValueError, match=r"on zeros as they are: IndexError.*; in their structure: KeyError: 'vektor'"):
        adapt_policy(module, NESTED, DISCRETE)


def test_failed_assertion_leads_to_the_next_way():
    def careful(observations):
        assert observations.dtype == torch.float32
        return observations[:, :3], observations[:, 0]

    policy = adapt_policy(Function(careful), spaces.Box(0, 255, (5,), np.uint8), DISCRETE)

    assert policy.forward_eval(torch.full((2, 5), 7, dtype=torch.uint8))[0].tolist() == [[7.0] * 3] * 2


def test_nested_space_needs_no_layout():
    policy = adapt_policy(Function(lambda parts: (parts["vector"][:, :3], parts["vector"][:, 0])), NESTED, DISCRETE)

    rows = torch.from_numpy(Layout(NESTED).flatten({"image": np.zeros((2, 2, 3), int), "vector": np.ones(5)}))[None]
    assert policy.forward_eval(rows)[0].tolist() == [[1.0] * 3]


@pytest.mark.parametrize("module", [Function, None, print])
def test_what_is_no_module_is_refused(module):
    with pytest.raises(TypeError, match=r"module must be an nn.Module; got .* Pass an instance"):
        adapt_policy(module, BOX, DISCRETE)


def test_module_without_a_method_is_refused():
    with pytest.raises(TypeError, match="policy must have forward"):
        adapt_policy(nn.Module(), BOX, DISCRETE)


def test_state_that_does_not_start_at_zero_is_refused():
    with pytest.raises(ValueError, match="state at the start of an episode must be zeros"):
        adapt_policy(Counter(1.0), BOX, DISCRETE)


@pytest.mark.parametrize(
    "resets", [torch.zeros(4, 3, dtype=torch.bool), torch.zeros(3, dtype=torch.bool), torch.zeros(3, 4)]
)
def test_resets_of_another_shape_or_dtype_are_refused(resets, make_env):
    ours = default_policy(make_env(BOX, DISCRETE), recurrent="lstm")
    for policy in (adapt_policy(Counter(0.0), BOX, DISCRETE), ours):
        with pytest.raises(ValueError, match=r"resets must be bool \(3, 4\)"):
            policy.forward_sequence(torch.zeros(3, 4, 5), policy.initial_state(3), resets)
