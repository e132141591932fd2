"""What an env in the short form may not be, observe, return or be given."""

import numpy as np
import pytest
from gymnasium import spaces

from puffer_spaces import PufferEnv, as_puffer_env


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (
            (np.zeros(2), np.zeros(2), False, {}),
            ValueError,
            r"reward of Wrong must be one number; got an array of shape \(2,\)",
        ),
        ((np.zeros(2), 0.0, np.zeros(2, bool), {}), ValueError, r"done must be one number"),
        ((np.zeros(3), 0.0, False, {}), ValueError, r"must have shape \(2,\); got shape \(3,\)"),
        ((np.zeros(2), 0.0), TypeError, r"step of Wrong must return .*got tuple of length 2"),
        (None, TypeError, r"step of Wrong must return"),
    ],
)
def test_what_a_step_may_not_return_is_named(count, result, error, words):
    class Wrong(count):
        def step(self, action):
            return result

    env = as_puffer_env(Wrong)
    env.reset()

    with pytest.raises(error, match=words):
        env.step(env.actions)


@pytest.mark.parametrize(
    ("observation", "error", "words"),
    [
        (None, TypeError, "observation of Made: the value must hold numbers; got NoneType"),
        (np.zeros(3), ValueError, r"observation of Made: the value must have shape \(2,\); got shape \(3,\)"),
        ((np.zeros(2), None), ValueError, "observation of Made: the value must be an array of shape"),
    ],
)
def test_what_an_env_may_not_observe_is_named(make_count, observation, error, words):
    broken = []
    env = make_count(reset=lambda self: observation if broken else np.zeros(2))
    broken.append(True)

    with pytest.raises(error, match=words):
        env.reset()


@pytest.mark.parametrize("info", [[], [1], 3, "score", True])
def test_infos_that_are_no_dicts_are_refused(make_count, info):
    env = make_count(step=lambda self, action: (np.zeros(2), 1.0, False, info))
    env.reset()

    with pytest.raises(TypeError, match="info of Made must be a dict; got"):
        env.step([0])


def test_values_in_the_wrong_order_are_refused(make_count):
    env = make_count(step=lambda self, action: (np.zeros(2), 1.0, {}, False, True))
    env.reset()

    with pytest.raises(TypeError, match="info of Made must be a dict; got True"):
        env.step([0])


def test_a_step_before_the_first_reset_is_refused(count):
    env = as_puffer_env(count)

    with pytest.raises(RuntimeError, match="Count must be reset before its first step"):
        env.step(env.actions)


def test_float_actions_for_choices_are_refused(count):
    env = as_puffer_env(count)
    env.reset()

    with pytest.raises(TypeError, match="float64"):
        env.step(np.array([0.7]))
    assert env.step([2])[0].tolist() == [[1, 1]]
    with pytest.raises(ValueError, match=r"must be in \[0, 3\]; got 4"):
        env.step(np.array([4]))


@pytest.mark.parametrize(
    ("actions", "error", "words"),
    [
        ([4], ValueError, r"action of Count: the value must be in \[0, 3\]; got 4"),
        ([-1], ValueError, r"action of Count: the value must be in \[0, 3\]; got -1"),
        ([2**40], ValueError, "actions of Count must fit int32"),
        ([0, 1], ValueError, r"actions of Count must have shape \(1,\); got \(2,\)"),
        (None, ValueError, r"actions of Count must have shape \(1,\); got \(\)"),
    ],
)
def test_actions_that_the_env_does_not_have_are_refused(count, actions, error, words):
    env = as_puffer_env(count)
    env.reset()

    with pytest.raises(error, match=words):
        env.step(actions)
    assert env.env.actions_seen == []


def test_a_closed_env_is_neither_reset_nor_stepped(count):
    env = as_puffer_env(count)
    env.reset()
    env.close()
    env.close()

    for call in (env.reset, lambda: env.step([0])):
        with pytest.raises(RuntimeError, match=r"Count must be open; close\(\) was called. Make a new one"):
            call()


def test_what_an_env_raises_comes_through(make_count):
    def fail(self, *arguments):
        raise RuntimeError("boom")

    for name, call in (("step", lambda env: env.step([0])), ("close", lambda env: env.close())):
        env = make_count(**{name: fail})
        env.reset()
        with pytest.raises(RuntimeError, match="boom"):
            call(env)


def test_an_incomplete_short_form_is_explained(count):
    class NoAction(PufferEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = self.make_space(3)

    class Several(count):
        num_agents = 3

    class Late(count):
        def __init__(self):
            PufferEnv.__init__(self)
            self.single_observation_space = self.make_space(3)
            self.single_action_space = self.make_discrete(2)

    with pytest.raises(TypeError, match=r"NoAction must assign action_space after super\(\).__init__\(buf\)"):
        as_puffer_env(NoAction)
    with pytest.raises(TypeError, match="Several must have one agent in the short form; got num_agents=3"):
        as_puffer_env(Several)
    assert as_puffer_env(Late).single_action_space == spaces.Discrete(2)


def test_a_missing_call_of_the_base_constructor_is_explained(count):
    class Forgot(count):
        def __init__(self):
            self.single_observation_space = spaces.Box(0, 1, (2,))
            self.single_action_space = spaces.Discrete(2)

    with pytest.raises(TypeError, match=r"Forgot must call super\(\).__init__\(buf\)"):
        as_puffer_env(Forgot)


class Several(PufferEnv):
    """Dicts per agent, with spaces assigned after super().__init__()."""

    def __init__(self, buf=None):
        super().__init__(buf)
        self.single_observation_space = spaces.Box(0, 1, (2,))
        self.single_action_space = spaces.Discrete(2)
        self.num_agents = 2

    def reset(self):
        return {"a": np.zeros(2), "b": np.zeros(2)}


class Uncounted(Several):
    def __init__(self, buf=None):
        super().__init__(buf)
        del self.num_agents


class Rewarded(Uncounted):
    def reset(self):
        return np.zeros(2)

    def step(self, action):
        return self.reset(), {"a": 1.0, "b": 1.0}, {"a": False, "b": False}, {}


@pytest.mark.parametrize(
    ("cls", "got"), [(Several, "num_agents=2"), (Uncounted, "a dict of observations"), (Rewarded, "a dict of rewards")]
)
def test_the_short_form_is_for_one_agent(cls, got):
    def play():
        env = as_puffer_env(cls)
        env.reset()
        env.step([0])

    with pytest.raises(TypeError, match=f"{cls.__name__} must have one agent in the short form; got {got}. For more"):
        play()
