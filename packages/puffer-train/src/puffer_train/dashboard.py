"""What a person sees while a run goes on: a live table in a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Mapping
from typing import Protocol, TextIO

from rich import box
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from puffer_train.timing import where_time_goes

_PLAIN_LINES_PER_REFRESH = 0.1
_PLAIN_METRICS = ("score", "episode_return", "episode_length")
_PLAIN_LOSSES = ("policy_loss", "value_loss", "entropy")
# What is always near 1 or constant is in metrics.jsonl; the table has to fit 24 lines.
_HIDDEN_LOSSES = ("importance", "num_minibatches", "old_approx_kl")
_FIRST_METRICS = ("score", "perf", "episode_return", "episode_length", "num_episodes")


class Dashboard(Protocol):
    """Shows rows of metrics; never writes to a file."""

    def update(self, row: Mapping[str, float]) -> None:
        """Show an interval, unless the last one was shown a moment ago."""

    def message(self, text: str) -> None:
        """Show a sentence at once."""

    def close(self) -> None:
        """Show the last interval and stop; a second call does nothing."""


class NoDashboard:
    """Shows nothing: for `--run.dashboard none` and for ranks other than 0."""

    def update(self, row: Mapping[str, float]) -> None:
        """Show nothing."""

    def message(self, text: str) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Do nothing."""


class PlainDashboard:
    """One line an interval, at most one in ten refresh times.

    Args:
        total_agent_steps: Where the run ends.
        interval_s: Seconds between two refreshes of the live table; lines come ten times as rarely.
        stream: Where lines go.
    """

    def __init__(self, total_agent_steps: int, interval_s: float, stream: TextIO) -> None:
        self._total = total_agent_steps
        self._interval_s = interval_s / _PLAIN_LINES_PER_REFRESH
        self._stream = stream
        self._shown_at = -float("inf")
        self._waiting: dict[str, float] | None = None

    def update(self, row: Mapping[str, float]) -> None:
        """Print the interval's line if the last line is old enough."""
        self._waiting = dict(row)
        if time.monotonic() - self._shown_at >= self._interval_s:
            self._print_waiting()

    def message(self, text: str) -> None:
        """Print a sentence, after the last interval if that has not been."""
        self._print_waiting()
        self._print(text)

    def close(self) -> None:
        """Print the last interval if it has not been."""
        self._print_waiting()

    def _print_waiting(self) -> None:
        if self._waiting is not None:
            self._print(plain_line(self._waiting, self._total))
            self._waiting = None
            self._shown_at = time.monotonic()

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class LiveDashboard:
    """A table that is drawn over itself.

    Args:
        title: What runs.
        total_agent_steps: Where the run ends.
        place: Where the run's folder is.
        interval_s: Seconds between two refreshes.
        console: The terminal.
    """

    def __init__(self, title: str, total_agent_steps: int, place: str, interval_s: float, console: Console) -> None:
        self._title = title
        self._total = total_agent_steps
        self._place = place
        self._interval_s = interval_s
        self._row: dict[str, float] = {}
        self._message = ""
        self._shown_at = -float("inf")
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    def update(self, row: Mapping[str, float]) -> None:
        """Draw the interval if the picture is old enough. Metrics that it lacks keep their last value."""
        self._row.update(row)
        if time.monotonic() - self._shown_at >= self._interval_s:
            self._draw()

    def message(self, text: str) -> None:
        """Draw a sentence below the table."""
        self._message = text
        self._draw()

    def close(self) -> None:
        """Draw the last interval and leave the picture on the terminal."""
        if self._live.is_started:
            self._draw()
            self._live.stop()

    def _draw(self) -> None:
        self._shown_at = time.monotonic()
        picture = dashboard_picture(self._title, self._row, self._total, self._place, self._message)
        self._live.update(picture, refresh=True)


