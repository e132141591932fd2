"""What happened between two rows of the log."""

from __future__ import annotations

import time
from typing import Any

from puffer_train.metrics import Metrics, interval_row, process_uptime_s


class Interval:
    """Episodes, losses and times since the last row.

    Attributes:
        metrics: Gets infos and episode records.
        seconds: Time spent in each stage.
    """

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.seconds = dict.fromkeys(("env", "policy", "copy", "train"), 0.0)
        self._losses: list[dict[str, float]] = []
        self._began_at = time.perf_counter()
        self._first_agent_steps = 0

    def add_losses(self, losses: dict[str, float]) -> None:
        """Add what an update reported."""
        self._losses.append(losses)

    def finish(self, *, agent_steps: int, epoch: int, learning_rate: float) -> dict[str, float]:
        """Return the row of this interval, and begin the next one."""
        now = time.perf_counter()
        names = self._losses[0] if self._losses else ()
        row = interval_row(
            agent_steps=agent_steps,
            agent_steps_per_second=(agent_steps - self._first_agent_steps) / max(now - self._began_at, 1e-9),
            uptime_s=process_uptime_s(),
            epoch=epoch,
            learning_rate=learning_rate,
            environment=self.metrics.means(),
            losses={name: sum(losses[name] for losses in self._losses) / len(self._losses) for name in names},
            performance=self.seconds,
        )
        self.metrics.clear()
        self._losses.clear()
        for name in self.seconds:
            self.seconds[name] = 0.0
        self._began_at, self._first_agent_steps = now, agent_steps
        return row

    def state_dict(self) -> dict[str, Any]:
        """Return the unfinished interval as plain values; times are not kept."""
        return {
            "metrics": self.metrics.state_dict(),
            "losses": [dict(losses) for losses in self._losses],
            "first_agent_steps": self._first_agent_steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state that `state_dict` returned."""
        self.metrics.load_state_dict(state["metrics"])
        self._losses = [dict(losses) for losses in state["losses"]]
        self._first_agent_steps = int(state["first_agent_steps"])
        self._began_at = time.perf_counter()
