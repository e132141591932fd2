"""A run that fails leaves the last good policy on disk, says where it is, and can go on from it."""

from pathlib import Path

import pytest
import torch

from puffer_train import cli, read_checkpoint, read_metrics
from puffer_train.update import Update

SMALL = ["--vec.num-envs", "4", "--train.horizon", "4", "--train.minibatch-size", "16", "--train.num-iterations", "6"]
SMALL += ["--run.run-id", "one", "--run.dashboard", "none", "--train.cpu-threads", "1"]

pytestmark = pytest.mark.usefixtures("own_folder")


def raise_error(env):
    raise OSError("the simulator has gone")


def spoil_reward(env):
    env.rewards[2] = float("nan")


def fail_in_update(monkeypatch, number):
    run = Update.run

    def diverge(update):
        if update.epoch == number:
            for parameter in update.learner.parameters:
                with torch.no_grad():
                    parameter.fill_(float("nan"))
        return run(update)

    monkeypatch.setattr(Update, "run", diverge)


def last_checkpoint(capsys) -> tuple[dict, Path]:
    errors = capsys.readouterr().err
    assert "Traceback" not in errors.partition("the last good checkpoint: ")[2]
    path = Path(errors.partition("the last good checkpoint: ")[2].strip())
    state, metadata = read_checkpoint(path)
    assert metadata["update"] == state["epoch"]
    assert all(torch.isfinite(value).all() for value in state["policy"].values())
    return state, path


def test_an_update_that_diverges_leaves_the_policy_from_before_it(monkeypatch, capsys):
    with monkeypatch.context() as failing:
        fail_in_update(failing, 3)
        assert cli.main(["train", "test-walk", *SMALL]) == 1

    assert last_checkpoint(capsys)[0]["epoch"] == 3
    assert len(read_metrics("runs/one/metrics.jsonl")) == 3
    assert cli.main(["train", "test-walk", "--resume", "runs/one", "--run.dashboard", "none"]) == 0
    assert [row["epoch"] for row in read_metrics("runs/one/metrics.jsonl")] == [1, 2, 3, 4, 5, 6]


def test_an_environment_that_fails_costs_no_update(at_step, capsys):
    at_step(14, happens=raise_error)  # in the fourth rollout

    assert cli.main(["train", "test-walk", *SMALL]) == 1
    state, _ = last_checkpoint(capsys)

    assert state["epoch"] == 3


def test_after_a_number_that_is_none_the_last_proven_policy_is_kept(at_step, capsys):
    at_step(14, happens=spoil_reward)

    assert cli.main(["train", "test-walk", *SMALL]) == 1
    state, _ = last_checkpoint(capsys)

    assert state["epoch"] == 2


def test_a_checkpoint_of_that_update_is_not_written_twice(at_step, capsys):
    at_step(14, happens=raise_error)

    assert cli.main(["train", "test-walk", *SMALL, "--run.checkpoint-interval", "1"]) == 1
    state, path = last_checkpoint(capsys)

    assert path.name == "update_00000003.pt"
    assert state["vec"] is not None  # the whole state, not only what was learned


def test_before_the_first_update_nothing_is_left(at_step, capsys):
    at_step(2, happens=raise_error)

    assert cli.main(["train", "test-walk", *SMALL]) == 1

    errors = capsys.readouterr().err
    assert "the last good checkpoint" not in errors
    assert errors.endswith("nothing had been learned: runs/one is removed again\n")
    assert not Path("runs/one").exists()
