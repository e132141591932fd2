"""An env that keeps the contract passes; each way to break it is named."""

import pickle

import numpy as np
import pytest
from gymnasium import spaces

from puffer_spaces import CheckError, Episodes, PufferEnv, check_env, world_seed
from puffer_spaces.checks import CHECKS


class Drift(PufferEnv):
    """num_envs worlds of one agent that drifts by its action; an episode is cut when a random clock runs out."""

    has_final_observations = True
    has_state = True

    def __init__(self, num_envs=3, buf=None):
        self.num_envs = self.num_agents = num_envs
        self.single_observation_space = spaces.Box(-1000, 1000, (2,), np.float32)
        self.single_action_space = spaces.Discrete(3)
        super().__init__(buf)
        self.store = Episodes()
        self.rngs = [np.random.default_rng(world) for world in range(num_envs)]
        self.num_steps = 0

    def reset(self, seed=None, first_world=0, options=None):
        if seed is not None:
            self.rngs = [np.random.default_rng(world_seed(seed, first_world + w)) for w in range(self.num_envs)]
            self.num_steps = 0
        self.left = [0] * self.num_envs
        self.returns = [0.0] * self.num_envs
        self.lengths = [0] * self.num_envs
        for world in range(self.num_envs):
            self.start(world)
        return self.observations, []

    def start(self, world):
        self.left[world] = int(self.rngs[world].integers(4, 9))
        self.returns[world], self.lengths[world] = 0.0, 0
        self.observations[world] = self.rngs[world].normal(size=2)

    def end(self, world):
        self.truncations[world] = True
        self.final_observations[world] = self.observations[world]
        self.store.append(self.num_steps, world, 0, self.returns[world], self.lengths[world])
        self.start(world)

    def step(self, actions):
        self.num_steps += 1
        for world in range(self.num_envs):
            self.observations[world, 0] += actions[world] - 1 + 10
            self.rewards[world] += actions[world]
            self.returns[world] += float(actions[world])
            self.lengths[world] += 1
            self.left[world] -= 1
            if self.left[world] <= 0:
                self.end(world)
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def episodes(self):
        return self.store.drain()

    def get_state(self):
        return pickle.dumps((self.left, self.returns, self.lengths, self.num_steps, self.rngs))

    def set_state(self, state):
        self.left, self.returns, self.lengths, self.num_steps, self.rngs = pickle.loads(state)


def test_an_env_that_keeps_the_contract_has_no_findings():
    assert check_env(Drift) == []
    assert check_env(lambda: Drift(1)) == []


class OtherArrays(Drift):
    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return observations.copy(), rewards, *rest


class ReplacedArray(Drift):
    def step(self, actions):
        observations, _, *rest = super().step(actions)
        self.rewards = self.rewards.copy()
        return observations, self.rewards, *rest


class ReplacedActions(Drift):
    def step(self, actions):
        self.actions = np.asarray(actions, np.float32)
        return super().step(actions)


class FourValues(Drift):
    def step(self, actions):
        return super().step(actions)[:4]


class InfosDict(Drift):
    def reset(self, seed=None, first_world=0, options=None):
        return super().reset(seed, first_world)[0], {}


class BareReset(Drift):
    def reset(self, seed=None, first_world=0, options=None):
        return super().reset(seed, first_world)[0]


class NaNReward(Drift):
    def step(self, actions):
        result = super().step(actions)
        self.rewards[0] = np.nan
        return result


class OutOfBounds(Drift):
    def __init__(self, num_envs=3, buf=None):
        super().__init__(num_envs, buf)
        self.single_observation_space = spaces.Box(-20, 20, (2,), np.float32)


class NaNFinal(Drift):
    def end(self, world):
        super().end(world)
        self.final_observations[world, 1] = np.nan


class ChangesActions(Drift):
    def step(self, actions):
        result = super().step(actions)
        actions[...] = 0
        return result


class StaleFlags(Drift):
    clears_flags = True
    step = Drift.step.__wrapped__


class LeavesResetToTheCaller(Drift):
    def end(self, world):
        self.truncations[world] = True
        self.final_observations[world] = self.observations[world]


class NextStep(Drift):
    waiting = ()

    def reset(self, seed=None, first_world=0, options=None):
        self.waiting = set()
        return super().reset(seed, first_world)

    def end(self, world):
        self.truncations[world] = True
        self.final_observations[world] = self.observations[world]
        self.waiting.add(world)

    def step(self, actions):
        waiting, self.waiting = self.waiting, set()
        result = super().step(actions)
        for world in waiting:
            self.start(world)
            self.rewards[world] = 0
            self.truncations[world] = False
            self.waiting.discard(world)
        return result


