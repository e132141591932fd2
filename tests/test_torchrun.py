"""Training under torchrun, by the command and by a script of the user's, as the README of puffer-train says it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch

from puffer_train import read_checkpoint, read_metrics

ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
TEMPLATE = str(Path(__file__).parents[1] / "scripts" / "train_template.py")
PUFFER = str(Path(sys.executable).parent / "puffer")
SMALL = [
    *("train", "ocean-cartpole", "--train.device", "cpu", "--vec.num-envs", "16", "--train.horizon", "16"),
    *("--train.minibatch-size", "128", "--run.dashboard", "plain"),
]
LONG = [*SMALL, "--train.total-timesteps", "1000000000", "--run.run-id", "long", "--run.checkpoint-interval", "1000000"]

SCRIPT = textwrap.dedent(
    """
    import sys

    import puffer_train
    import puffer_vector
    import torch
    from puffer_policies import default_policy

    ranks = puffer_train.Ranks.join()


    def make_trainer():
        vec = puffer_vector.make("ocean-cartpole", seed=1, **ranks.share(8))
        policy = default_policy(vec, hidden_size=16, recurrent="lstm")
        return puffer_train.PuffeRL(vec, policy, horizon=8, num_iterations=4, device="cpu", seed=3)


    def run(trainer, num_updates):
        for _ in range(num_updates):
            trainer.evaluate()
            trainer.train()
            trainer.mean_and_log()


    torch.manual_seed(ranks.rank)  # weights come from rank 0
    with make_trainer() as trainer:
        run(trainer, 2)
        trainer.save_checkpoint("two.pt")
        run(trainer, 2)
        weights = [parameter.detach().clone() for parameter in trainer.policy.parameters()]
    with make_trainer() as trainer:
        trainer.load_checkpoint("two.pt")
        run(trainer, 2)
        resumed = [parameter.detach().clone() for parameter in trainer.policy.parameters()]
        first = trainer.experience.observations[:, 0].clone()
        torch.save({"weights": weights, "resumed": resumed, "first": first}, f"rank_{ranks.rank}.pt")
        if ranks.rank == 1:
            raise ZeroDivisionError("the second process has had enough")
        run(trainer, 1)
    """
)


@pytest.fixture
def torchrun(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command under torchrun in the test's folder; whatever still runs at the end is killed."""
    started: list[psutil.Popen] = []

    def start(*words: str) -> psutil.Popen:
        process = psutil.Popen(
            [*TORCHRUN, *words],
            cwd=tmp_path,
            env=ENV,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            for child in process.children(recursive=True):
                child.kill()
            process.kill()
            process.communicate()


def ranks_of(launcher: psutil.Popen) -> list[psutil.Process]:
    """Return the launcher's processes in the order of their ranks."""
    processes = [child for child in launcher.children() if "RANK" in child.environ()]
    return sorted(processes, key=lambda process: int(process.environ()["RANK"]))


def wait_for_metrics(folder: Path, launcher: psutil.Popen) -> list[psutil.Process]:
    """Wait until the run has written a row; return its processes."""
    end = time.monotonic() + 90
    metrics = folder / "runs" / "long" / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert launcher.poll() is None, launcher.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
    return ranks_of(launcher)


def test_two_processes_equal_one_and_rank_0_alone_writes(torchrun: Callable, puffer: Callable, tmp_path: Path) -> None:
    words = [*SMALL, "--train.num-iterations", "3"]
    launcher = torchrun(PUFFER, *words, "--run.run-id", "two")
    alone = puffer(*words, "--train.segment-blocks", "2", "--run.run-id", "one")
    output, _ = launcher.communicate(timeout=100)

    assert alone.returncode == 0, alone.stderr
    assert launcher.returncode == 0, output
    assert output.count("checkpoint:") == 1
    one, two = (
        {row["epoch"]: row for row in read_metrics(tmp_path / f"runs/{name}/metrics.jsonl")} for name in ("one", "two")
    )
    assert list(two) == [1, 2, 3]
    for epoch, row in one.items():
        assert two[epoch]["agent_steps"] == row["agent_steps"] == epoch * 256
        for name, value in row.items():
            if name.startswith(("losses/", "environment/")):
                assert two[epoch][name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
    (path,) = (tmp_path / "runs/two/checkpoints").glob("update_*.pt")
    state, _ = read_checkpoint(path)
    expected, _ = read_checkpoint(tmp_path / "runs/one/checkpoints" / path.name)
    for name, value in expected["policy"].items():
        torch.testing.assert_close(state["policy"][name], value, atol=1e-5, rtol=0)
    assert len(state["other_ranks"]) == 1


def test_the_template_trains_in_two_processes_and_goes_on_in_one(torchrun: Callable, tmp_path: Path) -> None:
    launcher = torchrun(TEMPLATE, "--total-timesteps", "4096")
    output, _ = launcher.communicate(timeout=100)

    assert launcher.returncode == 0, output
    assert output.count("checkpoint: checkpoint.pt, of 2 updates") == 1
    assert len(read_checkpoint(tmp_path / "checkpoint.pt")[0]["other_ranks"]) == 1
    words = [sys.executable, TEMPLATE, "--total-timesteps", "8192"]
    alone = subprocess.run(words, cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=100, check=False)
    assert alone.stderr == ""
    assert [line.split()[0] for line in alone.stdout.splitlines() if " steps " in line] == ["6144", "8192"]


def test_a_script_resumes_exactly_and_a_failing_process_ends_the_run(torchrun: Callable, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    launcher = torchrun("train.py")
    output, _ = launcher.communicate(timeout=100)

    assert launcher.returncode != 0
    assert "ZeroDivisionError: the second process has had enough" in output
    mine, theirs = (torch.load(tmp_path / f"rank_{rank}.pt") for rank in (0, 1))
    for parts in zip(mine["weights"], mine["resumed"], theirs["weights"], theirs["resumed"], strict=True):
        assert all(torch.equal(parts[0], part) for part in parts)
    assert not torch.equal(mine["first"], theirs["first"])


def test_a_killed_process_ends_the_run_with_a_sentence_and_a_checkpoint(torchrun: Callable, tmp_path: Path) -> None:
    launcher = torchrun(PUFFER, *LONG)
    processes = wait_for_metrics(tmp_path, launcher)

    processes[1].kill()
    killed_at = time.monotonic()
    output, _ = launcher.communicate(timeout=60)

    assert time.monotonic() - killed_at < 30
    assert launcher.returncode != 0
    assert "puffer (rank 0): all processes of a run must live until its end" in output
    assert "the last good checkpoint: runs/long/checkpoints/update_" in output
    _, alive = psutil.wait_procs(processes, timeout=5)
    assert alive == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_launcher_leaves_a_checkpoint_of_all(number: int, torchrun: Callable, tmp_path: Path) -> None:
    launcher = torchrun(PUFFER, *LONG)
    processes = wait_for_metrics(tmp_path, launcher)

    launcher.send_signal(number)
    output, _ = launcher.communicate(timeout=60)

    assert "go on with: puffer train ocean-cartpole --resume runs/long" in output
    (path,) = (tmp_path / "runs/long/checkpoints").glob("update_*.pt")
    assert len(read_checkpoint(path)[0]["other_ranks"]) == 1
    _, alive = psutil.wait_procs(processes, timeout=5)
    assert alive == []
