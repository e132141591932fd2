"""Returns and lengths that the trainer counts itself, and when it leaves that to the environment."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import puffer_vector
from puffer_spaces import PufferEnv, episode_dtype
from puffer_train.episode_counts import EpisodeCounts
from puffer_train.metrics import Metrics
from puffer_train.trainer import PuffeRL

NEVER = np.zeros(2, np.bool_)
ALWAYS = np.ones(2, np.bool_)


class Old(PufferEnv):
    """A class as those of PufferLib 3.0: two agents, episodes of 3 and of 5 steps, no records."""

    told = False

    def __init__(self, buf=None, seed=0):
        self.single_observation_space = Box(0, 9, (1,), np.float32)
        self.single_action_space = Discrete(2)
        self.num_agents = 2
        super().__init__(buf)
        self.ages = np.zeros(2, np.int64)

    def reset(self, seed=None):
        self.ages[:] = 0
        self.observations[:] = 0
        return self.observations, []

    def step(self, actions):
        self.ages += 1
        self.rewards[:] = [1.0, 2.0]
        self.terminals[:] = self.ages == [3, 5]
        self.truncations[:] = False
        infos = [{"episode_return": 100.0, "n": 1}] if self.told and self.terminals.any() else []
        self.ages[self.terminals] = 0
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def close(self):
        pass


class Told(Old):
    told = True


def rows_of(env_class, num_updates=2, **options):
    vec = puffer_vector.make(env_class, num_envs=2, seed=1, **options)
    with PuffeRL(vec, horizon=15, num_iterations=num_updates, cpu_threads=1) as trainer:
        rows = []
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            rows.append(trainer.mean_and_log())
        return rows


@pytest.mark.parametrize("options", [{}, {"batch_size": 1}])
def test_an_environment_without_records_gets_its_episodes_counted(options):
    for row in rows_of(Old, **options):
        assert row["environment/num_episodes"] == 2 * (5 + 3)
        assert row["environment/episode_length"] == pytest.approx((5 * 3 + 3 * 5) / 8)
        assert row["environment/episode_return"] == pytest.approx((5 * 3 * 1 + 3 * 5 * 2) / 8)
        assert row["environment/score"] == row["environment/episode_return"]


def test_an_environment_that_tells_of_its_episodes_is_believed():
    for row in rows_of(Told):
        assert row["environment/episode_return"] == 100.0
        assert "environment/episode_length" not in row


def test_records_are_not_counted_again():
    metrics = Metrics(num_agents=2)
    metrics.counts.add_step(np.arange(2), np.ones(2, np.float32), ALWAYS, ALWAYS)
    record = np.zeros(1, episode_dtype())
    record["episode_return"] = 7.0
    metrics.add_episodes(record)

    assert metrics.means()["environment/episode_return"] == 7.0
    assert metrics.means()["environment/num_episodes"] == 1.0
    metrics.clear()
    metrics.counts.add_step(np.arange(2), np.ones(2, np.float32), ALWAYS, ALWAYS)
    assert metrics.means() == {}


def test_steps_that_never_happened_count_nothing():
    counts = EpisodeCounts(2)
    ids = np.arange(2)
    counts.add_step(ids, np.full(2, 3.0, np.float32), ALWAYS, NEVER)
    counts.add_step(ids, np.full(2, np.nan, np.float32), np.array([True, False]) & NEVER, np.array([False, True]))
    counts.add_step(ids, np.full(2, 1.0, np.float32), ALWAYS, ALWAYS)

    assert counts.finished().tolist() == [[0.0, 4.0, 2.0], [1.0, 1.0, 1.0]]


def test_order_does_not_depend_on_batches():
    together, apart = EpisodeCounts(2), EpisodeCounts(2)
    for step in range(6):
        ended = np.array([step % 2 == 1, step % 3 == 2])
        together.add_step(np.arange(2), np.full(2, step, np.float32), ALWAYS, ended)
    for row in (1, 0):
        for step in range(6):
            ended = np.array([step % 2 == 1 if row == 0 else step % 3 == 2])
            apart.add_step(np.array([row]), np.full(1, step, np.float32), ALWAYS[:1], ended)

    assert together.finished().tolist() == apart.finished().tolist()


def test_a_state_goes_on_and_one_of_other_agents_begins_anew():
    counts = EpisodeCounts(2)
    counts.add_step(np.arange(2), np.ones(2, np.float32), ALWAYS, np.array([True, False]))
    same, other = EpisodeCounts(2), EpisodeCounts(3)
    for restored in (same, other):
        restored.load_state_dict(counts.state_dict())
    for each in (counts, same):
        each.add_step(np.arange(2), np.ones(2, np.float32), ALWAYS, ALWAYS)
    other.add_step(np.arange(3), np.ones(3, np.float32), np.ones(3, np.bool_), np.ones(3, np.bool_))

    assert same.finished().tolist() == counts.finished().tolist()
    assert other.finished()[1:].tolist() == [[0.0, 1.0, 1.0], [1.0, 1.0, 1.0], [2.0, 1.0, 1.0]]


def test_episodes_of_all_processes_count_together():
    parts = [Metrics(num_agents=2), Metrics(num_agents=2)]
    for reward, part in zip((1.0, 3.0), parts, strict=True):
        part.counts.add_step(np.arange(2), np.full(2, reward, np.float32), ALWAYS, ALWAYS)
        part.add_infos([{"hits": reward}])

    means = Metrics.merged([part.state_dict() for part in parts]).means()

    assert means["environment/episode_return"] == 2.0
    assert means["environment/num_episodes"] == 4.0
    assert means["environment/hits"] == 2.0
