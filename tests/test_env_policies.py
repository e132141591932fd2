"""Networks that environments bring along fit every form of their environment, and the commands use them."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

import puffer_train
import puffer_vector
from puffer_spaces import load_object, spec
from puffer_train.cli import main

FORMS = [
    ("ocean-breakout", {}),
    ("ocean-breakout", {"continuous": True}),
    ("ocean-breakout", {"brick_rows": 1, "brick_cols": 3}),
    ("ocean-target", {}),
    ("ocean-target", {"num_agents": 1, "num_goals": 1}),
    ("ocean-target", {"num_agents": 3, "num_goals": 7}),
]


@pytest.mark.parametrize(("env_id", "form"), FORMS, ids=str)
def test_network_fits_every_form_of_its_environment(env_id: str, form: dict) -> None:
    with puffer_vector.make(env_id, num_envs=4, seed=1, **form) as vec:
        policy = load_object(spec(env_id).policy)(vec, hidden_size=16)
        steps = 8 * vec.num_agents
        trainer = puffer_train.PuffeRL(vec, policy, horizon=8, batch_size=steps, minibatch_size=steps, cpu_threads=1)
        trainer.evaluate()
        assert np.isfinite(list(trainer.train().values())).all()


@pytest.mark.parametrize("env_id", ["ocean-breakout", "ocean-target"])
@pytest.mark.parametrize("hidden_size", [1, 7])
def test_any_hidden_size_and_number_of_rows_will_do(env_id: str, hidden_size: int) -> None:
    with puffer_vector.make(env_id, num_envs=1, seed=1) as vec:
        policy = load_object(spec(env_id).policy)(vec, hidden_size=hidden_size)
        for rows in (0, 1, 5):
            observations = torch.zeros(rows, *vec.single_observation_space.shape)
            parameters, values, _ = policy.forward_eval(observations, ())
            assert parameters.shape == (rows, policy.action_head.num_parameters)
            assert values.shape == (rows,)


def test_breakout_s_network_reads_the_ball_before_the_bricks() -> None:
    with puffer_vector.make("ocean-breakout", num_envs=1, seed=1) as vec:
        encoder = load_object(spec("ocean-breakout").policy)(vec).encoder
        vec.reset(seed=1)
        observations, *_ = vec.step(np.ones(1, np.int32))  # the bricks' part is zero until one breaks
    first_brick = encoder.ball.input_size

    assert (observations[0, first_brick:] == 0).all()
    assert observations[0, first_brick - 1] == 1  # the paddle's width
    assert encoder.wall.input_size == 6 * 18


def test_the_order_of_goals_and_of_other_agents_means_nothing_to_target_s_network() -> None:
    with puffer_vector.make("ocean-target", num_envs=4, seed=1) as vec:
        encoder = load_object(spec("ocean-target").policy)(vec).encoder
        observations = torch.from_numpy(vec.reset(seed=1)[0].copy())
    ways = observations[:, : 2 * (4 + 7)].unflatten(1, (-1, 2))
    mixed = torch.cat([ways[:, [3, 1, 0, 2]], ways[:, 4:].flip(1)], 1).flatten(1)
    exchanged = torch.cat([ways[:, [0, 1, 2, 4]], ways[:, [3, 5, 6, 7, 8, 9, 10]]], 1).flatten(1)
    own = observations[:, 2 * (4 + 7) :]

    features = encoder(observations)
    torch.testing.assert_close(encoder(torch.cat([mixed, own], 1)), features, atol=1e-5, rtol=0)
    assert (encoder(torch.cat([exchanged, own], 1)) - features).abs().max() > 1e-3


def test_target_s_network_sees_ways_from_the_agent_s_heading() -> None:
    """The env moves an agent by (cosine, sine) of its heading: a goal on that way is ahead and not aside."""
    module = importlib.import_module("puffer_ocean.envs.target.policy")
    angles = torch.rand(100, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 7 - 3.5
    distances = torch.linspace(0.01, 3, 100, dtype=torch.float64)[:, None]
    for turn in (0.0, 1.0, 2.5):
        ways = torch.stack([distances * (angles + turn).cos(), distances * (angles + turn).sin()], 2)
        ahead, aside, distance, nearness = module._seen_from(ways, angles.cos(), angles.sin()).unbind(2)

        torch.testing.assert_close(torch.atan2(aside, ahead), torch.full_like(aside, turn))
        torch.testing.assert_close(distance, distances, atol=1e-3, rtol=1e-3)
        assert (nearness[1:] < nearness[:-1]).all()


@pytest.mark.parametrize("memory", ["none", "lstm", "gru"])
def test_command_trains_it_and_evaluates_it(memory: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = ["--vec.num-envs", "16", "--train.horizon", "8", "--train.minibatch-size", "64"]
    options = ["--train.total-timesteps", "256", "--train.cpu-threads", "1", "--policy.rnn", memory]
    assert main(["train", "ocean-breakout", "--run.dashboard", "none", *sizes, *options]) == 0
    evaluate = ["eval", "ocean-breakout", "--checkpoint", "latest", "--episodes", "2", "--json"]
    assert main(evaluate) == 0
