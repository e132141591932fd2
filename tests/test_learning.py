"""The scores that the shipped settings reach on two cores; minutes each, run by `nox -s learning`."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.learning


@pytest.mark.parametrize(
    ("env_id", "metric", "at_least", "seconds"),
    [
        ("ocean-squared", "perf", 0.95, 60),
        ("ocean-cartpole", "episode_length", 475, 30),
        ("ocean-memory", "perf", 0.95, 60),
        ("ocean-pong", "score", 18, 120),
        ("gym-CartPole-v1", "episode_return", 475, 60),
        ("gym-Acrobot-v1", "episode_return", -100, 60),
        ("gym-Pendulum-v1", "episode_return", -200, 60),
        ("gym-LunarLander-v3", "episode_return", 200, 120),
        ("ocean-target", "score", 15, 120),
        ("ocean-breakout", "score", 700, 180),
    ],
)
def test_the_shipped_settings_reach_the_score_in_time(
    env_id: str, metric: str, at_least: float, seconds: float, puffer: Callable, tmp_path: Path
) -> None:
    if "LunarLander" in env_id:
        pytest.importorskip("Box2D")
    start = time.monotonic()
    done = puffer("train", env_id, "--run.run-id", "r", "--run.dashboard", "none", timeout=1000)
    took = time.monotonic() - start
    assert done.returncode == 0, done.stderr

    lines = [json.loads(line) for line in (tmp_path / "runs/r/metrics.jsonl").read_text().splitlines()]
    inside = [line for line in lines if line["uptime"] <= seconds and f"environment/{metric}" in line]
    best = best_mean(inside, metric)
    print(f"{env_id}: best {metric} within {seconds} s {best:.4g}; the run took {took:.1f} s")
    assert best >= at_least


def best_mean(lines: Iterable[dict[str, Any]], metric: str, num_episodes: int = 100) -> float:
    """Return the best mean over lines that follow each other and hold so many episodes: one lucky line is no score."""
    best = float("-inf")
    window: deque[tuple[float, float]] = deque()
    for line in lines:
        window.append((line["environment/num_episodes"], line[f"environment/{metric}"]))
        total = sum(number for number, _ in window)
        while total - window[0][0] >= num_episodes:
            total -= window.popleft()[0]
        if total >= num_episodes:
            best = max(best, sum(number * mean for number, mean in window) / total)
    return best


def test_memory_needs_memory(puffer: Callable) -> None:
    """Without a recurrent policy half of the digits are right, as by chance."""
    words = ("--policy.rnn", "none", "--run.run-id", "r", "--run.dashboard", "none")
    assert puffer("train", "ocean-memory", *words, timeout=300).returncode == 0

    done = puffer("eval", "ocean-memory", "--checkpoint", "latest", "--episodes", "2048", "--json")
    found = json.loads(done.stdout)

    print(found)
    assert found["episodes"] >= 2048
    assert found["score"]["mean"] < 0.55
