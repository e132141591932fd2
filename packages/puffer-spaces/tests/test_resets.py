import numpy as np
import pytest
from gymnasium import spaces

import puffer_spaces.resets
from puffer_spaces import PufferEnv, reset_env, world_seed
from puffer_spaces.resets import list_of_infos


class Recorder(PufferEnv):
    def __init__(self):
        self.single_observation_space = spaces.Box(0, 1, (1,))
        self.single_action_space = spaces.Discrete(2)
        self.num_agents = 2
        super().__init__()

    def record(self, **arguments):
        self.seen = arguments
        return self.observations, []


class Full(Recorder):
    def reset(self, seed=None, first_world=0, options=None):
        return self.record(seed=seed, first_world=first_world, options=options)


class SeedOnly(Recorder):
    def reset(self, seed=0):
        return self.record(seed=seed)


class SeedNeeded(Recorder):
    def reset(self, seed):
        return self.record(seed=seed)


class Nothing(Recorder):
    def reset(self):
        return self.record()


class Anything(Recorder):
    def reset(self, **kwargs):
        return self.record(**kwargs)


@pytest.mark.parametrize(
    ("cls", "arguments", "seen"),
    [
        (Full, {"seed": 7, "first_world": 3}, {"seed": 7, "first_world": 3, "options": None}),
        (Full, {"first_world": 3}, {"seed": None, "first_world": 3, "options": None}),
        (Full, {"seed": 7, "options": {"level": 3}}, {"seed": 7, "first_world": 0, "options": {"level": 3}}),
        (SeedOnly, {"seed": 7, "first_world": 3}, {"seed": world_seed(7, 3)}),
        (SeedOnly, {}, {"seed": 0}),
        (SeedNeeded, {"seed": 7}, {"seed": world_seed(7, 0)}),
        (SeedNeeded, {}, {"seed": None}),
        (Nothing, {"seed": 7, "first_world": 3}, {}),
        (Anything, {"seed": 7, "first_world": 3, "options": {}}, {"seed": world_seed(7, 3), "options": {}}),
        (Anything, {}, {}),
    ],
)
def test_reset_gets_what_its_signature_takes(cls, arguments, seen):
    env = cls()

    observations, infos = reset_env(env, **arguments)

    assert observations is env.observations
    assert infos == []
    assert env.seen == seen


def test_options_that_cannot_be_passed_are_refused():
    with pytest.raises(TypeError, match=r"reset of SeedOnly must take options to be given any; got \{'level': 3\}"):
        reset_env(SeedOnly(), options={"level": 3})


def test_rewards_and_flags_of_the_last_step_are_cleared():
    env = Full()
    for array in (env.rewards, env.terminals, env.truncations):
        array[:] = 1

    reset_env(env)

    assert not any(array.any() for array in (env.rewards, env.terminals, env.truncations))


def test_signatures_are_inspected_once_per_class(monkeypatch):
    class Fresh(Full):
        pass

    calls = []
    inspected = puffer_spaces.resets._inspect
    monkeypatch.setattr(puffer_spaces.resets, "_inspect", lambda cls: calls.append(cls) or inspected(cls))
    for _ in range(3):
        reset_env(Fresh(), 1)

    assert calls == [Fresh]


@pytest.mark.parametrize(
    ("returned", "infos"),
    [([], []), ({}, []), (None, []), ({"a": 1}, [{"a": 1}]), ([{"a": 1}, {}], [{"a": 1}]), (({"a": 1},), [{"a": 1}])],
)
def test_infos_become_a_list_of_dicts(returned, infos):
    class Informs(Recorder):
        def reset(self, seed=None):
            return self.observations, returned

    assert reset_env(Informs())[1] == infos
    assert list_of_infos(returned) == infos


def test_bare_observations_are_tolerated():
    class Bare(Recorder):
        def reset(self, seed=None):
            return self.observations

    env = Bare()

    assert reset_env(env) == (env.observations, [])


def test_the_short_form_must_go_through_the_door_first():
    class Short(PufferEnv):
        def reset(self):
            return np.zeros(1)

    with pytest.raises(
        TypeError, match=r"must be a PufferEnv with its buffers bound; got Short. Use as_puffer_env\(env\)"
    ):
        reset_env(Short())


@pytest.mark.parametrize("infos", [5, "ab", [1], {1, 2}])
def test_infos_of_another_kind_are_refused(infos):
    with pytest.raises(TypeError, match="infos must be a list of dicts; got"):
        list_of_infos(infos)


@pytest.mark.parametrize("env", [None, object()])
def test_what_is_no_puffer_env_is_not_reset(env):
    with pytest.raises(TypeError, match="env must be a PufferEnv with its buffers bound; got"):
        reset_env(env)
