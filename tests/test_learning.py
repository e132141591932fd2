"""The scores that the shipped settings reach on two cores; minutes each, run by `nox -s learning`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.learning


@pytest.mark.parametrize(
    ("env_id", "metric", "at_least", "seconds"),
    [
        ("ocean-squared", "perf", 0.95, 60),
        ("ocean-cartpole", "episode_length", 475, 30),
        ("ocean-memory", "perf", 0.95, 60),
        ("ocean-pong", "score", 18, 120),
        ("gym-CartPole-v1", "episode_return", 475, 120),
        ("ocean-breakout", "score", 200, 300),
    ],
)
def test_the_shipped_settings_reach_the_score_in_time(
    env_id: str, metric: str, at_least: float, seconds: float, puffer: Callable, tmp_path: Path
) -> None:
    start = time.monotonic()
    done = puffer("train", env_id, "--run.run-id", "r", "--run.dashboard", "none", timeout=1000)
    took = time.monotonic() - start
    assert done.returncode == 0, done.stderr

    lines = [json.loads(line) for line in (tmp_path / "runs/r/metrics.jsonl").read_text().splitlines()]
    inside = [line for line in lines if line["uptime"] <= seconds and f"environment/{metric}" in line]
    best = max(line[f"environment/{metric}"] for line in inside)
    print(f"{env_id}: best {metric} within {seconds} s {best:.4g}; the run took {took:.1f} s")
    assert best >= at_least


def test_memory_needs_memory(puffer: Callable) -> None:
    """Without a recurrent policy half of the digits are right, as by chance."""
    words = ("--policy.rnn", "none", "--run.run-id", "r", "--run.dashboard", "none")
    assert puffer("train", "ocean-memory", *words, timeout=300).returncode == 0

    done = puffer("eval", "ocean-memory", "--checkpoint", "latest", "--episodes", "2048", "--json")
    found = json.loads(done.stdout)

    print(found)
    assert found["episodes"] >= 2048
    assert found["score"]["mean"] < 0.55