def make_dashboard(
    kind: str,
    *,
    title: str,
    total_agent_steps: int,
    place: str,
    interval_s: float,
    rank: int = 0,
    stream: TextIO | None = None,
) -> Dashboard:
    """Make the dashboard for an output.

    Args:
        kind: "rich", "plain", "none", or "auto": rich where the output is a terminal, else plain.
        title: What runs.
        total_agent_steps: Where the run ends.
        place: Where the run's folder is.
        interval_s: Seconds between two refreshes.
        rank: Process of a distributed run; only rank 0 shows anything.
        stream: The output; None is `sys.stdout`.
    """
    stream = sys.stdout if stream is None else stream
    if kind == "none" or rank != 0:
        return NoDashboard()
    console = Console(file=stream)
    if kind == "rich" or (kind == "auto" and console.is_terminal and not console.is_dumb_terminal):
        return LiveDashboard(title, total_agent_steps, place, interval_s, console)
    return PlainDashboard(total_agent_steps, interval_s, stream)


def plain_line(row: Mapping[str, float], total_agent_steps: int) -> str:
    """Return an interval in one short line: progress, speed, time left, score, three losses."""
    steps, speed = row.get("agent_steps", 0), row.get("SPS", 0)
    parts = [
        f"{_percent(steps, total_agent_steps):5.1f}%",
        f"{short_number(steps)} steps",
        f"{short_number(speed)}/s",
        f"{_time_left(steps, total_agent_steps, speed)} left",
    ]
    metrics = _with_prefix(row, "environment/")
    parts += [f"{name} {short_number(metrics[name])}" for name in _PLAIN_METRICS if name in metrics][:1]
    losses = _with_prefix(row, "losses/")
    parts += [f"{name} {short_number(losses[name])}" for name in _PLAIN_LOSSES if name in losses]
    return "  ".join(parts)


def dashboard_picture(
    title: str, row: Mapping[str, float], total_agent_steps: int, place: str, message: str
) -> RenderableType:
    """Return the whole live table."""
    steps, speed = row.get("agent_steps", 0), row.get("SPS", 0)
    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column()
    head.add_column(ratio=1)
    head.add_column(justify="right")
    head.add_row(
        Text(title, style="bold cyan"),
        ProgressBar(total=max(total_agent_steps, 1), completed=min(steps, total_agent_steps)),
        f"{_percent(steps, total_agent_steps):.1f}%  {_time_left(steps, total_agent_steps, speed)} left",
    )
    progress = {
        "steps": f"{short_number(steps)} of {short_number(total_agent_steps)}",
        "steps/s": short_number(speed),
        "uptime": _duration(row.get("uptime", 0)),
        "updates": short_number(row.get("epoch", 0)),
        "learning rate": f"{row.get('learning_rate', 0):.3g}",
    }
    metrics = _with_prefix(row, "environment/")
    ordered = [name for name in _FIRST_METRICS if name in metrics]
    ordered += sorted(name for name in metrics if name not in _FIRST_METRICS)
    losses = {name: value for name, value in _with_prefix(row, "losses/").items() if name not in _HIDDEN_LOSSES}
    speeds = _with_prefix(row, "SPS/")
    tables = [
        _table("progress", progress),
        _table("episodes", {name: short_number(metrics[name]) for name in ordered}),
        _table("losses", {name: short_number(value) for name, value in losses.items()}),
        _table("steps/s of parts", {name: short_number(value) for name, value in speeds.items()}),
    ]
    foot = Text(place, style="dim")
    columns = Columns([table for table in tables if table.row_count])
    return Group(head, columns, Text(where_time_goes(row)), Text(message), foot)


def short_number(value: float) -> str:
    """Return a number in few characters: 1234567 is `1.23M`."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}" if abs(value) < 1000 * size else f"{value / size:.0f}{unit}"
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.3g}"


def _table(title: str, entries: Mapping[str, str]) -> Table:
    table = Table(title=title, box=box.ROUNDED, show_header=False, title_justify="left", title_style="bold")
    table.add_column(style="cyan")
    table.add_column(justify="right", min_width=8)
    for name, text in entries.items():
        table.add_row(name, text)
    return table


def _with_prefix(row: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {key.removeprefix(prefix): value for key, value in row.items() if key.startswith(prefix)}


def _percent(steps: float, total: float) -> float:
    """Return how much is done; the last update may go past the end."""
    return min(100.0, 100 * steps / max(total, 1))


def _time_left(steps: float, total: float, speed: float) -> str:
    return _duration(max(total - steps, 0) / speed) if speed > 0 else "?"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
