"""The names that users of PufferLib look for are where they look for them."""

import importlib
import subprocess
import sys

import pytest

import pufferlib


@pytest.mark.parametrize("name", pufferlib.__all__)
def test_every_public_name_is_there(name):
    assert getattr(pufferlib, name) is not None


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("vector", ["make", "Serial", "Multiprocessing"]),
        ("vectorization", ["Serial", "Multiprocessing", "VectorEnv"]),
        ("emulation", ["GymnasiumPufferEnv", "PettingZooPufferEnv"]),
        ("pytorch", ["layer_init", "LSTMWrapper", "unflatten_observations"]),
        ("models", ["Default", "LSTMWrapper"]),
        ("spaces", ["joint_space"]),
        ("ocean", ["Squared", "Breakout"]),
    ],
)
def test_modules_of_pufferlib_hold_their_names(module, names):
    found = importlib.import_module(f"pufferlib.{module}")

    assert [name for name in names if not hasattr(found, name)] == []


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = pufferlib.nothing


def test_torch_is_imported_when_first_needed():
    program = "import sys, pufferlib; before = 'torch' in sys.modules; pufferlib.PuffeRL; sys.exit(before)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_make_shows_the_spaces_of_one_agent_unless_asked_for_a_batch():
    with pufferlib.make("ocean-squared", num_envs=4) as env:
        assert env.observation_space == env.single_observation_space
        assert env.action_space == env.single_action_space
    with pufferlib.make("ocean-squared", num_envs=4, joint_spaces=True) as env:
        assert env.observation_space.shape == (4, 121)


def test_more_than_one_worker_means_processes():
    with pufferlib.make("ocean-squared", num_envs=4, num_workers=2) as env:
        assert env.num_workers == 2
        assert env.reset(seed=1)[0].shape == (4, 121)
