"""Parameters that reach the envs inside an adapter, whatever they speak and whatever is wrapped around them."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit, TransformReward

from puffer_emulate import emulate
from puffer_emulate.wrappers import ClipReward, FrameStack


class Tuned:
    """Keeps what it was given until it is reset."""

    speed, next_speed = 1, 1

    def set_parameters(self, *, speed):
        if speed < 0:
            raise ValueError("speed must not be negative")
        self.next_speed = speed

    def reset(self, **arguments):
        self.speed = self.next_speed
        return super().reset(**arguments)


class Outer(gymnasium.Wrapper):
    """A wrapper with parameters of its own."""

    scale = 1

    def set_parameters(self, *, scale=1, **parameters):
        self.scale = scale
        if parameters:
            self.env.set_parameters(**parameters)


class Bare:
    """What all the doubles below share: an env that has nothing but what its adapter asks for."""

    def step(self, action): ...

    def close(self): ...


class OldGym(Bare):
    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self):
        return np.zeros(1, np.float32)


class Spec:
    shape, dtype, num_values = (), np.int32, 2


class TimeSteps(Bare):
    observation_spec = action_spec = Spec

    def reset(self):
        return type("TimeStep", (), {"observation": 0, "reward": None, "discount": None, "last": lambda self: False})()


class Turns(Bare):
    """An AEC env."""

    possible_agents = ["only"]  # noqa: RUF012
    agents, agent_selection = possible_agents, "only"
    terminations = truncations = {"only": False}  # noqa: RUF012
    infos = {"only": {}}  # noqa: RUF012

    def observation_space(self, agent):
        return OldGym.observation_space

    def action_space(self, agent):
        return OldGym.action_space

    def reset(self, seed=None, options=None): ...

    def observe(self, agent):
        return np.zeros(1, np.float32)

    def agent_iter(self): ...


class Converted:
    """A wrapper that keeps its env under a name of its own, as PettingZoo's `aec_to_parallel` does."""

    def __init__(self, env):
        self.aec_env = env
        self.unwrapped = env

    possible_agents = agents = Turns.possible_agents
    observation_space, action_space = Turns.observation_space, Turns.action_space
    step, close = Bare.step, Bare.close

    def reset(self, seed=None, options=None):
        self.aec_env.reset()
        return {"only": np.zeros(1, np.float32)}, {"only": {}}


def tuned(kind, *arguments):
    """Make an env of a kind that has parameters."""
    return type("TunedEnv", (Tuned, kind), {})(*arguments)


@pytest.fixture(params=["gymnasium", "wrapped", "parallel", "turns", "converted", "old gym", "dm_env"])
def makes(request, counter, scripted):
    """Makes a tuned env of each kind; returns (what is emulated, the tuned env inside)."""

    def gymnasium_in(*wrappers):
        inner = env = tuned(counter)
        for wrapper in wrappers:
            env = wrapper(env)
        return env, inner

    def alone(kind):
        env = tuned(kind)
        return env, env

    def converted():
        inner = tuned(Turns)
        return Converted(inner), inner

    return {
        "gymnasium": gymnasium_in,
        "wrapped": lambda: gymnasium_in(
            lambda env: TransformReward(env, abs), lambda env: TimeLimit(env, 9), gymnasium.wrappers.OrderEnforcing
        ),
        "parallel": lambda: alone(scripted),
        "turns": lambda: alone(Turns),
        "converted": converted,
        "old gym": lambda: alone(OldGym),
        "dm_env": lambda: alone(TimeSteps),
    }[request.param]


def test_every_world_is_given_the_parameters_and_applies_them_itself(makes):
    inside = []

    def make():
        env, inner = makes()
        inside.append(inner)
        return env

    env = emulate(make, 3)
    env.reset(seed=0)
    env.set_parameters(speed=4)
    assert [inner.speed for inner in inside] == [1, 1, 1]

    env.reset()
    assert [inner.speed for inner in inside] == [4, 4, 4]


def test_what_gymnasium_made_is_given_them_through_its_wrappers(counter):
    gymnasium.register("test/Tuned-v0", type(tuned(counter)), max_episode_steps=5)
    try:
        env = emulate(gymnasium.make("test/Tuned-v0"), 2)
    finally:
        del gymnasium.registry["test/Tuned-v0"]
    env.set_parameters(speed=2)

    assert [world.unwrapped.next_speed for world in env.envs] == [2, 2]


def test_the_outermost_wrapper_that_takes_parameters_decides(counter):
    env = emulate(lambda: TransformReward(Outer(tuned(counter)), abs))
    env.set_parameters(scale=3, speed=5)

    outer = env.env.env
    assert (outer.scale, outer.unwrapped.next_speed) == (3, 5)


def test_wrappers_of_rows_pass_them_on(counter):
    inner = emulate(lambda: tuned(counter))
    FrameStack(ClipReward(inner), num_frames=2).set_parameters(speed=2)

    assert inner.env.next_speed == 2


def test_an_env_without_the_method_says_what_must_be_done(counter):
    env = emulate(lambda: TimeLimit(counter(), 4), 2)
    env.set_parameters()

    with pytest.raises(
        NotImplementedError,
        match=r"Counter must define set_parameters to change \['speed', 'width'\]; got \S+\.Counter in world 0, and "
        r"neither it nor a wrapper around it does. Define set_parameters\(self, \*\*parameters\) in the env",
    ):
        env.set_parameters(width=3, speed=4)


def test_a_name_that_is_no_method_is_none(counter):
    env = emulate(type("Odd", (counter,), {"set_parameters": {"speed": 1}}))

    with pytest.raises(NotImplementedError, match="Odd must define set_parameters"):
        env.set_parameters(speed=4)


def test_no_world_is_changed_unless_all_can_be(counter):
    made = []

    def make():
        made.append(counter() if made else tuned(counter))
        return made[-1]

    env = emulate(make, 2)
    with pytest.raises(NotImplementedError, match=r"\.Counter in world 1"):
        env.set_parameters(speed=4)

    assert made[0].next_speed == 1


def test_an_error_of_the_env_names_its_world(counter):
    env = emulate(lambda: tuned(counter), 2)
    env.envs[1].set_parameters = {}.__getitem__

    with pytest.raises(TypeError) as caught:
        env.set_parameters(speed=4)
    assert caught.value.__notes__ == ["raised by set_parameters of world 1 of TunedEnv"]
    with pytest.raises(ValueError, match="speed must not be negative"):
        env.set_parameters(speed=-1)


def test_a_closed_env_takes_none(counter):
    env = emulate(lambda: tuned(counter))
    env.close()

    with pytest.raises(RuntimeError, match="must be open"):
        env.set_parameters(speed=4)
