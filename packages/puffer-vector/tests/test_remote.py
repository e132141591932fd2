"""The Ray backend on this machine, beside results and faults, which are tested together with those of the others."""

import sys

import numpy as np
import pytest

import puffer_vector


def test_a_snapshot_is_exact(running_ray, envs):
    with puffer_vector.make(envs.Walk, 2, "ray", 2) as vector:
        vector.reset(seed=0)
        vector.step(np.ones((2, 2), int))
        state = vector.get_state()
        expected = [vector.step(np.ones((2, 2), int))[0].copy() for _ in range(20)]
        vector.set_state(state)
        found = [vector.step(np.ones((2, 2), int))[0].copy() for _ in range(20)]
    assert np.array_equal(expected, found)


def test_without_ray_the_install_line_is_named(envs, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "puffer_vector.remote", raising=False)
    with pytest.raises(ImportError, match=r'pip install "puffer-vector\[ray\]"'):
        puffer_vector.make(envs.Walk, 2, "ray")
