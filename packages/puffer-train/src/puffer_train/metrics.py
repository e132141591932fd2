"""What a run reports: means over finished episodes, one flat dict of finite numbers an interval."""

import math
import os
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from puffer_train.episode_counts import EpisodeCounts

_ORDER = ("step", "world", "agent")
_NO_METRICS = frozenset((*_ORDER, "agent_id", "agent_index", "world_index", "env_id"))
_GYMNASIUM_KEYS = frozenset(
    ("final_obs", "final_observation", "final_info", "terminal_observation", "TimeLimit.truncated")
)
_EPISODE_KEYS = frozenset(("episode_return", "episode_length"))
_IMPORTED_AT = time.monotonic()


class Metrics:
    """Means over the episodes that ended in an interval.

    Episode records are gathered and averaged once, in float64, in the order (step, world, agent): the result does not
    depend on the order in which workers delivered them. Dicts in `infos`, such as PufferLib's dicts of means (their
    weight is their `n`), are averaged as they come; a key that the records have too is not counted again. Environments
    that tell nothing of their episodes get the returns and lengths that `counts` has.

    Args:
        num_agents: Rows of the vector env.

    Attributes:
        counts: Gets each step.
    """

    def __init__(self, num_agents: int = 0) -> None:
        self._records: list[np.ndarray] = []
        self._info_sums: dict[str, list[float]] = {}
        self.counts = EpisodeCounts(num_agents)

    def add_episodes(self, records: np.ndarray) -> None:
        """Add records as `vec.episodes()` returns them (structured array, see `puffer_spaces.episode_dtype`)."""
        if len(records):
            self._records.append(np.array(records))
            self.counts.stop()

    def add_infos(self, infos: Iterable[Mapping[str, Any]]) -> None:
        """Add the info dicts of a step. Nested dicts become `outer/inner`; arrays count by their mean."""
        for info in infos:
            if info:
                weight = plain_number(info.get("n"))
                self._add_info(info, "", weight if weight is not None and weight > 0 else 1.0)
        if not _EPISODE_KEYS.isdisjoint(self._info_sums):
            self.counts.stop()

    def means(self) -> dict[str, float]:
        """Return `environment/<metric>` for everything added since `clear`, and `environment/num_episodes`.

        A metric whose values are all non-finite (`perf` of an env that has none) is left out.
        """
        result: dict[str, float] = {}
        num_episodes = 0.0
        if self._records:
            records = np.concatenate(self._records)
            records = records[np.lexsort([records[name] for name in reversed(_ORDER)])]
            num_episodes = float(len(records))
            for name in records.dtype.names or ():
                values = np.asarray(records[name], dtype=np.float64)
                finite = values[np.isfinite(values)]
                if name not in _ORDER and len(finite):
                    result[f"environment/{name}"] = float(finite.mean())
        for name, (total, weight) in self._info_sums.items():
            if name == "n":
                num_episodes = num_episodes or total
            else:
                result.setdefault(f"environment/{name}", total / weight)
        counted = self.counts.finished()
        if len(counted):
            _, episode_return, episode_length = counted.mean(axis=0).tolist()
            means = {"episode_return": episode_return, "episode_length": episode_length, "score": episode_return}
            result = {**{f"environment/{name}": value for name, value in means.items()}, **result}
            num_episodes = float(len(counted))
        if num_episodes:
            result["environment/num_episodes"] = num_episodes
        return result

    def clear(self) -> None:
        """Begin the next interval."""
        self._records.clear()
        self._info_sums.clear()
        self.counts.clear()

    @classmethod
    def merged(cls, states: Iterable[Mapping[str, Any]]) -> Self:
        """Return the metrics of all processes together, from the `state_dict` of each."""
        merged = cls()
        for state in states:
            part = cls()
            part.load_state_dict(state)
            for records in part._records:
                merged.add_episodes(records)
            merged.counts.add_finished(part.counts.finished())
            for name, (total, weight) in part._info_sums.items():
                merged._add_to_sum(name, total, weight)
            if not part.counts.is_needed:
                merged.counts.stop()
        return merged

    def state_dict(self) -> dict[str, Any]:
        """Return the unfinished interval as plain values, for an exact resume."""
        records = np.concatenate(self._records) if self._records else None
        return {
            "dtype": None if records is None else [list(map(str, field[:2])) for field in records.dtype.descr],
            "records": b"" if records is None else records.tobytes(),
            "info_sums": {name: list(sums) for name, sums in self._info_sums.items()},
            "counts": self.counts.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a state that `state_dict` returned."""
        self.clear()
        if state["dtype"] is not None:
            dtype = np.dtype([(str(name), str(kind)) for name, kind in state["dtype"]])
            self._records.append(np.frombuffer(state["records"], dtype=dtype).copy())
        self._info_sums = {name: list(sums) for name, sums in state["info_sums"].items()}
        self.counts.load_state_dict(state["counts"])

    def _add_info(self, info: Mapping[str, Any], prefix: str, weight: float) -> None:
        for key, value in info.items():
            if key in _NO_METRICS or key in _GYMNASIUM_KEYS:
                continue
            name = f"{prefix}{key}"
            if isinstance(value, Mapping):
                self._add_info(value, f"{name}/", weight)
                continue
            number = _mean_number(value)
            if number is None:
                continue
            self._add_to_sum(name, number if name == "n" else number * weight, weight)

    def _add_to_sum(self, name: str, total: float, weight: float) -> None:
        sums = self._info_sums.setdefault(name, [0.0, 0.0])
        sums[0] += total
        sums[1] += weight


def interval_row(
    *,
    agent_steps: int,
    agent_steps_per_second: float,
    uptime_s: float,
    epoch: int,
    learning_rate: float,
    ent_coef: float,
    environment: Mapping[str, float],
    losses: Mapping[str, float],
    speeds: Mapping[str, float],
    performance: Mapping[str, float],
) -> dict[str, float]:
    """Return one interval as the flat dict that loggers, the dashboard and metrics.jsonl get.

    Args:
        agent_steps: Steps times agents since the start of the run.
        agent_steps_per_second: Speed over this interval.
        uptime_s: Seconds since the process started.
        epoch: Number of updates.
        learning_rate: As used by the last update.
        ent_coef: As used by the last update.
        environment: `Metrics.means()`; its keys already begin with `environment/`.
        losses: Names without prefix.
        speeds: Agent steps per second of parts of the work, names without prefix.
        performance: Seconds a stage, names without prefix.
    """
    return {
        "agent_steps": agent_steps,
        "SPS": agent_steps_per_second,
        "uptime": uptime_s,
        "epoch": epoch,
        "learning_rate": learning_rate,
        "ent_coef": ent_coef,
        **{f"SPS/{name}": value for name, value in speeds.items()},
        **environment,
        **{f"losses/{name}": value for name, value in losses.items()},
        **{f"performance/{name}": value for name, value in performance.items()},
    }


class FiniteFilter:
    """Turns a dict of anything into a dict of finite plain numbers, and warns once about what it leaves out."""

    def __init__(self) -> None:
        self._warned = False

    def __call__(self, row: Mapping[str, Any]) -> dict[str, float]:
        """Return the entries of `row` that are finite numbers (bool, int, float, NumPy and torch scalars)."""
        numbers = {key: plain_number(value) for key, value in row.items()}
        skipped = [key for key, number in numbers.items() if number is None]
        if skipped and not self._warned:
            self._warned = True
            warnings.warn(
                "logged values must be finite numbers; left out: "
                f"{', '.join(f'{key}={row[key]!r}' for key in skipped)}. Later ones are left out without a word.",
                RuntimeWarning,
                stacklevel=2,
            )
        return {key: number for key, number in numbers.items() if number is not None}


def plain_number(value: Any) -> int | float | None:
    """Return a finite plain number for a bool, int, float, NumPy or torch scalar, and None for everything else."""
    if hasattr(value, "item") and getattr(value, "size", 1) != 0 and math.prod(getattr(value, "shape", ())) == 1:
        value = value.item()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return None


def process_uptime_s() -> float:
    """Return the seconds since this process started (where the system does not say: since this module's import)."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic() - _IMPORTED_AT


def _mean_number(value: Any) -> float | None:
    number = plain_number(value)
    if number is None and isinstance(value, np.ndarray | Sequence) and not isinstance(value, str | bytes):
        array = np.asarray(value)
        if array.dtype.kind in "biuf" and array.size:
            mean = float(array.mean(dtype=np.float64))
            return mean if math.isfinite(mean) else None
    return None if number is None else float(number)
