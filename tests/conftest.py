"""What the tests of several packages share: the `puffer` command in a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PUFFER = str(Path(sys.executable).parent / "puffer")
# Threads that wait for each other by spinning make a crawl of any test on a busy machine.
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
Result = subprocess.CompletedProcess[str]


@pytest.fixture
def puffer(tmp_path: Path) -> Callable[..., Result]:
    """Run `puffer` with the given words in the test's folder and wait for its end."""

    def run(*words: str, timeout: float = 110) -> Result:
        return subprocess.run(
            [PUFFER, *words],
            cwd=tmp_path,
            env=ONE_THREAD,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def start_puffer(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `puffer` as the leader of a new process group, which is killed at the end of the test if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [PUFFER, *words],
            cwd=tmp_path,
            env=ONE_THREAD,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def metrics(tmp_path: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Read the metrics of a run, without the fields that are times."""

    def read(run_id: str) -> list[dict[str, Any]]:
        lines = (tmp_path / "runs" / run_id / "metrics.jsonl").read_text().splitlines()
        timed = ("SPS", "uptime", "performance/")
        return [{k: v for k, v in json.loads(line).items() if not k.startswith(timed)} for line in lines]

    return read


@pytest.fixture
def shared_memory() -> Callable[[], set[str]]:
    """List what is in /dev/shm."""
    return lambda: set(os.listdir("/dev/shm"))
