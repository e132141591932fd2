"""Policies in the forms that users write, behind the face of a trainer."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from puffer_policies import LSTMWrapper, adapt_policy, layer_init, unflatten_observations

BOX, DISCRETE = spaces.Box(-1, 1, (5,)), spaces.Discrete(3)
CONTINUOUS = spaces.Box(-1, 1, (2,))
MULTIDISCRETE = spaces.MultiDiscrete([3, 2])
IMAGE = spaces.Box(0, 255, (3, 84, 84), np.uint8)
NESTED = spaces.Dict(image=spaces.Box(0, 255, (3, 20, 20), np.uint8), vector=spaces.Box(-1, 1, (4,)))


class Plain(nn.Module):
    """(logits, value) from spaces."""

    def __init__(self, observation_space=BOX, action_space=DISCRETE):
        super().__init__()
        self.encoder = nn.Sequential(layer_init(nn.Linear(observation_space.shape[0], 16)), nn.ReLU())
        self.actor = layer_init(nn.Linear(16, int(action_space.n)), std=0.01)
        self.critic = layer_init(nn.Linear(16, 1), std=1.0)

    def forward(self, observations):
        features = self.encoder(observations)
        return self.actor(features), self.critic(features)


class Pixels(nn.Module):
    """A CNN that divides by 255 itself."""

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            layer_init(nn.Conv2d(3, 4, 8, stride=4)), nn.ReLU(), layer_init(nn.Conv2d(4, 4, 4, stride=2)), nn.Flatten()
        )
        self.actor = nn.Linear(4 * 9 * 9, 3)
        self.critic = nn.Linear(4 * 9 * 9, 1)

    def forward(self, observations):
        features = self.network(observations.float() / 255.0)
        return self.actor(features), self.critic(features)


class LayeredMemory(nn.Module):
    """(logits, value, state) with an nn.LSTM and states (1, batch, hidden)."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
        self.lstm = nn.LSTM(8, 6, num_layers=1)
        self.actor, self.critic = nn.Linear(6, 3), nn.Linear(6, 1)

    def forward(self, observations, state=None):
        features = self.encoder(observations).unsqueeze(0)
        if state is None:
            zeros = torch.zeros(1, observations.shape[0], 6)
            state = (zeros, zeros)
        out, state = self.lstm(features, state)
        return self.actor(out.squeeze(0)), self.critic(out.squeeze(0)), state


class OneTensorMemory(nn.Module):
    """(logits, value (rows,), state) where the state is one tensor (batch, hidden)."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(5, 6)
        self.actor, self.critic = nn.Linear(6, 3), nn.Linear(6, 1)

    def forward(self, observations, state=None):
        state = self.cell(observations, state)
        return self.actor(state), self.critic(state).squeeze(-1), state


class DictMemory(OneTensorMemory):
    """A state in a dict of its own."""

    def forward(self, observations, state=None):
        logits, value, after = super().forward(observations, None if state is None else state["memory"]["h"])
        return logits, value, {"memory": {"h": after}}


class Gaussian(nn.Module):
    """(mean, std, value) with a deviation (1, n)."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
        self.mean, self.critic = nn.Linear(8, 2), nn.Linear(8, 1)
        self.log_std = nn.Parameter(torch.tensor([[-1.0, 0.5]]))

    def forward(self, observations):
        features = self.body(observations)
        return self.mean(features), torch.exp(self.log_std), self.critic(features)


class GaussianMemory(Gaussian):
    """(mean, std, value, state)."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 8)

    def forward(self, observations, state=None):
        state = self.cell(self.body(observations), state)
        return self.mean(state), torch.exp(self.log_std), self.critic(state), state


class GaussianObject(Gaussian):
    """(distribution, value)."""

    def forward(self, observations):
        mean, std, value = super().forward(observations)
        return torch.distributions.Normal(mean, std.expand_as(mean)), value


class EncodeDecode(nn.Module):
    """PufferLib 3.0's halves, with a tuple of logits."""

    def __init__(self):
        super().__init__()
        self.hidden_size = 8
        self.encoder = nn.Linear(5, 8)
        self.heads = nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 2)])
        self.value = nn.Linear(8, 1)

    def encode_observations(self, observations, state=None):
        return torch.relu(self.encoder(observations))

    def decode_actions(self, hidden):
        return tuple(head(hidden) for head in self.heads), self.value(hidden)


