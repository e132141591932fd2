"""What `adapt_policy` hands to a module: observations in the dtype, scale and structure that it takes."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from puffer_policies import adapt_policy
from puffer_spaces import Layout

DISCRETE = spaces.Discrete(3)
IMAGE = spaces.Box(0, 255, (3, 84, 84), np.uint8)


@pytest.mark.parametrize(
    "space", [spaces.Box(0, 9, (5,), np.uint8), spaces.Box(-9, 9, (5,), np.int32), spaces.Box(-1, 1, (5,), np.float64)]
)
def test_module_that_wants_floats_gets_floats(space, heads):
    module = heads()
    policy = adapt_policy(module, space, DISCRETE)
    observations = torch.from_numpy(np.stack([space.sample() for _ in range(4)]))

    torch.testing.assert_close(policy.forward_eval(observations)[0], module(observations.float())[0])


def test_image_that_is_cast_for_a_module_is_scaled():
    class NoCast(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv2d(3, 4, 8, stride=8)

        def forward(self, observations):
            features = self.convolution(observations).mean((2, 3))
            return features[:, :3], features[:, 3]

    module = NoCast()
    policy = adapt_policy(module, IMAGE, DISCRETE)
    images = torch.randint(0, 256, (2, 3, 84, 84), dtype=torch.uint8)

    torch.testing.assert_close(policy.forward_eval(images)[0], module(images.float() / 255)[0])


def test_module_that_takes_bytes_gets_bytes():
    class Lookup(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(256, 4)
            self.value = nn.Linear(4, 1)

        def forward(self, observations):
            assert observations.dtype == torch.uint8
            features = self.embedding(observations.long()).mean(1)
            return features[:, :3], self.value(features)

    policy = adapt_policy(Lookup(), spaces.Box(0, 255, (5,), np.uint8), DISCRETE)

    assert policy.forward_eval(torch.zeros(4, 5, dtype=torch.uint8))[0].shape == (4, 3)


def test_layout_of_a_discrete_observation(make_env):
    env = make_env(spaces.Discrete(6), DISCRETE)

    class Lookup(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(6, 4)

        def forward(self, observations):
            features = self.embedding(observations.reshape(len(observations)))
            return features[:, :3], features[:, 3]

    policy = adapt_policy(Lookup(), env.single_observation_space, DISCRETE, Layout(spaces.Discrete(6)))

    assert policy.forward_eval(torch.tensor([[5], [0]]))[0].shape == (2, 3)