class NoFinal(Drift):
    def end(self, world):
        self.truncations[world] = True
        self.store.append(self.num_steps, world, 0, self.returns[world], self.lengths[world])
        self.start(world)


class NoFinalDeclared(NoFinal):
    has_final_observations = False


class FinalIsNew(Drift):
    def end(self, world):
        super().end(world)
        self.final_observations[world] = self.observations[world]


class SilentReset(Drift):
    def end(self, world):
        super().end(world)
        self.truncations[world] = False


class WrongReturn(Drift):
    def step(self, actions):
        result = super().step(actions)
        self.rewards[0] += 0.5
        return result


class WrongLength(Drift):
    def start(self, world):
        super().start(world)
        self.lengths[world] = 1


class MissingRecord(Drift):
    def end(self, world):
        super().end(world)
        if world == 0:
            self.store.clear()


class WrongMaskSize(Drift):
    action_mask_size = 4


class CapturedPointer(Drift):
    rebinds_buffers = True

    def __init__(self, num_envs=3, buf=None):
        super().__init__(num_envs, buf)
        self.captured = self.rewards

    def step(self, actions):
        result = super().step(actions)
        self.captured[...] = self.rewards
        self.rewards[...] = 0
        self.rewards[...] = self.captured
        return result


class IgnoresBuf(Drift):
    def __init__(self, num_envs=3, buf=None):
        super().__init__(num_envs)


class ClosesOnce(Drift):
    def close(self):
        del self.store


class Raises(Drift):
    def step(self, actions):
        raise RuntimeError("the engine stopped")


@pytest.mark.parametrize(
    ("env", "check", "severity", "words"),
    [
        (OtherArrays, "buffers", "error", "self.observations"),
        (ReplacedArray, "buffers", "error", "self.rewards"),
        (ReplacedActions, "buffers", "warning", "self.actions"),
        (FourValues, "results", "error", "5 values"),
        (InfosDict, "results", "error", "list of dicts"),
        (BareReset, "results", "error", "(observations, infos)"),
        (NaNReward, "rewards", "error", "nan in row 0"),
        (OutOfBounds, "observations", "error", "declared [-20.0, 20.0]"),
        (NaNFinal, "observations", "error", "final_observations"),
        (ChangesActions, "actions_unchanged", "error", "copy"),
        (StaleFlags, "flags_cleared", "error", "rewards, terminals, truncations"),
        (LeavesResetToTheCaller, "autoreset", "error", "reset the world"),
        (NextStep, "autoreset", "error", "a step later"),
        (NoFinal, "final_observations", "error", "wrote none"),
        (NoFinalDeclared, "final_observations", "warning", "has_final_observations"),
        (FinalIsNew, "final_observations", "warning", "equal the new"),
        (SilentReset, "silent_resets", "error", "no terminal or truncation"),
        (WrongReturn, "episode_records", "error", "says return"),
        (WrongLength, "episode_records", "error", "says length"),
        (MissingRecord, "episode_records", "error", "[0]"),
        (WrongMaskSize, "spaces", "error", "sum(nvec)"),
        (CapturedPointer, "rebinding", "error", "rewards"),
        (IgnoresBuf, "rebinding", "warning", "super().__init__(buf)"),
        (ClosesOnce, "close", "error", "second time"),
        (Raises, "results", "error", "the engine stopped"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_each_broken_env_is_diagnosed(assert_diagnosed, env, check, severity, words):
    assert_diagnosed(env, check, severity, words)


def test_the_first_error_is_raised_with_its_cause():
    with pytest.raises(CheckError, match="the engine stopped") as caught:
        check_env(Raises)

    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_check_can_be_left_out_by_name():
    assert check_env(NaNReward, skip=("rewards", "world_numbers", "episode_records")) == []

    with pytest.raises(ValueError, match="skip must name checks"):
        check_env(Drift, skip=("reward",))


def test_an_object_stays_open_on_request():
    class Counted(Drift):
        closed = 0

        def close(self):
            self.closed += 1

    env = Counted()

    assert check_env(env, close=False) == []
    assert env.closed == 0
    assert check_env(env) == []
    assert env.closed == 2


def test_every_check_has_its_own_name():
    assert len({check.__name__ for check in CHECKS.values()}) == len(CHECKS)
    assert all(check.__name__ == f"check_{name}" for name, check in CHECKS.items())
