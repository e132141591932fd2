"""One call for any environment."""

import pickle
import subprocess
import sys

import gymnasium
import pytest
from gymnasium.wrappers import FlattenObservation

from puffer_emulate import GymnasiumPufferEnv, creator_of, emulate
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


@pytest.mark.parametrize("env", [cartpole, lambda: cartpole(max_episode_steps=9), cartpole(max_episode_steps=9)])
def test_a_creator_makes_any_number_of_worlds(env):
    creator = creator_of(env)

    assert creator(num_envs=3).num_envs == 3
    assert creator().env is not creator().env
    if env is not cartpole:
        assert creator().env.spec.max_episode_steps == 9


def test_a_recipe_can_be_sent_to_another_process():
    sent = pickle.loads(pickle.dumps(creator_of(FlattenObservation(cartpole()))))

    assert isinstance(sent(2).env, FlattenObservation)
    assert sent.__name__ == "CartPole-v1"


def test_a_wrapper_that_does_not_record_its_arguments_cannot_be_made_again():
    class Silent(gymnasium.Wrapper):
        pass

    with pytest.raises(ValueError, match=r"CartPole-v1 must be made again from its spec, but: .*Silent"):
        emulate(Silent(cartpole()), 2)


def test_what_is_no_environment_is_no_recipe():
    with pytest.raises(TypeError, match="must be an environment or what makes one"):
        creator_of(3)