class ThreePointZero(EncodeDecode):
    """PufferLib 3.0's whole policy: forward and forward_eval take a state that they do not use."""

    def forward_eval(self, observations, state=None):
        return self.decode_actions(self.encode_observations(observations, state=state))

    def forward(self, observations, state=None):
        return self.forward_eval(observations, state)


class DictStateMemory(nn.Module):
    """PufferLib 3.0's recurrent policy, written by hand: the state is a dict that the module updates."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(5, 6)
        self.actor, self.critic = nn.Linear(6, 3), nn.Linear(6, 1)

    def forward_eval(self, observations, state):
        h, c = state["lstm_h"], state["lstm_c"]
        h, c = self.cell(observations, None if h is None else (h, c))
        state["lstm_h"], state["lstm_c"] = h, c
        return self.actor(h), self.critic(h)

    def forward(self, observations, state):
        outputs = [self.forward_eval(observations[:, t], state) for t in range(observations.shape[1])]
        logits, values = (torch.stack([output[index] for output in outputs], 1) for index in (0, 1))
        return logits.flatten(0, 1), values.squeeze(-1)


class StrictDictState(DictStateMemory):
    """PufferLib's rollouts start with zeros (rows, hidden_size), so this one counts on them."""

    hidden_size = 6

    def forward_eval(self, observations, state):
        assert state["lstm_h"].shape == (len(observations), 6)
        return super().forward_eval(observations, state)


class UnusedDictState(EncodeDecode):
    """PufferLib's dict is written to, but nothing is read from it."""

    def forward_eval(self, observations, state):
        state["hidden"] = self.encode_observations(observations)
        return self.decode_actions(state["hidden"])


