"""What the tests of several packages share: the `puffer` command in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PUFFER = str(Path(sys.executable).parent / "puffer")
Result = subprocess.CompletedProcess[str]


@pytest.fixture
def puffer(tmp_path: Path) -> Callable[..., Result]:
    """Run `puffer` with the given words in the test's folder and wait for its end."""

    def run(*words: str, timeout: float = 110) -> Result:
        return subprocess.run(
            [PUFFER, *words], cwd=tmp_path, capture_output=True, text=True, timeout=timeout, check=False
        )

    return run


@pytest.fixture
def start_puffer(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start `puffer` as the leader of a new process group."""

    def start(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [PUFFER, *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


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
