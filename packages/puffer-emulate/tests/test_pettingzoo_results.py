"""What a multi-agent environment may not declare or return."""

import numpy as np
import pytest
from gymnasium import spaces

from puffer_emulate import PettingZooPufferEnv, emulate


def test_agents_with_other_spaces_are_refused_by_name(scripted):
    class Different(scripted):
        def observation_space(self, agent):
            return spaces.Box(0, 1, (3 if agent == "a" else 5,))

    with pytest.raises(
        TypeError, match=r"all agents of scripted must have one observation_space; got .*\(3,\).*'a'.*'b'"
    ):
        emulate(Different)


@pytest.mark.parametrize("agents", [[], ["a", "a"], None])
def test_possible_agents_are_named_once(scripted, agents):
    class Named(scripted):
        def __init__(self):
            super().__init__()
            self.possible_agents = agents

    with pytest.raises(TypeError, match=r"possible_agents of scripted must name every agent that may come, once; got"):
        PettingZooPufferEnv(Named)


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        ((None, {}), TypeError, "reset of scripted must return a dict of observations by agent"),
        ((np.zeros((3, 2)), {}), TypeError, "reset of scripted must return a dict of observations by agent"),
        (({}, {}), ValueError, "reset of scripted must leave an agent in the world"),
    ],
)
def test_what_a_reset_may_not_return_is_named(scripted, result, error, words):
    class Empty(scripted):
        def reset(self, seed=None, options=None):
            return result

    with pytest.raises(error, match=words):
        emulate(Empty).reset()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda env, o, *rest: (None, *rest), TypeError, "must return five dicts"),
        (lambda env, o, *rest: (np.zeros((3, 2)), *rest), TypeError, "must return five dicts"),
        (lambda env, o, r, *rest: (o, [1.0] * 3, *rest), TypeError, "must return five dicts"),
        (lambda env, o, r, te, tr, i: (o, r, False, False, i), TypeError, "must return five dicts"),
        (lambda env, o, r, te, tr, i: (o, r, te, tr, None), TypeError, "must return five dicts"),
        (lambda env, *values: delattr(env, "agents") or values, TypeError, "must return five dicts .* keep env.agents"),
        (lambda env, o, r, te, tr, i: (o, r, {"a": np.ones(2)}, tr, i), ValueError, "termination of .* agent 'a'"),
        (lambda env, o, r, te, tr, i: (o, r, te, {"b": np.nan}, i), ValueError, "truncation of .* agent 'b'.* got nan"),
        (lambda env, o, r, te, tr, i: (o, r, te, tr, {"b": [1]}), TypeError, "info of .* agent 'b'.* must be a dict"),
        (lambda env, o, *rest: ({**o, "c": None}, *rest), TypeError, "agent 'c': the value must hold numbers"),
    ],
)
def test_what_a_step_may_not_return_is_named(scripted, change, error, words):
    class Returns(scripted):
        def step(self, actions):
            return change(self, *super().step(actions))

    env = emulate(Returns)
    env.reset()

    with pytest.raises(error, match=words):
        env.step([0, 0, 0])


def test_bad_results_name_the_world_and_the_agent(scripted, zeros):
    class Short(scripted):
        def step(self, actions):
            return {}, {}, {}, {}

    class Misshapen(scripted):
        def observe(self, agent):
            return np.zeros(3 if agent == "b" and self.step_count else 2, np.float32)

    class Vanished(scripted):
        def reset(self, seed=None, options=None):
            return {}, {}

    def first_step(kind):
        env = emulate(kind)
        env.reset(seed=0)
        env.step(zeros(env))

    with pytest.raises(TypeError, match=r"step of scripted must return five dicts .* got a tuple of 4"):
        first_step(Short)
    with pytest.raises(ValueError, match=r"observation of scripted, world 0, agent 'b': .*shape \(2,\)"):
        first_step(Misshapen)
    with pytest.raises(ValueError, match=r"reset of scripted must leave an agent in the world"):
        first_step(Vanished)


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (np.zeros(2), "it must be a dict with 'action_mask'.* got ndarray"),
        ({"observation": np.zeros(2)}, r"it must be a dict with 'action_mask'.* got keys \['observation'\]"),
        ({"action_mask": [1, 1, 1]}, r"it must be a dict with 'action_mask'.* got keys \['action_mask'\]"),
        ({"observation": np.zeros(2), "action_mask": [1, 1]}, r"action_mask must be 3 numbers.* got \[1, 1\]"),
        ({"observation": np.zeros(2), "action_mask": None}, "action_mask must be 3 numbers"),
        ({"observation": np.zeros(2), "action_mask": [np.nan, 1, 1]}, "action_mask must be 3 numbers"),
    ],
)
def test_action_masks_that_do_not_fit_are_refused(scripted, observation, words):
    class Masked(scripted):
        def observation_space(self, agent):
            space = {"observation": spaces.Box(-1, 1, (2,)), "action_mask": spaces.Box(0, 1, (3,), np.int8)}
            return spaces.Dict(space)

        def action_space(self, agent):
            return spaces.Discrete(3)

        def observe(self, agent):
            return observation

    with pytest.raises((TypeError, ValueError), match=rf"observation of scripted, world 0, agent 'a': {words}"):
        emulate(Masked).reset()
