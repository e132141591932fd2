"""Bad input is one clear sentence and exit code 2, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "ocean-brekout"], "ocean-breakout"),
        (["train", "ocean-squared", "--train.learning-rat", "1"], "learning-rate"),
        (["train", "ocean-squared", "--env.siz", "7"], "size"),
        (["train", "ocean-squared", "--env.size", "many"], "size"),
        (["train", "ocean-squared", "--train.learning-rate", "fast"], "learning-rate"),
        (["train", "ocean-squared", "--vec.num-envs", "10", "--vec.backend", "processes", "--vec.num-workers", "4"], "workers"),  # noqa: E501
        (["train", "ocean-squared", "--train.minibatch-size", "100000000"], "minibatch_size"),
        (["eval", "ocean-squared", "--checkpoint", "latest"], "checkpoint"),
        (["eval", "ocean-squared", "--checkpoint", "nowhere.pt"], "nowhere.pt"),
        (["trian", "ocean-squared"], "train"),
        (["train", "gym-GymV21Environment-v0"], "pip install"),
        (["train", "gym-GymV21Environment-v0", "--vec.backend", "processes"], "pip install"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(words: list[str], said: str, puffer: Callable, tmp_path: Path) -> None:
    done = puffer(*words)

    assert done.returncode == 2, done.stderr
    assert said.replace("-", "_") in done.stderr.replace("-", "_")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_another_env_is_refused(puffer: Callable, tmp_path: Path) -> None:
    words = ["--train.total-timesteps", "4096", "--run.dashboard", "none", "--run.run-id", "one"]
    assert puffer("train", "ocean-squared", *words).returncode == 0
    (checkpoint, *_) = (tmp_path / "runs/one/checkpoints").glob("*.pt")

    done = puffer("eval", "ocean-cartpole", "--checkpoint", str(checkpoint))

    assert done.returncode == 2
    assert "ocean-squared" in done.stderr
    assert "Traceback" not in done.stderr
