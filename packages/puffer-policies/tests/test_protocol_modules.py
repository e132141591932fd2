"""What `adapt_policy` leaves as it is: weights, modes and random state of a module, its own methods, our policies."""

import copy

import torch
from gymnasium import spaces
from torch import nn

from puffer_policies import adapt_policy, default_policy

BOX, DISCRETE = spaces.Box(-1, 1, (5,)), spaces.Discrete(3)


def test_trial_calls_leave_no_trace(heads):
    class Watched(heads):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(5)
            self.dropout = nn.Dropout(0.5)

        def forward(self, observations):
            torch.rand(1)
            return super().forward(self.dropout(self.norm(observations)))

    module = Watched()
    module.dropout.eval()
    before = copy.deepcopy(module.state_dict())
    random_state = torch.get_rng_state()

    adapt_policy(module, BOX, DISCRETE)

    assert torch.equal(random_state, torch.get_rng_state())
    assert module.training
    assert module.norm.training
    assert not module.dropout.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_forward_eval_is_for_rollouts_and_forward_for_training(heads):
    class Both(heads):
        def forward_eval(self, observations, state=None):
            logits, value = super().forward(observations)
            return logits + 1.0, value

        def forward(self, observations, state=None):
            return super().forward(observations)

    policy = adapt_policy(Both(), BOX, DISCRETE)
    x = torch.randn(2, 3, 5)

    torch.testing.assert_close(
        policy.forward_eval(x.flatten(0, 1))[0], policy.forward_sequence(x)[0] + 1.0, atol=1e-6, rtol=1e-6
    )


def test_compiled_module_is_adapted(heads):
    module = heads()
    compiled = torch.compile(module, backend="eager")

    policy = adapt_policy(compiled, BOX, DISCRETE)

    x = torch.randn(4, 5)
    torch.testing.assert_close(policy.forward_eval(x)[0], module(x)[0])


def test_our_policies_are_returned_as_they_are(make_env):
    env = make_env(BOX, DISCRETE)
    for recurrent in (None, "lstm"):
        policy = default_policy(env, recurrent=recurrent)
        assert adapt_policy(policy, BOX, DISCRETE) is policy
