"""Wrappers of rows and of steps."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from puffer_emulate import emulate
from puffer_emulate.wrappers import (
    ActionRepeat,
    ClipAction,
    ClipReward,
    EpisodeStatistics,
    FrameStack,
    NormalizeObservation,
    NormalizeReward,
    ParallelActionRepeat,
    ParallelTimeLimit,
    Resize,
)
from puffer_emulate.wrappers.normalize import RunningMoments
from puffer_emulate.wrappers.resize import area_weights
from puffer_spaces import as_puffer_env


class Counter(gymnasium.Env):
    """Shows its step count, ends after `length` steps, rewards 3 a step."""

    def __init__(self, length=3, shape=(1,), dtype=np.float32, action_space=None):
        self.observation_space = spaces.Box(0, 200, shape, dtype)
        self.action_space = action_space or spaces.Discrete(2)
        self.length = length
        self.actions = []

    def observe(self):
        return np.full(self.observation_space.shape, self.count, self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observe(), {}

    def step(self, action):
        self.actions.append(action)
        self.count += 1
        return self.observe(), 3.0, self.count == self.length, False, {}


class Pair:
    """A parallel env of two agents; b ends at step 2, the episode never does."""

    metadata = {"name": "pair"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def observation_space(self, agent):
        return spaces.Box(0, 200, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.count = ["a", "b"], 0
        return {agent: np.zeros(1, np.float32) for agent in self.agents}, {}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.count += 1
        agents, ended = self.agents, self.count == 2
        self.agents = ["a"] if self.count >= 2 else agents
        observations = {agent: np.full(1, self.count, np.float32) for agent in agents}
        return observations, dict.fromkeys(agents, 1.0), {"b": ended}, {}, {}

    def close(self): ...


def wrappers():
    yield "FrameStack", lambda env: FrameStack(env, 3)
    yield "ClipReward", ClipReward
    yield "EpisodeStatistics", EpisodeStatistics
    yield "NormalizeObservation", NormalizeObservation
    yield "NormalizeReward", NormalizeReward
    yield "all", lambda env: EpisodeStatistics(NormalizeReward(FrameStack(NormalizeObservation(ClipReward(env)), 2)))


@pytest.mark.parametrize("wrap", [wrap for _, wrap in wrappers()], ids=[name for name, _ in wrappers()])
@pytest.mark.parametrize("creator", [Counter, lambda: ParallelTimeLimit(Pair(), 5)])
def test_a_wrapped_env_keeps_the_contract_and_its_state(errors, zeros, wrap, creator):
    # Wrappers of rewards leave the records as they are, in the env's own unit.
    assert errors(wrap(emulate(creator, 2)), skip=("episode_records",)) == []

    env, other = wrap(emulate(creator, 2)), wrap(emulate(creator, 2))
    env.reset(seed=0)
    for _ in range(4):
        env.step(zeros(env))
    other.set_state(env.get_state())
    other.masks[:] = env.masks
    for _ in range(12):
        expected = env.step(zeros(env))
        for array, expected_array in zip(other.step(zeros(other))[:4], expected[:4], strict=True):
            assert np.array_equal(array, expected_array)
    assert other.episodes().tobytes() == env.episodes().tobytes()


def test_a_stack_starts_with_copies_and_ends_with_its_own_episode(zeros):
    env = FrameStack(emulate(Counter, 2), 2)
    observations, _ = env.reset(seed=0)
    seen = [observations[0, :, 0].tolist()]
    for _ in range(4):
        observations, _, terminals, _, _ = env.step(zeros(env))
        seen.append(observations[0, :, 0].tolist())
        if terminals[0]:
            assert env.final_observations[0, :, 0].tolist() == [2, 3]

    assert env.single_observation_space == spaces.Box(0, 200, (2, 1), np.float32)
    assert seen == [[0, 0], [0, 1], [1, 2], [0, 0], [0, 1]]


def test_images_are_stacked_along_their_channels(zeros):
    env = FrameStack(emulate(lambda: Counter(length=9, shape=(4, 5, 3), dtype=np.uint8)), 2)
    env.reset(seed=0)
    observations, *_ = env.step(zeros(env))

    assert env.single_observation_space.shape == (4, 5, 6)
    assert observations[0, 0, 0].tolist() == [0, 0, 0, 1, 1, 1]


def test_the_stack_of_an_agent_that_ended_is_zero(zeros):
    env = FrameStack(emulate(lambda: ParallelTimeLimit(Pair(), 4)), 2)
    env.reset(seed=0)
    seen = [env.step(zeros(env))[0][1, :, 0].tolist() for _ in range(4)]

    assert seen == [[0, 1], [0, 0], [0, 0], [0, 0]]
    assert env.final_observations[1, :, 0].tolist() == [1, 2]


def test_rewards_are_clipped_and_records_keep_the_envs_own(zeros):
    env = ClipReward(emulate(Counter), low=-1, high=2)
    env.reset(seed=0)
    rewards = [env.step(zeros(env))[1].item() for _ in range(3)]

    assert rewards == [2, 2, 2]
    assert env.episodes()["episode_return"].tolist() == [9]


def test_statistics_record_what_they_see(zeros):
    env = EpisodeStatistics(ClipReward(emulate(Counter, 2), high=2))
    env.reset(seed=0)
    for _ in range(6):
        env.step(zeros(env))

    records = env.episodes()
    assert records[["step", "world", "episode_return", "episode_length"]].tolist() == [
        (3, 0, 6, 3),
        (3, 1, 6, 3),
        (6, 0, 6, 3),
        (6, 1, 6, 3),
    ]


def test_actions_are_clipped_to_their_box():
    env = ClipAction(emulate(lambda: Counter(action_space=spaces.Box(-1, 2, (2,), np.float32))))
    env.reset(seed=0)
    env.step(np.array([[-5, 5]], np.float32))

    assert env.env.env.actions[0].tolist() == [-1, 2]
    with pytest.raises(TypeError, match="ClipAction takes actions of Boxes"):
        ClipAction(emulate(Counter))


def test_images_are_resized_by_area_and_made_gray():
    class Halves(Counter):
        def observe(self):
            image = np.zeros((4, 6, 3), np.uint8)
            image[:, 3:] = (200, 100, 50)
            return image

    env = Resize(emulate(lambda: Halves(shape=(4, 6, 3), dtype=np.uint8)), 2, 4)
    gray = Resize(emulate(lambda: Halves(shape=(4, 6, 3), dtype=np.uint8)), 2, 2, is_gray=True)

    assert env.reset(seed=0)[0][0, 0].tolist() == [[0, 0, 0], [0, 0, 0], [200, 100, 50], [200, 100, 50]]
    assert gray.reset(seed=0)[0][0, :, :, 0].tolist() == [[0, 124], [0, 124]]
    with pytest.raises(TypeError, match="Resize takes uint8 images"):
        Resize(emulate(Counter), 2, 2)


@given(st.integers(1, 40), st.integers(1, 40))
def test_area_weights_keep_the_mean(size, new_size):
    weights = area_weights(size, new_size)

    assert np.allclose(weights.sum(1), 1, atol=1e-5)
    assert np.allclose(weights.sum(0), new_size / size, atol=1e-4)


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5), min_size=1, max_size=6))
def test_running_moments_equal_those_of_all_samples(batches):
    moments = RunningMoments(())
    for batch in batches:
        moments.update(np.array(batch))
    samples = np.concatenate(batches)

    assert np.isclose(moments.mean, samples.mean(), atol=1e-6)
    assert np.isclose(moments.squares, samples.var() * len(samples), rtol=1e-6, atol=1e-3)


def test_normalized_observations_have_unit_scale(zeros):
    env = NormalizeObservation(emulate(lambda: Counter(length=100), 4))
    env.reset(seed=0)
    for _ in range(400):
        env.step(zeros(env))
    env.is_updating = False
    rows = np.stack([env.step(zeros(env))[0].copy() for _ in range(100)])

    assert abs(rows.mean()) < 0.05
    assert abs(rows.std() - 1) < 0.05


def test_normalized_rewards_have_the_scale_of_their_sum(zeros):
    env = NormalizeReward(emulate(lambda: Counter(length=50), 2), gamma=0.5)
    env.reset(seed=0)
    for _ in range(200):
        env.step(zeros(env))

    assert 0 < env.step(zeros(env))[1][0] <= 10


def test_repeated_actions_stop_at_the_end_of_an_episode(zeros):
    env = emulate(lambda: ActionRepeat(Counter(), 2))
    env.reset(seed=0)
    results = [env.step(zeros(env))[1:3] for _ in range(2)]

    assert env.final_observations.item() == 3
    assert results[-1][1].item()
    assert env.episodes()["episode_return"].tolist() == [9]


def test_repeated_actions_of_several_agents_stop_when_one_ends(zeros):
    env = emulate(lambda: ParallelActionRepeat(Pair(), 3))
    env.reset(seed=0)
    _, rewards, terminals, _, _ = env.step(zeros(env))
    assert rewards.tolist() == [2, 2]
    assert terminals.tolist() == [False, True]

    _, rewards, _, _, _ = env.step(zeros(env))
    assert rewards.tolist() == [3, 0]


def test_a_time_limit_cuts_all_agents(zeros):
    env = emulate(lambda: ParallelTimeLimit(Pair(), 3))
    env.reset(seed=0)
    flags = [env.step(zeros(env))[3].tolist() for _ in range(3)]

    assert flags == [[False, False], [False, False], [True, False]]
    with pytest.raises(ValueError, match="max_episode_steps must be an integer of at least 1"):
        ParallelTimeLimit(Pair(), 0)


def test_wrappers_of_one_box_refuse_nested_observations():
    nested = spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Discrete(3))

    class Nested(Counter):
        def __init__(self):
            super().__init__()
            self.observation_space = nested

    with pytest.raises(TypeError, match="FrameStack takes observations of one Box"):
        FrameStack(as_puffer_env(Nested), 2)
