"""How many CPUs this process may use: it decides how many workers are started and whether waiting may spin."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP_ROOT = Path("/sys/fs/cgroup")


def available_cpus() -> int:
    """Return the CPUs of this process: those of its affinity mask, or fewer where a cgroup quota says so."""
    try:
        cpus = len(os.sched_getaffinity(0))
    except AttributeError:  # no affinity on this system
        cpus = os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, cpus if quota is None else min(cpus, math.ceil(quota)))


def _cgroup_quota(root: Path = _CGROUP_ROOT, membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """Return the CPUs that the control group of this process may use, or None without a limit."""
    quotas = [_read_quota(root)]
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            base = root
        elif "cpu" in controllers.split(","):
            base = root / controllers
        else:
            continue
        folder = base
        for part in Path(path).parts[1:]:
            folder = folder / part
            quotas.append(_read_quota(folder))
    limits = [quota for quota in quotas if quota is not None]
    return min(limits) if limits else None


def _read_quota(folder: Path) -> float | None:
    try:
        text = (folder / "cpu.max").read_text().split()
    except OSError:
        try:
            text = [(folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period")]
        except OSError:
            return None
    try:
        quota, period = float(text[0]), float(text[1])
    except (ValueError, IndexError):  # "max": no limit
        return None
    return quota / period if quota > 0 and period > 0 else None
