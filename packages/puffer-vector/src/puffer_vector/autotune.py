"""Measuring an env on this machine: which backend, how many workers, which batch."""

from __future__ import annotations

import itertools
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from puffer_vector.arguments import checked_integer
from puffer_vector.base import VectorEnv
from puffer_vector.cpus import available_cpus
from puffer_vector.make import make

_NUM_RUNS = 3
_NUM_ACTIONS = 16


@dataclass(frozen=True)
class Trial:
    """One way to step an env, and how fast it was.

    Attributes:
        settings: Arguments for `make`.
        steps_per_second: Agent steps per second, median of the runs; 0 if it failed.
        slowest: The slowest run.
        fastest: The fastest run.
        step_us: Microseconds of one batch.
        error: What went wrong, or "".
    """

    settings: dict[str, Any]
    steps_per_second: float
    slowest: float
    fastest: float
    step_us: float
    error: str = ""


def autotune(env: Any, num_envs: int = 64, *, file: TextIO | None = None, **options: Any) -> dict[str, Any]:
    """Measure an env under each backend, worker count and batch size, print a table, and return the best settings.

    Args:
        env: As for `make`.
        num_envs: Worlds.
        file: Where the table goes; None is standard output.
        **options: Other arguments of `measure`: what to try and for how long, and arguments of `make`.

    Returns:
        `backend`, `num_workers` and `batch_size` of the fastest setting: `make(env, num_envs, **settings)`.

    Raises:
        RuntimeError: No setting worked.
    """
    trials = measure(env, num_envs, **options)
    if not trials:
        raise RuntimeError(
            f"num_workers and batch_sizes must have values that divide the envs; none does for num_envs={num_envs}. "
            "Leave them out to try those that do."
        )
    (sys.stdout if file is None else file).write(table(trials) + "\n")
    best = max(trials, key=lambda trial: trial.steps_per_second)
    if best.error:
        raise RuntimeError(
            f"an env must run under some backend to be tuned; none worked. The last error was: {best.error}"
        )
    return best.settings


def measure(
    env: Any,
    num_envs: int = 64,
    *,
    backends: Iterable[str] = ("serial", "threads", "processes"),
    num_workers: Sequence[int] | None = None,
    batch_sizes: Sequence[int] | None = None,
    seconds: float = 0.3,
    **kwargs: Any,
) -> list[Trial]:
    """Measure an env under each backend, worker count and batch size that fit together.

    Args:
        env: As for `make`.
        num_envs: Worlds.
        backends: Backends to try.
        num_workers: Worker counts to try; by default those up to the CPUs of this process.
        batch_sizes: Batch sizes to try; by default all worlds and half of them.
        seconds: Time for each setting, in seconds, beside its start.
        **kwargs: Other arguments of `make`.

    Raises:
        TypeError, ValueError: A size is no positive integer.
    """
    num_envs = checked_integer("num_envs", num_envs, 1)
    num_workers = None if num_workers is None else [checked_integer("num_workers", n, 1) for n in num_workers]
    batch_sizes = None if batch_sizes is None else [checked_integer("batch_sizes", n, 1) for n in batch_sizes]
    trials = []
    for settings in _settings(num_envs, backends, num_workers, batch_sizes):
        try:
            with make(env, num_envs, **settings, **kwargs) as vector:
                trials.append(_trial(vector, settings, seconds))
        except Exception as error:  # one backend may not suit an env; the others are still of interest
            trials.append(Trial(settings, 0.0, 0.0, 0.0, 0.0, f"{type(error).__name__}: {error}".splitlines()[0]))
    return trials


def table(trials: Sequence[Trial]) -> str:
    """Return a table of trials, the fastest marked, below a line about the machine."""
    lines = [machine(), f"{'backend':<10} {'workers':>7} {'batch':>7} {'steps/s':>14} {'spread':>23} {'us/batch':>10}"]
    best = max(trials, key=lambda trial: trial.steps_per_second, default=None)
    for trial in trials:
        settings = trial.settings
        line = f"{settings['backend']:<10} {settings['num_workers'] or 1:>7} {settings['batch_size']:>7} "
        if trial.error:
            line += f"  {trial.error}"
        else:
            spread = f"{trial.slowest:,.0f}..{trial.fastest:,.0f}"
            line += f"{trial.steps_per_second:>14,.0f} {spread:>23} {trial.step_us:>10.1f}"
        lines.append(line + ("  <- fastest" if trial is best and not trial.error else ""))
    return "\n".join(lines)


def machine() -> str:
    """Return a line about this machine, for beside a measurement."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{platform.system()} {platform.machine()}, {available_cpus()} CPUs{load}, Python {platform.python_version()}, "
        "agent steps per second, random actions"
    )


def _settings(
    num_envs: int, backends: Iterable[str], num_workers: Sequence[int] | None, batch_sizes: Sequence[int] | None
) -> list[dict[str, Any]]:
    cpus = available_cpus()
    workers = num_workers or sorted({count for count in (1, 2, cpus // 2, cpus) if 0 < count <= max(cpus, 2)})
    batches = batch_sizes or ([num_envs, num_envs // 2] if num_envs % 2 == 0 else [num_envs])
    settings: list[dict[str, Any]] = []
    for backend in backends:
        if backend == "serial":
            settings.append({"backend": backend, "num_workers": None, "batch_size": num_envs})
            continue
        for count, batch in itertools.product(workers, batches):
            fits = num_envs % count == 0 and batch % (num_envs // count) == 0
            if fits and not (backend == "threads" and count == 1):  # one thread is the calling one: serial
                settings.append({"backend": backend, "num_workers": count, "batch_size": batch})
    return settings


def _trial(vector: VectorEnv, settings: dict[str, Any], seconds: float) -> Trial:
    vector.action_space.seed(0)
    actions = [vector.action_space.sample() for _ in range(_NUM_ACTIONS)]
    vector.async_reset(seed=0)
    vector.recv()
    _run(vector, actions, seconds / (_NUM_RUNS + 1))
    rates = sorted(_run(vector, actions, seconds / (_NUM_RUNS + 1)) for _ in range(_NUM_RUNS))
    median = statistics.median(rates)
    return Trial(settings, median, rates[0], rates[-1], vector.agents_per_batch / median * 1e6)


def _run(vector: VectorEnv, actions: Sequence[Any], seconds: float) -> float:
    """Step for a while and return agent steps per second."""
    batches, start = 0, time.perf_counter()
    end = start + seconds
    while (now := time.perf_counter()) < end or not batches:
        vector.step(actions[batches % len(actions)])
        batches += 1
    vector.episodes()
    return batches * vector.agents_per_batch / (now - start if now > start else seconds)
