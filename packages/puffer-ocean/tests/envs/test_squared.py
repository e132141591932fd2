"""Squared's rules. Whole trajectories are compared with the Python twin in test_pysquared.py."""

from __future__ import annotations

import numpy as np
import pytest

from puffer_ocean import OceanEnv

STAY, DOWN, UP, LEFT, RIGHT = range(5)
EMPTY, AGENT, TARGET = range(3)


def board(env, world=0):
    size = env.parameters["size"]
    return env.observations[world].reshape(size, size)


def path_to_target(cells):
    """The actions that walk straight to the first target."""
    (row, column), (to_row, to_column) = np.argwhere(cells == AGENT)[0], np.argwhere(cells == TARGET)[0]
    down, right = to_row - row, to_column - column
    return [DOWN if down > 0 else UP] * abs(down) + [RIGHT if right > 0 else LEFT] * abs(right)


def test_the_agent_starts_in_the_middle_and_the_target_elsewhere():
    env = OceanEnv("squared", 2000)
    env.reset(0)
    cells = env.observations.reshape(2000, 11, 11)

    assert (cells[:, 5, 5] == AGENT).all()
    assert ((cells == TARGET).sum(axis=(1, 2)) == 1).all()
    counts = (cells == TARGET).sum(axis=0)
    assert counts[5, 5] == 0
    assert (counts.ravel()[np.arange(121) != 60] > 0).all()


@pytest.mark.parametrize(
    ("action", "place"), [(STAY, (5, 5)), (DOWN, (6, 5)), (UP, (4, 5)), (LEFT, (5, 4)), (RIGHT, (5, 6))]
)
def test_actions_move_the_agent(action, place):
    env = OceanEnv("squared", 64)
    env.reset(0)
    clear = env.observations.reshape(64, 11, 11)[:, place[0], place[1]] != TARGET
    env.step(np.full(64, action))

    assert (env.observations.reshape(64, 11, 11)[clear][:, place[0], place[1]] == AGENT).all()
    assert ((env.observations[clear] == AGENT).sum(axis=1) == 1).all()


def test_walking_to_the_target_wins_in_the_manhattan_distance():
    env = OceanEnv("squared", 1)
    lengths = []
    env.reset(0)
    for _ in range(3000):
        path = path_to_target(board(env))
        lengths.append(len(path))
        for action in path:
            env.step([action])
        assert env.terminals[0]
        assert env.rewards[0] == 1
        assert (env.final_observations[0] == TARGET).sum() == 0
    records = env.episodes()

    assert (records["perf"] == 1).all()
    assert (records["score"] == 1).all()
    assert records["episode_length"].tolist() == lengths
    assert np.mean(lengths) == pytest.approx(5.5, abs=0.15)


def test_leaving_the_board_costs_and_ends_without_an_agent_in_sight():
    env = OceanEnv("squared", 1, size=3, num_targets=1)
    env.reset(2)
    path = [LEFT, LEFT] if board(env)[1, 0] != TARGET else [RIGHT, RIGHT]
    env.step([path[0]])
    assert not env.terminals[0]
    env.step([path[1]])

    assert env.terminals[0]
    assert env.rewards[0] == -1
    assert AGENT not in env.final_observations[0]
    record = env.episodes()[0]
    assert (record["score"], record["perf"], record["out_rate"], record["timeout_rate"]) == (-1, 0, 1, 0)


def test_staying_is_truncated_after_three_sizes():
    env = OceanEnv("squared", 1, size=5)
    env.reset(0)
    for step in range(15):
        assert not env.truncations[0], step
        env.step([STAY])

    assert env.truncations[0]
    assert not env.terminals[0]
    assert env.episodes()[["score", "perf", "out_rate", "timeout_rate"]].tolist() == [(0, 0, 0, 1)]


def test_each_of_several_targets_vanishes_and_the_last_one_ends_the_episode():
    env = OceanEnv("squared", 1, size=5, num_targets=3, reward_step=-0.1, reward_target=0.5, max_steps=-1)
    env.reset(4)
    rewards = []
    while not env.terminals[0]:
        assert (board(env) == TARGET).sum() == 3 - rewards.count(0.5)
        env.step([path_to_target(board(env))[0]])
        rewards.append(float(env.rewards[0]))

    assert env.terminals[0]
    assert sorted(set(np.round(rewards, 6))) == [-0.1, 0.5]
    assert rewards.count(0.5) == 3
    assert env.episodes()["score"].tolist() == [3]


def test_planes_show_the_same_world_as_cells():
    cells, planes = OceanEnv("squared", 8, num_targets=3), OceanEnv("squared", 8, num_targets=3, onehot=True)
    cells.reset(1)
    planes.reset(1)
    assert planes.single_observation_space.shape == (3, 11, 11)
    for step in range(300):
        expected = np.eye(3, dtype=np.uint8)[cells.observations.reshape(8, 11, 11)].transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(planes.observations, expected)
        actions = np.random.default_rng(step).integers(0, 5, 8)
        cells.step(actions)
        planes.step(actions)


def test_a_random_policy_has_the_known_scores(actions_of):
    env = OceanEnv("squared", 512)
    env.reset(0)
    for step in range(1000):
        env.step(actions_of(env, step))
    records = env.episodes()

    assert records["perf"].mean() == pytest.approx(0.114, abs=0.006)
    assert records["episode_length"].mean() == pytest.approx(28, abs=1)
