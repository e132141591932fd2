"""What a Gymnasium environment must look like once it is a PufferEnv."""

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit

from puffer_emulate import GymnasiumPufferEnv, emulate
from puffer_spaces import world_seed


def test_the_step_that_ends_an_episode_holds_both_observations(counter, zeros):
    env = emulate(counter, 2)
    observations, infos = env.reset(seed=0)
    assert infos == []
    assert observations.tolist() == [[0, 0], [0, 0]]

    env.step(zeros(env))
    env.step(zeros(env))
    observations, rewards, terminals, truncations, infos = env.step(zeros(env))

    assert observations.tolist() == [[0, 0], [0, 0]]
    assert env.final_observations.tolist() == [[3, 3], [3, 3]]
    assert rewards.tolist() == [1, 1]
    assert terminals.tolist() == [True, True]
    assert truncations.tolist() == [False, False]
    assert env.masks.all()
    assert [info["agent_index"] for info in infos] == [0, 1]


def test_flags_last_for_one_step(counter, zeros):
    env = emulate(counter)
    env.reset(seed=0)
    flags = [env.step(zeros(env))[2].item() for _ in range(7)]

    assert flags == [False, False, True, False, False, True, False]


def test_an_env_that_reuses_its_info_loses_none(counter, zeros):
    env = emulate(counter)
    env.reset(seed=0)
    for _ in range(3):
        infos = env.step(zeros(env))[4]
    (info,) = infos
    env.step(zeros(env))

    assert info["score"] == 7.0
    assert info["parts"][0].tolist() == [3]
    assert env.env.info == {}


def test_every_episode_is_recorded_with_its_own_length(counter, zeros):
    env = emulate(counter, 2)
    env.reset(seed=0)
    for _ in range(15):
        env.step(zeros(env))

    records = env.episodes()
    assert records["episode_length"].tolist() == [3] * 10
    assert records["episode_return"].tolist() == [3] * 10
    assert records["score"].tolist() == [7] * 10
    assert records["step"].tolist() == [3, 3, 6, 6, 9, 9, 12, 12, 15, 15]
    assert records["world"].tolist() == [0, 1] * 5
    assert len(env.episodes()) == 0


def test_a_record_keeps_the_extras_that_are_asked_for(counter, zeros):
    class Scored(counter):
        def step(self, action):
            observation, reward, terminated, truncated, _info = super().step(action)
            return observation, reward, terminated, truncated, {"lives": np.int64(2), "perf": 0.5}

    env = emulate(Scored, episode_extras=("lives", "absent"))
    env.reset(seed=0)
    for _ in range(3):
        env.step(zeros(env))

    (record,) = env.episodes()
    assert (record["lives"], record["perf"], record["score"]) == (2, 0.5, 3)
    assert np.isnan(record["absent"])


@pytest.mark.parametrize(
    "wrap", [lambda env: TimeLimit(env, 2), lambda env: RecordEpisodeStatistics(TimeLimit(env, 2))]
)
def test_a_time_limit_truncates_and_counts_from_each_reset(counter, zeros, wrap):
    env = emulate(lambda: wrap(counter(length=100)))
    env.reset(seed=0)
    env.step(zeros(env))
    env.reset()
    flags = []
    for _ in range(4):
        _, _, terminals, truncations, _ = env.step(zeros(env))
        flags.append((terminals.item(), truncations.item()))

    assert flags == [(False, False), (False, True), (False, False), (False, True)]
    assert env.final_observations.tolist() == [[2, 2]]


def test_an_end_on_the_last_step_of_the_limit_sets_both_flags(counter, zeros):
    env = emulate(lambda: TimeLimit(counter(length=2), 2))
    env.reset(seed=0)
    env.step(zeros(env))
    _, _, terminals, truncations, _ = env.step(zeros(env))

    assert terminals.item()
    assert truncations.item()


def test_options_reach_every_env_once(counter, zeros):
    env = emulate(counter, 2)
    env.reset(seed=1, options={"level": 3})
    for _ in range(3):
        env.step(zeros(env))

    assert [made.calls for made in env.envs] == [
        [(world_seed(1, world), {"level": 3}), (None, None)] for world in range(2)
    ]


def test_an_env_may_keep_the_actions_it_got(counter):
    class Remembering(counter):
        action_space = spaces.Box(-1, 1, (2,), np.float32)

        def step(self, action):
            self.history = [*getattr(self, "history", []), action]
            return super().step(action)

    env = emulate(Remembering)
    env.reset(seed=0)
    for value in (0.25, 0.5):
        env.actions[:] = value
        env.step(env.actions)

    assert [action.tolist() for action in env.env.history] == [[0.25, 0.25], [0.5, 0.5]]


def test_buffers_can_be_bound_again(counter, zeros):
    env = emulate(counter, 2)
    env.reset(seed=0)
    old = env.buffers
    env.set_buffers(type(old).allocate(env.single_observation_space, env.single_action_space, 2))
    observations, rewards, *_ = env.step(zeros(env))

    assert observations.tolist() == [[1, 1], [1, 1]]
    assert rewards is env.buffers.rewards
    assert old.observations.tolist() == [[0, 0], [0, 0]]


def test_step_needs_a_reset_and_an_open_env(counter, zeros):
    env = emulate(counter)
    with pytest.raises(RuntimeError, match="must be reset before step"):
        env.step(zeros(env))
    env.reset(seed=0)
    env.close()
    env.close()

    assert env.env.num_closed == 1
    with pytest.raises(RuntimeError, match="must be open"):
        env.reset(seed=0)


def test_close_reaches_every_env_although_one_fails(counter):
    class Stuck(counter):
        def close(self):
            super().close()
            raise OSError("stuck")

    env = emulate(Stuck, 2)

    with pytest.raises(OSError, match="stuck"):
        env.close()
    assert [made.num_closed for made in env.envs] == [1, 1]


def test_the_wrappers_of_make_are_stepped_around_and_rendering_works():
    env = GymnasiumPufferEnv(gymnasium.make("FrozenLake-v1", render_mode="ansi"))
    env.reset(seed=0)
    drawn = env.render()
    env.close()

    assert env.render_mode == "ansi"
    assert drawn.count("H") == 4


@pytest.mark.parametrize("copy_of", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_of_an_env_steps_worlds_and_rows_of_its_own(counter, copy_of):
    env = GymnasiumPufferEnv(env_creator=counter, num_envs=2)
    env.reset(seed=1)
    twin = copy_of(env)
    twin.step([0, 1])

    assert twin.observations.tolist() == twin.buffers.observations.tolist() == [[1, 1], [1, 1]]
    assert env.observations.tolist() == [[0, 0], [0, 0]]
    assert [world.observation[0] for world in (*twin.envs, *env.envs)] == [1, 1, 0, 0]


def test_a_closed_env_says_so(counter):
    env = GymnasiumPufferEnv(counter)
    env.reset()
    env.close()

    for call in (env.reset, lambda: env.step([0])):
        with pytest.raises(RuntimeError, match=r"Counter must be open; close\(\) was called"):
            call()


@pytest.mark.parametrize("world", [-1, 1])
def test_a_world_that_is_not_there_is_not_drawn(counter, world):
    with pytest.raises(ValueError, match=rf"world must be in \[0, 0\]; got {world}"):
        GymnasiumPufferEnv(counter).render(world)
