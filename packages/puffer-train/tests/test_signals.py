import os
import signal
import threading

import pytest

from puffer_train.signals import StopSignals


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_is_a_wish_and_the_second_an_end(number, code):
    before = signal.getsignal(number)
    with StopSignals() as stop:
        assert stop.exit_code == 0
        os.kill(os.getpid(), number)
        assert stop.received == number
        assert stop.exit_code == code
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)

    assert signal.getsignal(number) is before


def test_handlers_come_back_after_an_error():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError, match="x"), StopSignals():
        raise RuntimeError("x")

    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_installs_no_handlers():
    seen = []

    def run():
        with StopSignals() as stop:
            seen.append((signal.getsignal(signal.SIGINT), stop.received))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert seen == [(before, None)]
