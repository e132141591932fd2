import threading
import warnings

import pytest

from puffer_train.loggers import GuardedLogger, Logger, NoLogger


class Recorder:
    def __init__(self, fail_at: int | None = None, fail_in_close: bool = False) -> None:
        self.rows: list = []
        self.is_closed = False
        self.fail_at = fail_at
        self.fail_in_close = fail_in_close

    def log(self, row):
        if row["agent_steps"] == self.fail_at:
            raise ConnectionError("network lost")
        self.rows.append(dict(row))

    def close(self):
        if self.fail_in_close:
            raise ConnectionError("network lost")
        self.is_closed = True


def test_rows_arrive_in_order_and_close_delivers_the_rest():
    recorder = Recorder()
    logger = GuardedLogger(recorder)
    for step in range(20):
        logger.log({"agent_steps": step})
    logger.close()
    logger.close()

    assert [row["agent_steps"] for row in recorder.rows] == list(range(20))
    assert recorder.is_closed


def test_values_that_are_no_finite_numbers_stay_out():
    recorder = Recorder()
    logger = GuardedLogger(recorder)
    with pytest.warns(RuntimeWarning, match="left out: loss=nan"):
        logger.log({"agent_steps": 1, "loss": float("nan")})
    logger.close()

    assert recorder.rows == [{"agent_steps": 1}]


@pytest.mark.filterwarnings("ignore:Recorder failed")
def test_a_logger_that_fails_is_left_alone():
    recorder = Recorder(fail_at=3)
    logger = GuardedLogger(recorder)
    for step in range(6):
        logger.log({"agent_steps": step})
    logger.close()

    assert [row["agent_steps"] for row in recorder.rows] == [0, 1, 2]
    assert not recorder.is_closed


def test_a_failure_is_told_once():
    logger = GuardedLogger(Recorder(fail_in_close=True))

    with pytest.warns(
        RuntimeWarning, match="Recorder failed and gets no more rows: ConnectionError: network lost"
    ) as told:
        logger.close()

    assert len(told) == 1


def test_a_logger_that_hangs_does_not_hold_up_the_run():
    release = threading.Event()

    class Slow(Recorder):
        def log(self, row):
            release.wait(60)

    logger = GuardedLogger(Slow(), close_timeout_s=0.05, max_waiting=2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(10):
            logger.log({"agent_steps": step})
        logger.close()
    release.set()

    assert [str(warning.message).partition(" rows are lost")[0] for warning in told] == [
        "Slow is too slow;",
        "Slow did not finish within 0.05 s; its last",
    ]


def test_loggers_have_the_protocol():
    for logger in (NoLogger(), Recorder(), GuardedLogger(NoLogger())):
        assert isinstance(logger, Logger)
        logger.log({"agent_steps": 1})
        logger.close()
