"""The ids `gym-<id>` and what the registry says about them."""

import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import registry

from puffer_emulate.registration import SignatureParameters, env_specs
from puffer_spaces import MissingSuite, env_ids, load_config, make_env, spec


def test_every_single_environment_of_the_registry_has_an_id():
    ids = {env_spec.id for env_spec in env_specs()}

    assert ids == {f"gym-{name}" for name, registered in gymnasium.registry.items() if registered.entry_point}
    assert {"gym-CartPole-v1", "gym-Pendulum-v1"} <= set(env_ids())


def test_an_id_makes_a_batch_of_worlds():
    env = make_env("gym-CartPole-v1", num_envs=4, max_episode_steps=5)
    env.reset(seed=0)
    for _ in range(5):
        truncations = env.step(np.arange(4) % 2)[3]

    assert env.num_agents == 4
    assert env.env_name == "CartPole-v1"
    assert truncations.all()


class Typed(gymnasium.Env):
    def __init__(
        self, render_mode=None, is_rainy: bool = False, chance: float = 0.8, size: "int | None" = None, goal=0
    ): ...


def test_parameters_are_read_from_the_signature():
    gymnasium.register("puffer-test/Typed-v0", entry_point=Typed, max_episode_steps=200)
    try:
        read = {
            parameter.name: (parameter.type, parameter.default)
            for parameter in SignatureParameters("puffer-test/Typed-v0")
        }
    finally:
        del registry["puffer-test/Typed-v0"]

    assert read == {
        "max_episode_steps": (int, 200),
        "is_rainy": (bool, False),
        "chance": (float, 0.8),
        "size": (int, None),
        "goal": (object, 0),
    }


def test_a_registered_default_wins_over_the_signature():
    parameters = {parameter.name: parameter for parameter in spec("gym-FrozenLake8x8-v1").parameters}

    assert parameters["map_name"].default == "8x8"
    assert parameters["desc"].type is object


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sutton_barto_rewards": True}, "Did you mean sutton_barto_reward"),
        ({"sutton_barto_reward": 3}, "sutton_barto_reward must be bool"),
        ({"max_episode_steps": "long"}, "max_episode_steps must be int"),
    ],
)
def test_a_bad_parameter_is_refused_before_the_env_is_made(arguments, message):
    with pytest.raises(TypeError, match=message):
        make_env("gym-CartPole-v1", **arguments)


def test_parameters_reach_the_env():
    env = make_env("gym-CartPole-v1", sutton_barto_reward=True, render_mode="rgb_array")
    env.reset(seed=0)
    _, rewards, *_ = env.step(np.zeros(1, np.int32))

    assert rewards.item() == 0
    assert env.render_mode == "rgb_array"


def test_an_env_that_cannot_be_imported_still_has_an_id():
    gymnasium.register("puffer-test/Absent-v0", entry_point="no_such_module_at_all:Env")
    try:
        assert list(SignatureParameters("puffer-test/Absent-v0")) == []
        assert "gym-puffer-test/Absent-v0" in {env_spec.id for env_spec in env_specs()}
    finally:
        del registry["puffer-test/Absent-v0"]


def test_specs_can_be_sent_to_another_process():
    sent = pickle.loads(pickle.dumps(spec("gym-CartPole-v1")))

    assert [parameter.name for parameter in sent.parameters] == ["max_episode_steps", "sutton_barto_reward"]


@pytest.mark.parametrize("env_id", ["gym-Acrobot-v1", "gym-CartPole-v1", "gym-LunarLander-v3", "gym-Pendulum-v1"])
def test_a_tuned_env_has_a_config_beside_it(env_id):
    assert load_config(env_id).keys() == {"env", "vec", "policy", "train"}
    assert load_config("gym-MountainCar-v0") == {}


def test_an_environment_whose_package_is_missing_says_what_to_install():
    with pytest.raises(MissingSuite, match=r'gym-GymV21Environment-v0 must .*pip install "shimmy\[gym-v21\]"'):
        make_env("gym-GymV21Environment-v0")
