"""One call for any environment."""

import subprocess
import sys

import gymnasium
import pytest

from puffer_emulate import GymnasiumPufferEnv, emulate
from puffer_spaces import check_env


def cartpole(**kwargs):
    return gymnasium.make("CartPole-v1", **kwargs)


def test_a_creator_gets_its_arguments():
    env = emulate(cartpole, 2, max_episode_steps=3)

    assert isinstance(env, GymnasiumPufferEnv)
    assert [made.spec.max_episode_steps for made in env.envs] == [3, 3]


def test_without_num_envs_there_is_one_world():
    assert emulate(cartpole).num_agents == 1
    assert emulate(cartpole()).num_agents == 1


def test_a_puffer_env_stays_what_it_is():
    env = emulate(cartpole, 2)

    assert emulate(env) is env
    with pytest.raises(TypeError, match="needs no emulation; got one of 2 worlds"):
        emulate(env, 4)


def test_an_id_is_refused_with_the_way_to_make_it():
    with pytest.raises(TypeError, match=r'make_env\("gym-CartPole-v1"\)'):
        emulate("CartPole-v1")


def test_arguments_for_an_object_are_refused():
    with pytest.raises(TypeError, match="go to a creator"):
        emulate(cartpole(), sutton_barto_reward=True)


@pytest.mark.parametrize("num_envs", [None, 3])
def test_the_contract_holds(num_envs):
    assert check_env(emulate(cartpole, num_envs)) == []


def test_importing_the_package_brings_neither_torch_nor_a_suite():
    code = (
        "import sys, puffer_emulate; print([m for m in ('torch', 'pettingzoo', 'gym', 'pygame') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"
