"""Envs of several agents: one that keeps the contract passes; each way to break it is named."""

import numpy as np
import pytest
from gymnasium import spaces

from puffer_spaces import PufferEnv, check_env


class Coop(PufferEnv):
    """One world of three agents; agent i ends at step 2 + i, and the world with the last."""

    has_final_observations = True
    action_mask_size = 3

    def __init__(self, buf=None):
        self.num_agents = 3
        self.single_observation_space = spaces.Box(0, 10, (1,), np.float32)
        self.single_action_space = spaces.Discrete(3)
        super().__init__(buf)
        self.start()

    def start(self):
        self.time = 0
        self.observations[:, 0] = 1
        self.masks[:] = True
        self.action_mask[:] = [True, True, False]

    def reset(self, seed=None):
        self.start()
        return self.observations, []

    def step(self, actions):
        self.time += 1
        for agent in range(3):
            if not self.masks[agent]:
                continue
            self.observations[agent] += 1
            self.rewards[agent] = 1
            if self.time == 2 + agent:
                self.leave(agent)
        if self.time == 4:
            self.start()
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def leave(self, agent):
        self.terminals[agent] = True
        self.final_observations[agent] = self.observations[agent]
        self.observations[agent] = 0
        self.masks[agent] = False


def test_actions_keep_to_the_action_mask():
    class Strict(Coop):
        def step(self, actions):
            assert (actions[self.masks] < 2).all()
            return super().step(actions)

    assert not [finding for finding in check_env(Strict) if finding.severity == "error"]


def test_agents_that_end_one_by_one_pass_with_notes_only():
    findings = check_env(Coop)

    assert {finding.check: finding.severity for finding in findings} == {
        "seeds_differ": "warning",
        "episode_records": "note",
    }


class ReturnsToStart(Coop):
    def step(self, actions):
        result = super().step(actions)
        self.terminals[:] = False
        return result

    def leave(self, agent):
        self.observations[agent] = 1


class DeadReward(Coop):
    def step(self, actions):
        result = super().step(actions)
        self.rewards[:] = 1
        return result


class DeadObservation(Coop):
    def leave(self, agent):
        super().leave(agent)
        self.observations[agent] = 5


class LeavesUnflagged(Coop):
    def leave(self, agent):
        super().leave(agent)
        self.terminals[agent] = False


class FlaggedTwice(Coop):
    def start(self):
        if getattr(self, "time", 0) == 4:
            self.terminals[:] = True
        super().start()


class EmptyWorld(Coop):
    def start(self):
        super().start()
        self.masks[:] = False
        self.observations[:] = 0


class NothingAllowed(Coop):
    def start(self):
        super().start()
        self.action_mask[1] = False


@pytest.mark.parametrize(
    ("env", "check", "severity", "words"),
    [
        (ReturnsToStart, "silent_resets", "warning", "came back"),
        (DeadReward, "masks", "error", "no reward"),
        (DeadObservation, "masks", "error", "zero observation"),
        (LeavesUnflagged, "masks", "error", "without a flag"),
        (FlaggedTwice, "masks", "error", "no flag"),
        (EmptyWorld, "masks", "error", "world 0"),
        (NothingAllowed, "action_mask", "error", "row 1"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_each_broken_env_is_diagnosed(assert_diagnosed, env, check, severity, words):
    assert_diagnosed(env, check, severity, words)