class CellInEncode(nn.Module):
    """All in `encode_observations(observations, state)`, with `decode_actions` for another loop."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(5, 6)
        self.actor, self.critic = nn.Linear(6, 3), nn.Linear(6, 1)

    def encode_observations(self, observations, state):
        if state is None:
            zeros = torch.zeros(len(observations), 6)
            state = (zeros, zeros)
        h, c = self.cell(observations, state)
        return self.actor(h), self.critic(h), (h, c)

    def decode_actions(self, observations, actions, state):
        raise AssertionError("not for a trainer that steps rows")


class Unflattening(nn.Module):
    """Rows of a Dict, taken apart by the policy."""

    def __init__(self, takes_dict=False):
        super().__init__()
        self.takes_dict = takes_dict
        self.image, self.vector = nn.Linear(3 * 20 * 20, 4), nn.Linear(4, 4)
        self.actor, self.critic = nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, observations):
        parts = observations if self.takes_dict else unflatten_observations(observations, NESTED)
        image, vector = parts["image"].float().flatten(1) / 255.0, parts["vector"]
        features = torch.cat([self.image(image), self.vector(vector)], 1)
        return self.actor(features), self.critic(features)


FORMS = {
    "logits_value": (Plain, BOX, DISCRETE, False),
    "cnn": (Pixels, IMAGE, DISCRETE, False),
    "layered_memory": (LayeredMemory, BOX, DISCRETE, True),
    "one_tensor_memory": (OneTensorMemory, BOX, DISCRETE, True),
    "dict_memory": (DictMemory, BOX, DISCRETE, True),
    "mean_std_value": (Gaussian, BOX, CONTINUOUS, False),
    "mean_std_value_state": (GaussianMemory, BOX, CONTINUOUS, True),
    "normal_object": (GaussianObject, BOX, CONTINUOUS, False),
    "encode_decode": (EncodeDecode, BOX, MULTIDISCRETE, False),
    "three_point_zero": (ThreePointZero, BOX, MULTIDISCRETE, False),
    "dict_state": (DictStateMemory, BOX, DISCRETE, True),
    "strict_dict_state": (StrictDictState, BOX, DISCRETE, True),
    "unused_dict_state": (UnusedDictState, BOX, MULTIDISCRETE, False),
    "cell_in_encode": (CellInEncode, BOX, DISCRETE, True),
    "unflattening": (Unflattening, NESTED, DISCRETE, False),
    "takes_dict": (lambda: Unflattening(takes_dict=True), NESTED, DISCRETE, False),
}


@pytest.mark.parametrize("form", FORMS)
def test_form_gets_the_face_of_a_trainer(form, make_env, sample_rows):
    build, observation_space, action_space, is_recurrent = FORMS[form]
    env = make_env(observation_space, action_space)
    module = build()
    policy = adapt_policy(
        module, env.single_observation_space, env.single_action_space, env.observation_layout, env.action_layout
    )
    rows = sample_rows(env.observation_layout, 12)
    observations = rows.reshape(3, 4, *rows.shape[1:])
    resets = torch.tensor([[True, False, True, False], [False] * 4, [False, True, False, False]])

    parameters, values = policy.forward_sequence(observations, policy.initial_state(3), resets)

    head = policy.action_head
    assert policy.is_recurrent is is_recurrent
    assert parameters.shape == (12, head.num_parameters)
    assert values.shape == (3, 4)
    state = policy.initial_state(3)
    assert all(part.shape[0] == 3 for part in state)
    for t in range(4):
        state = tuple(torch.where(resets[:, t, None].reshape(-1, *[1] * (part.ndim - 1)), 0.0, part) for part in state)
        output, value, state = policy.forward_eval(observations[:, t], state)
        torch.testing.assert_close(output, parameters.view(3, 4, -1)[:, t], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(value, values[:, t], atol=1e-5, rtol=1e-5)
        assert all(part.shape[0] == 3 for part in state)
    actions = head.sample(parameters, torch.rand(12, head.num_noise))
    (head.log_prob(parameters, actions).sum() + values.sum()).backward()
    used = [name for name, parameter in module.named_parameters() if parameter.grad is not None]
    assert used == [name for name, _ in module.named_parameters()]
    assert list(policy.state_dict()) == list(module.state_dict())
    assert [name for name, _ in policy.named_parameters()] == [name for name, _ in module.named_parameters()]
    assert {id(parameter) for parameter in policy.parameters()} == {id(parameter) for parameter in module.parameters()}


def test_log_prob_of_a_gaussian_is_that_of_its_mean_and_deviation():
    module = Gaussian()
    policy = adapt_policy(module, BOX, CONTINUOUS)
    x = torch.randn(6, 5)
    parameters, _, _ = policy.forward_eval(x)
    actions = policy.action_head.sample(parameters, torch.rand(6, 2))

    mean, std, _ = module(x)

    expected = torch.distributions.Normal(mean, std).log_prob(actions).sum(1)
    torch.testing.assert_close(policy.action_head.log_prob(parameters, actions), expected)


def test_actions_of_a_gaussian_stay_in_units_of_the_env():
    policy = adapt_policy(Gaussian(), BOX, spaces.Box(-100, 100, (2,)))
    parameters, _, _ = policy.forward_eval(torch.randn(6, 5))

    torch.testing.assert_close(policy.action_head.mode(parameters), parameters[:, :2])


def test_adapted_policy_saves_loads_and_copies(tmp_path):
    policy = adapt_policy(LayeredMemory(), BOX, DISCRETE)
    torch.save(policy.state_dict(), tmp_path / "policy.pt")
    other = adapt_policy(LayeredMemory(), BOX, DISCRETE)

    other.load_state_dict(torch.load(tmp_path / "policy.pt", weights_only=True))

    x = torch.randn(4, 5)
    assert torch.equal(other.forward_eval(x)[0], policy.forward_eval(x)[0])
    assert torch.equal(copy.deepcopy(policy).forward_eval(x)[0], policy.forward_eval(x)[0])


def test_wrapper_that_overrides_forward_keeps_its_own():
    class Doubled(LSTMWrapper):
        def forward_eval(self, observations, state):
            return super().forward_eval(2.0 * observations, state)

    class Env:
        single_observation_space = BOX
        single_action_space = MULTIDISCRETE

    wrapped = Doubled(Env(), EncodeDecode(), 8, 8)
    plain = LSTMWrapper(Env(), wrapped.policy, 8, 8)
    plain.load_state_dict(wrapped.state_dict())
    x = torch.randn(4, 5)

    policy = adapt_policy(wrapped, BOX, MULTIDISCRETE)

    assert policy is not wrapped
    assert policy.is_recurrent
    torch.testing.assert_close(policy.forward_eval(x)[0], plain.forward_eval(2.0 * x)[0])
