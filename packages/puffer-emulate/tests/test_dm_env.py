"""Environments of the dm_env API, written as doubles of its time steps and specs."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces

from puffer_emulate import DmEnvPufferEnv, emulate
from puffer_emulate.dm_env import space_of_spec
from puffer_spaces import as_puffer_env


class TimeStep(NamedTuple):
    step_type: int
    reward: Any
    discount: Any
    observation: Any

    def last(self):
        return self.step_type == 2


class Spec:
    def __init__(self, shape, dtype, **fields):
        self.shape, self.dtype = shape, np.dtype(dtype)
        vars(self).update(fields)


class Task:
    def __init__(self):
        self.random = np.random.RandomState()


class Reach:
    """Ends after `length` steps with the given discount."""

    def __init__(self, length=3, discount=1.0):
        self.task = Task()
        self.length, self.discount = length, discount

    def observation_spec(self):
        return {"position": Spec((2,), np.float64), "height": Spec((), np.float64)}

    def action_spec(self):
        return Spec((1,), np.float64, minimum=-1.0, maximum=1.0)

    def observe(self):
        return {"position": self.task.random.normal(size=2), "height": self.task.random.normal()}

    def reset(self):
        self.count = 0
        return TimeStep(0, None, None, self.observe())

    def step(self, action):
        assert action.shape == (1,)
        self.count += 1
        is_last = self.count == self.length
        return TimeStep(1 + is_last, 0.5, self.discount if is_last else 1.0, self.observe())

    def close(self): ...


@pytest.mark.parametrize(("discount", "flags"), [(0.0, (True, False)), (1.0, (False, True)), (0.9, (False, True))])
def test_the_discount_tells_an_end_from_a_cut(zeros, discount, flags):
    env = emulate(Reach, discount=discount)
    env.reset(seed=0)
    for _ in range(3):
        _, rewards, terminals, truncations, infos = env.step(zeros(env))

    assert (terminals.item(), truncations.item()) == flags
    assert rewards.item() == 0.5
    assert infos == ([{"discount": 0.9, "agent_index": 0}] if discount == 0.9 else [])


def test_specs_become_spaces():
    assert space_of_spec("a", Spec((), np.int32, num_values=4)) == spaces.Discrete(4)
    assert space_of_spec("a", Spec((2,), np.float32)) == spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert space_of_spec("a", Spec((2,), np.uint8, minimum=0, maximum=[3, 4])) == spaces.Box(
        np.array([0, 0], np.uint8), np.array([3, 4], np.uint8), (2,), np.uint8
    )
    assert space_of_spec("a", [Spec((1,), np.bool_)]) == spaces.Tuple([spaces.Box(0, 1, (1,), np.bool_)])
    with pytest.raises(TypeError, match="observation/said must hold numbers or bools"):
        space_of_spec("observation", {"said": Spec((), np.str_)})


def test_the_contract_holds(errors):
    env = as_puffer_env(Reach())

    assert isinstance(env, DmEnvPufferEnv)
    assert errors(env) == []
    assert errors(emulate(Reach, 3)) == []


def test_what_is_no_env_is_refused():
    with pytest.raises(TypeError, match="must have reset, step, observation_spec"):
        DmEnvPufferEnv(lambda: 3)


@pytest.mark.parametrize("result", [None, (np.zeros(2), 0.0, False, {})])
def test_what_is_no_time_step_is_refused(zeros, result):
    env = emulate(Reach())
    env.reset()
    env.env.step = lambda action: result

    with pytest.raises(TypeError, match=r"reset and step of Reach must return a dm_env.TimeStep; got"):
        env.step(zeros(env))


def test_what_is_no_spec_is_refused():
    with pytest.raises(TypeError, match=r"observation/camera must have a dm_env spec, .* got None"):
        space_of_spec("observation", {"camera": None})
