import io

import pytest
from rich.console import Console

from puffer_train.dashboard import (
    LiveDashboard,
    NoDashboard,
    PlainDashboard,
    dashboard_picture,
    make_dashboard,
    plain_line,
    short_number,
)

ROW = {
    "agent_steps": 500_000,
    "SPS": 100_000.0,
    "uptime": 7.0,
    "epoch": 4,
    "learning_rate": 3e-4,
    "environment/score": 12.5,
    "environment/bricks": 3.0,
    "losses/policy_loss": 0.01,
    "losses/importance": 1.0,
    "SPS/rollout": 250_000.0,
    "performance/env": 3.0,
    "performance/train": 1.0,
}


def make(kind: str, stream, rank: int = 0):
    return make_dashboard(
        kind, title="t", total_agent_steps=10**6, place="runs/x", interval_s=0, rank=rank, stream=stream
    )


def test_a_plain_line_says_progress_speed_and_time_left():
    assert plain_line(ROW, 10**6) == " 50.0%  500k steps  100k/s  0:00:05 left  score 12.5  policy_loss 0.01"


@pytest.mark.parametrize("kind", ["auto", "plain"])
def test_an_output_that_is_no_terminal_gets_plain_lines(kind):
    stream = io.StringIO()
    dashboard = make(kind, stream)
    dashboard.update(ROW)
    dashboard.message("checkpoint written")
    dashboard.close()

    assert isinstance(dashboard, PlainDashboard)
    assert stream.getvalue().splitlines() == [plain_line(ROW, 10**6), "checkpoint written"]


def test_the_last_interval_is_shown_even_if_it_came_soon():
    stream = io.StringIO()
    dashboard = PlainDashboard(10**6, 1000.0, stream)
    for steps in (1, 2, 3):
        dashboard.update({**ROW, "agent_steps": steps})
    dashboard.close()
    dashboard.close()

    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["1", "3"]


@pytest.mark.parametrize(("kind", "rank"), [("none", 0), ("rich", 1), ("plain", 1), ("auto", 3)])
def test_nothing_is_shown_for_none_and_for_other_ranks(kind, rank):
    stream = io.StringIO()
    dashboard = make(kind, stream, rank)
    dashboard.update(ROW)
    dashboard.message("x")
    dashboard.close()

    assert isinstance(dashboard, NoDashboard)
    assert stream.getvalue() == ""


def test_the_table_shows_everything_of_an_interval():
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(dashboard_picture("puffer train x", ROW, 10**6, "runs/x", "a message"))
    text = console.export_text()

    for word in (
        "puffer train x",
        "50.0%",
        "0:00:05",
        "100k",
        "score",
        "12.5",
        "bricks",
        "policy_loss",
        "rollout",
        "250k",
        "75 % of the time in the environments, 25 % in the update.",
    ):
        assert word in text
    assert "runs/x" in text
    assert "a message" in text


def test_the_live_table_keeps_metrics_that_an_interval_lacks():
    stream = io.StringIO()
    dashboard = LiveDashboard("t", 10**6, "runs/x", 0.0, Console(file=stream, force_terminal=True, width=120))
    dashboard.update(ROW)
    dashboard.update({"agent_steps": 600_000, "SPS": 1.0})
    dashboard.message("stopping")
    dashboard.close()
    dashboard.close()

    last = stream.getvalue().rpartition("60.0%")[2]
    assert "12.5" in last
    assert "stopping" in last


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.01234, "0.0123"), (999, "999"), (1500, "1.5k"), (2.5e6, "2.5M"), (-3e9, "-3B")]
)
def test_short_numbers(value, text):
    assert short_number(value) == text
