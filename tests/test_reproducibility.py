"""The same seed gives the same run; so does stopping and going on; so does any backend."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import pufferlib

SHORT = [
    "--vec.num-envs", "16", "--train.horizon", "16", "--train.batch-size", "256", "--train.minibatch-size", "64",
    "--train.cpu-threads", "1", "--run.dashboard", "none",
]  # fmt: skip


def digest(env_id: str, seed: int, **vec: object) -> str:
    """Hash 200 steps of everything that a learner sees."""
    found = hashlib.sha256()
    rng = np.random.default_rng(0)
    with pufferlib.make(env_id, num_envs=64, seed=seed, **vec) as env:
        env.async_reset(seed)
        for _ in range(200):
            observations, rewards, terminals, truncations, _, agent_ids, masks = env.recv()
            for array in (observations, rewards, terminals, truncations, agent_ids, masks):
                found.update(np.ascontiguousarray(array).tobytes())
            ended = terminals | truncations
            found.update(np.ascontiguousarray(env.final_observations[ended]).tobytes())
            space = env.single_action_space
            high = space.nvec if hasattr(space, "nvec") else space.n
            env.send(rng.integers(0, high, (env.num_agents, *space.shape)).astype(np.int32))
        found.update(env.episodes().tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("env_id", ["ocean-squared", "ocean-breakout", "ocean-target", "ocean-cartpole"])
def test_trajectories_are_the_same_on_every_backend(env_id: str) -> None:
    serial = digest(env_id, 7)

    assert digest(env_id, 7, backend="threads", num_workers=2) == serial
    assert digest(env_id, 7, backend="processes", num_workers=2) == serial
    assert digest(env_id, 8) != serial


def test_emulated_trajectories_are_the_same_on_every_backend() -> None:
    serial = digest("gym-CartPole-v1", 7)

    assert digest("gym-CartPole-v1", 7, backend="threads", num_workers=2) == serial
    assert digest("gym-CartPole-v1", 7, backend="processes", num_workers=2) == serial


@pytest.mark.parametrize("env_id", ["ocean-squared", "ocean-memory"])
def test_the_same_seed_gives_the_same_metrics(env_id: str, puffer: Callable, metrics: Callable) -> None:
    for run in ("a", "b"):
        done = puffer("train", env_id, *SHORT, "--train.total-timesteps", "2048", "--run.run-id", run)
        assert done.returncode == 0, done.stderr

    assert metrics("a")
    assert metrics("a") == metrics("b")


@pytest.mark.parametrize("env_id", ["ocean-cartpole", "ocean-memory"])
def test_a_resumed_run_equals_one_that_never_stopped(
    env_id: str, puffer: Callable, metrics: Callable, tmp_path: Path
) -> None:
    total = ["--train.total-timesteps", "2048"]
    whole = puffer("train", env_id, *SHORT, *total, "--run.run-id", "whole")
    first = puffer("train", env_id, *SHORT, *total, "--run.run-id", "parts", "--train.stop-after-updates", "4")
    assert (whole.returncode, first.returncode) == (0, 0), whole.stderr + first.stderr
    assert len(metrics("parts")) < len(metrics("whole"))

    rest = puffer("train", env_id, "--resume", "parts", "--train.stop-after-updates", "1000")
    assert rest.returncode == 0, rest.stderr

    assert metrics("parts") == metrics("whole")
    weights = [newest_weights(tmp_path / "runs" / run) for run in ("whole", "parts")]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def newest_weights(run: Path) -> dict[str, torch.Tensor]:
    """Return every tensor of the newest checkpoint under its path."""
    found: dict[str, torch.Tensor] = {}

    def collect(value: object, path: str) -> None:
        if isinstance(value, torch.Tensor):
            found[path] = value
        elif isinstance(value, dict):
            for key, inner in value.items():
                collect(inner, f"{path}/{key}")

    newest = sorted(path for path in (run / "checkpoints").glob("*.pt") if "best" not in path.name)[-1]
    collect(torch.load(newest, weights_only=True), "")
    return found
