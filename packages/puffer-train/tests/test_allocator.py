"""The allocator keeps what was freed, where it can."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from puffer_train import allocator
from puffer_train.allocator import keep_freed_memory

PAGE_FAULTS = """
import resource, torch
from puffer_train.allocator import keep_freed_memory
torch.set_num_threads(1)
assert keep_freed_memory() and keep_freed_memory()
for _ in range(15):
    torch.ones(9_000_000)  # beyond 32 MiB, where glibc would stop keeping blocks by itself
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    torch.ones(9_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in getattr(os, "confstr_names", {}), reason="only glibc has the setting")
def test_kept_memory_is_not_mapped_again():
    run = subprocess.run([sys.executable, "-c", PAGE_FAULTS], check=True, capture_output=True, text=True)

    assert int(run.stdout) < 1_000  # of 44,000


def test_an_older_glibc_keeps_what_it_can(monkeypatch):
    calls = []

    def mallopt(parameter, value):
        calls.append((parameter, value))
        return int(parameter == allocator._M_TRIM_THRESHOLD or value <= 32 << 20)

    monkeypatch.setattr(allocator, "_is_glibc", lambda: True)
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda _name: SimpleNamespace(mallopt=mallopt))

    assert keep_freed_memory()
    assert (allocator._M_MMAP_THRESHOLD, 32 << 20) in calls


def test_nothing_happens_with_another_c_library(monkeypatch):
    monkeypatch.setattr(allocator, "_is_glibc", lambda: False)

    assert not keep_freed_memory()


@pytest.mark.parametrize("keep", [True, False])
def test_a_trainer_asks_for_it_unless_told_not_to(make_trainer, monkeypatch, keep):
    calls = []
    monkeypatch.setattr("puffer_train.trainer.keep_freed_memory", lambda: calls.append(True))

    make_trainer(keep_freed_memory=keep).close()

    assert bool(calls) == keep
