"""What happened between two rows of the log."""

from __future__ import annotations

import time
from typing import Any

from puffer_train.distributed import Ranks
from puffer_train.metrics import Metrics, interval_row, process_uptime_s
from puffer_train.timing import STAGES, speeds, where_time_goes, with_other


class Interval:
    """Episodes, losses and times since the last row.

    Args:
        num_agents: Rows of the vector env.
        ranks: The processes whose episodes count together.

    Attributes:
        metrics: Gets infos, episode records and steps.
        seconds: Time spent in each stage.
        total_seconds: The same of the whole run in this process, with what is in no stage as `other`.
    """

    def __init__(self, num_agents: int = 0, ranks: Ranks | None = None) -> None:
        self.metrics = Metrics(num_agents)
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.total_seconds = dict.fromkeys((*STAGES, "other"), 0.0)
        self._ranks = Ranks() if ranks is None else ranks
        self._losses: list[dict[str, float]] = []
        self._began_at = time.perf_counter()
        self._first_agent_steps = 0

    def add_losses(self, losses: dict[str, float]) -> None:
        """Add what an update reported."""
        self._losses.append(losses)

    def finish(self, *, agent_steps: int, epoch: int, learning_rate: float, ent_coef: float) -> dict[str, float]:
        """Return the row of this interval, and begin the next one. All processes of a run have to call it."""
        now = time.perf_counter()
        elapsed_s = max(now - self._began_at, 1e-9)
        new_steps = agent_steps - self._first_agent_steps
        seconds = with_other(self.seconds, elapsed_s)
        names = self._losses[0] if self._losses else ()
        row = interval_row(
            agent_steps=agent_steps,
            agent_steps_per_second=new_steps / elapsed_s,
            uptime_s=process_uptime_s(),
            epoch=epoch,
            learning_rate=learning_rate,
            ent_coef=ent_coef,
            environment=self._environment(),
            losses={name: sum(losses[name] for losses in self._losses) / len(self._losses) for name in names},
            speeds=speeds(new_steps, self.seconds),
            performance=seconds,
        )
        self.metrics.clear()
        self._losses.clear()
        for name, value in seconds.items():
            self.total_seconds[name] += value
        self.seconds.update(dict.fromkeys(STAGES, 0.0))
        self._began_at, self._first_agent_steps = now, agent_steps
        return row

    def where_time_went(self) -> str:
        """Return one sentence on the time of the run up to the last `finish`, in this process."""
        return where_time_goes({f"performance/{name}": value for name, value in self.total_seconds.items()})

    def _environment(self) -> dict[str, float]:
        """Return means over the episodes of all processes."""
        if self._ranks.world_size == 1:
            return self.metrics.means()
        return Metrics.merged(self._ranks.all(self.metrics.state_dict())).means()

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
