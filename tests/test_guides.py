"""The forms that PufferLib's users know: its 3.0 classes and the calls of its guides."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

import pufferlib
from pufferlib import PufferEnv, PuffeRL
from pufferlib.pytorch import layer_init


class Corridor(PufferEnv):
    """A class as PufferLib 3.0 has them: spaces first, then super().__init__(buf), batched, in place."""

    def __init__(self, num_agents: int = 4, buf: Any = None, seed: int = 0) -> None:
        self.single_observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.num_agents = num_agents
        super().__init__(buf)
        self.place = np.zeros(num_agents, np.int64)

    def reset(self, seed: int | None = None) -> tuple[np.ndarray, list]:
        self.place[:] = 0
        self.observations[:] = 0
        return self.observations, []

    def step(self, actions: np.ndarray) -> tuple:
        self.place += np.where(actions == 1, 1, -1)
        self.place.clip(0, 9, out=self.place)
        done = self.place == 9
        self.rewards[:] = done
        self.terminals[:] = done
        self.truncations[:] = False
        self.place[done] = 0
        self.observations[:, 0] = self.place
        infos = [{"score": 1.0}] if done.any() else []
        return self.observations, self.rewards, self.terminals, self.truncations, infos


class Walk(PufferEnv):
    """The short form of the guides: super().__init__ first, plain values, the caller resets."""

    def __init__(self, buf: Any = None) -> None:
        super().__init__(buf)
        self.observation_space = self.make_space((4,))
        self.action_space = self.make_discrete(2)
        self.reset()

    def reset(self) -> np.ndarray:
        self.count = 0
        return np.zeros(4, np.float32)

    def step(self, action: int) -> tuple:
        self.count += 1
        done = self.count >= 10
        info = {"TimeLimit.truncated": done}
        return np.full(4, self.count / 10, np.float32), float(action), done, info


class Structured(PufferEnv):
    """The short form with a dict of shapes."""

    def __init__(self, buf: Any = None) -> None:
        super().__init__(buf)
        self.observation_space = self.make_space({"image": (12, 12, 3), "vector": (10,)})
        self.action_space = self.make_multi_discrete([3, 2])

    def reset(self) -> dict:
        self.count = 0
        return {"image": np.zeros((12, 12, 3), np.uint8), "vector": np.zeros(10, np.float32)}

    def step(self, action: np.ndarray) -> tuple:
        self.count += 1
        observation = {"image": np.full((12, 12, 3), 7, np.uint8), "vector": np.ones(10, np.float32)}
        return observation, 1.0, self.count == 5, {}


class Basic(nn.Module):
    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.encoder = nn.Sequential(layer_init(nn.Linear(observation_space.shape[0], 32)), nn.ReLU())
        self.actor = layer_init(nn.Linear(32, action_space.n), std=0.01)
        self.critic = layer_init(nn.Linear(32, 1), std=1.0)

    def forward(self, observations: torch.Tensor) -> tuple:
        features = self.encoder(observations)
        return self.actor(features), self.critic(features)


class Recurrent(nn.Module):
    def __init__(self, observation_space: Any, action_space: Any, hidden_size: int = 16) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.encoder = nn.Sequential(layer_init(nn.Linear(observation_space.shape[0], 32)), nn.ReLU())
        self.lstm = nn.LSTM(32, hidden_size, num_layers=1)
        self.actor = layer_init(nn.Linear(hidden_size, action_space.n), std=0.01)
        self.critic = layer_init(nn.Linear(hidden_size, 1), std=1.0)

    def forward(self, observations: torch.Tensor, state: Any = None) -> tuple:
        if state is None:
            zeros = torch.zeros(1, observations.shape[0], self.hidden_size)
            state = (zeros, zeros)
        hidden, state = self.lstm(self.encoder(observations).unsqueeze(0), state)
        hidden = hidden.squeeze(0)
        return self.actor(hidden), self.critic(hidden), state


class Continuous(nn.Module):
    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.encoder = nn.Sequential(layer_init(nn.Linear(observation_space.shape[0], 32)), nn.ReLU())
        self.mean = layer_init(nn.Linear(32, action_space.shape[0]), std=0.01)
        self.log_std = nn.Parameter(torch.zeros(1, action_space.shape[0]))
        self.critic = layer_init(nn.Linear(32, 1), std=1.0)

    def forward(self, observations: torch.Tensor) -> tuple:
        features = self.encoder(observations)
        return self.mean(features), self.log_std.exp(), self.critic(features)


def updates(env: Any, policy: Any, **fields: Any) -> dict[str, float]:
    """Run two updates as the guides do and return the last losses."""
    trainer = PuffeRL(env=env, policy=policy, device="cpu", batch_size=env.num_agents * 16, num_steps=16, **fields)
    try:
        for _ in range(2):
            rollout = trainer.evaluate()
            assert {"mean_reward", "sps"} <= rollout.keys()
            losses = trainer.train()
            trainer.mean_and_log()
    finally:
        trainer.close()
    assert all(np.isfinite(value) for value in losses.values())
    return losses


@pytest.mark.parametrize("policy", [Basic, Recurrent, None])
@pytest.mark.parametrize("env", ["gym-CartPole-v1", Walk, "ocean-cartpole"])
def test_make_and_train_as_the_guides_do(env: Any, policy: Any) -> None:
    vec = pufferlib.make(env, num_envs=4)

    updates(vec, policy and policy(vec.observation_space, vec.action_space), n_epochs=2, ent_coef=0.01, vf_coef=0.5)


@pytest.mark.parametrize("policy", [Continuous, None])
def test_continuous_actions(policy: Any) -> None:
    vec = pufferlib.make("gym-Pendulum-v1", num_envs=4)

    updates(vec, policy and policy(vec.observation_space, vec.action_space))


def test_emulate_takes_an_object_a_class_and_a_creator() -> None:
    class Own(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (4,))
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, seed: int | None = None, options: dict | None = None) -> tuple:
            super().reset(seed=seed)
            return self.np_random.uniform(-1, 1, 4).astype(np.float32), {}

        def step(self, action: int) -> tuple:
            return np.zeros(4, np.float32), 1.0, False, False, {}

    for recipe in (gymnasium.make("CartPole-v1"), Own, lambda: gymnasium.make("CartPole-v1")):
        with pufferlib.emulate(recipe, num_envs=3) as env:
            observations, _ = env.reset(seed=1)
            assert observations.shape == (3, 4)
            assert not (observations[0] == observations[1]).all()
            env.step(np.zeros(3, np.int32))


def test_a_structured_short_form_trains() -> None:
    updates(pufferlib.make(Structured, num_envs=4), None)


def test_a_class_of_pufferlib_3_trains_unchanged() -> None:
    vec = pufferlib.vector.make(Corridor, backend=pufferlib.vector.Serial, num_envs=2)

    observations, _ = vec.reset(seed=0)
    assert observations.shape == (8, 1)
    updates(vec, None)


def test_vectorization_as_the_guides_spell_it() -> None:
    from pufferlib.vectorization import Multiprocessing, Serial

    with Serial(env_creator=lambda: Walk(), num_envs=4) as serial:
        serial.seed(42)
        first = serial.reset()[0].copy()
        rows = [serial.step(serial.action_space.sample())[0].shape for _ in range(3)]
        assert rows == [(4, 4)] * 3
    with Multiprocessing(env_creator=Walk, num_envs=4, num_workers=2, envs_per_worker=2) as processes:
        processes.seed(42)
        assert (processes.reset()[0] == first).all()


def test_registered_environments_are_made_by_their_id() -> None:
    pufferlib.register(id="guide-corridor", entry_point=Corridor, kwargs={"num_agents": 3})

    with pufferlib.make("guide-corridor", num_envs=2) as env:
        assert env.reset()[0].shape == (6, 1)


def test_a_checkpoint_keeps_its_metadata(tmp_path: Any) -> None:
    vec = pufferlib.make("ocean-squared", num_envs=4)
    trainer = PuffeRL(vec, None, batch_size=64, horizon=16, logger=pufferlib.NoLogger())
    trainer.evaluate()
    trainer.train()
    trainer.save_checkpoint(tmp_path / "one.pt", metadata={"iteration": 1, "best_reward": 0.5})
    steps = trainer.agent_steps
    trainer.evaluate()
    trainer.load_checkpoint(tmp_path / "one.pt")

    assert trainer.agent_steps == steps
    trainer.learning_rate = 1e-4
    trainer.evaluate()
    trainer.train()
    trainer.close()
