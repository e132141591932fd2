"""What Gymnasium environments are made of: objects, classes and functions."""

import gymnasium
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation

from puffer_emulate import GymnasiumPufferEnv, emulate
from puffer_spaces import MissingAdapter, as_puffer_env


def test_an_object_is_made_again_from_its_spec():
    original = gymnasium.make("CartPole-v1", max_episode_steps=7)
    env = emulate(FlattenObservation(original), 3)
    env.reset(seed=0)

    assert env.num_envs == 3
    assert len({id(made.unwrapped) for made in env.envs}) == 3
    assert [made.spec.max_episode_steps for made in env.envs] == [7, 7, 7]


def test_an_object_without_a_spec_cannot_be_more_than_one_world(counter):
    with pytest.raises(ValueError, match="must have a spec to be made again; Counter has none"):
        emulate(counter(), 2)

    assert emulate(counter()).num_envs == 1


def test_a_creator_that_returns_one_object_is_refused(counter):
    cached = counter()

    with pytest.raises(ValueError, match="got one Counter for worlds 0 and 1"):
        emulate(lambda: cached, 2)


def test_worlds_with_other_spaces_are_refused(counter):
    sizes = iter([1, 1, 2])

    def create():
        env = counter()
        env.observation_space = spaces.Box(0, 1, (next(sizes),))
        return env

    with pytest.raises(ValueError, match=r"one observation_space; got .* in world 2"):
        emulate(create, 3)


def test_envs_made_before_a_failure_are_closed(counter):
    made = []

    def create():
        if len(made) == 2:
            raise RuntimeError("no third")
        made.append(counter())
        return made[-1]

    with pytest.raises(RuntimeError, match="no third"):
        emulate(create, 3)
    assert [env.num_closed for env in made] == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "got neither"),
        ({"env": gymnasium.Env(), "env_creator": gymnasium.Env}, "got both"),
        ({"env_creator": gymnasium.Env, "num_envs": 0}, "num_envs must be an integer of at least 1; got 0"),
        ({"env_creator": "CartPole-v1"}, "env_creator must be a class or function"),
        ({"env": gymnasium.Env(), "env_kwargs": {"length": 2}}, "go to a creator"),
        ({"env_creator": lambda: 3}, "must be a gymnasium.Env; got builtins.int"),
        ({"env_creator": lambda: gymnasium.make_vec("CartPole-v1", 2)}, "got the vector env"),
        ({"env_creator": gymnasium.Env}, "observation_space of Env must be a gymnasium.spaces space; got None"),
    ],
)
def test_a_bad_argument_gives_one_clear_sentence(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        GymnasiumPufferEnv(**arguments)


def test_extras_in_one_string_are_refused(counter):
    with pytest.raises(TypeError, match="episode extras must be a sequence of names; got 'wins'"):
        GymnasiumPufferEnv(counter, episode_extras="wins")


def test_the_constructor_takes_pufferlibs_arguments_by_position(counter, zeros):
    env = GymnasiumPufferEnv(None, counter, (), {"length": 2}, None, 0)
    env.reset()
    env.step(zeros(env))

    assert env.step(zeros(env))[2].item()


def test_as_puffer_env_takes_objects_classes_and_functions(counter):
    for thing in (counter(), counter, lambda: counter()):
        env = as_puffer_env(thing)
        assert isinstance(env, GymnasiumPufferEnv)
        assert env.emulated

    class NoEnv:
        def reset(self): ...
        def step(self, action): ...

    with pytest.raises(MissingAdapter):
        as_puffer_env(NoEnv())
