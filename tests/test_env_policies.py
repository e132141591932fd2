"""Networks that environments bring along fit every form of their environment, and the commands use them."""

from __future__ import annotations

import numpy as np
import pytest

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


@pytest.mark.parametrize("memory", ["none", "lstm", "gru"])
def test_command_trains_it_and_evaluates_it(memory: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = ["--vec.num-envs", "16", "--train.horizon", "8", "--train.minibatch-size", "64"]
    options = ["--train.total-timesteps", "256", "--train.cpu-threads", "1", "--policy.rnn", memory]
    assert main(["train", "ocean-breakout", "--run.dashboard", "none", *sizes, *options]) == 0
    evaluate = ["eval", "ocean-breakout", "--checkpoint", "latest", "--episodes", "2", "--json"]
    assert main(evaluate) == 0
