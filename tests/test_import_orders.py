"""Native environments and torch in one process, whichever is imported first: neither brings a runtime that breaks the
other."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import {first}
import {second}
import numpy as np
import puffer_vector

weights = torch.full((121, 5), 0.01)
for env_id in ("ocean-squared", "ocean-cartpole"):
    vec = puffer_vector.make(env_id, num_envs=128, backend="threads", num_workers=2, seed=1)
    observations, _ = vec.reset()
    for _ in range(1000):
        features = torch.as_tensor(observations, dtype=torch.float32)
        actions = (features @ weights[: features.shape[1]]).argmax(1) % 2
        observations = vec.step(actions.numpy())[0]
    print(env_id, len(vec.episodes()) > 0, bool(np.isfinite(observations).all()))
    vec.close()
"""


@pytest.mark.parametrize(("first", "second"), [("torch", "puffer_ocean"), ("puffer_ocean", "torch")])
def test_envs_step_beside_torch_in_both_orders_of_import(first: str, second: str) -> None:
    program = PROGRAM.format(first=first, second=second)
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["ocean-squared True True", "ocean-cartpole True True"]
