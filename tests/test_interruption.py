"""Ctrl-C and kill -9 lose nothing and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

LONG = ["--train.total-timesteps", "1000000000", "--run.dashboard", "none", "--run.run-id", "long"]


def wait_for(path: Path, pattern: str, process: subprocess.Popen[str], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not list(path.glob(pattern)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"no {pattern} after {seconds} s"
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    "vec", [[], ["--vec.backend", "processes", "--vec.num-workers", "2"]], ids=["serial", "processes"]
)
def test_a_stop_signal_leaves_a_checkpoint_and_nothing_else(
    number: int,
    code: int,
    vec: list[str],
    start_puffer: Callable,
    puffer: Callable,
    tmp_path: Path,
    shared_memory: Callable,
) -> None:
    before = shared_memory()
    process = start_puffer("train", "ocean-squared", *LONG, *vec)
    wait_for(tmp_path, "runs/long/metrics.jsonl", process)
    group = psutil.Process(process.pid).children(recursive=True)

    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=30)

    assert process.returncode == code, errors
    assert list((tmp_path / "runs/long/checkpoints").glob("*.pt"))
    _, alive = psutil.wait_procs(group, timeout=5)
    assert alive == []
    assert shared_memory() == before
    done = puffer("eval", "ocean-squared", "--checkpoint", "latest", "--episodes", "8", "--json")
    assert done.returncode == 0, done.stderr


def test_kill_during_checkpoints_leaves_a_loadable_one(
    start_puffer: Callable, puffer: Callable, tmp_path: Path
) -> None:
    process = start_puffer("train", "ocean-squared", *LONG, "--run.checkpoint-interval", "1")
    wait_for(tmp_path, "runs/long/checkpoints/*.pt", process)
    time.sleep(1.5)
    process.kill()
    process.communicate()

    done = puffer("eval", "ocean-squared", "--checkpoint", "latest", "--episodes", "8", "--json")

    assert done.returncode == 0, done.stderr
