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


def log_rows(logger: GuardedLogger, num_rows: int) -> None:
    for step in range(num_rows):
        logger.log({"agent_steps": step})


def test_rows_arrive_in_order_and_close_delivers_the_rest():
    recorder = Recorder()
    logger = GuardedLogger(recorder)
    log_rows(logger, 20)
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


def test_a_quick_logger_has_each_row_at_once():
    recorder = Recorder()
    logger = GuardedLogger(recorder)
    for step in range(20):
        logger.log({"agent_steps": step})
        assert recorder.rows[-1] == {"agent_steps": step}
    logger.close()


def test_a_failing_row_is_told_and_the_others_arrive():
    recorder = Recorder(fail_at=3)
    logger = GuardedLogger(recorder)
    with pytest.warns(RuntimeWarning, match="Recorder failed and lost a row: ConnectionError: network lost") as told:
        log_rows(logger, 6)
    logger.close()

    assert len(told) == 1
    assert [row["agent_steps"] for row in recorder.rows] == [0, 1, 2, 4, 5]
    assert recorder.is_closed


@pytest.mark.parametrize("num_rows", [0, 1])
def test_a_failure_of_close_is_told(num_rows):
    logger = GuardedLogger(Recorder(fail_in_close=True))
    log_rows(logger, num_rows)

    with pytest.warns(RuntimeWarning, match="Recorder failed"):
        logger.close()


def test_a_logger_that_hangs_does_not_hold_up_the_run():
    release = threading.Event()

    class Slow(Recorder):
        def log(self, row):
            release.wait(60)

    logger = GuardedLogger(Slow(), patience_s=0.01, close_timeout_s=0.05, max_waiting=2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        log_rows(logger, 10)
        logger.close()
    release.set()

    assert [str(warning.message).partition(";")[0] for warning in told] == [
        "Slow is too slow",
        "Slow did not finish within 0.05 s",
    ]


def test_loggers_have_the_protocol():
    for logger in (NoLogger(), Recorder(), GuardedLogger(NoLogger())):
        assert isinstance(logger, Logger)
        logger.log({"agent_steps": 1})
        logger.close()
