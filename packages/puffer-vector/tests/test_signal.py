"""Requests and replies between threads, with futexes and with the fallback."""

import threading
import time

import numpy as np
import pytest

from puffer_vector._signal import HAS_FUTEX, Signals
from puffer_vector.memory import private_memory

WAYS = [(spin, futex) for spin in (True, False) for futex in ({HAS_FUTEX, False})]


def serve(signals, slot, log):
    while True:
        command = signals.next_command(slot)
        if command == 9:
            signals.finish(slot, 0)
            return
        log.append(command)
        signals.finish(slot, command + 1, command + 2, command + 3)


@pytest.mark.parametrize(("spin", "use_futex"), WAYS)
@pytest.mark.parametrize("num_slots", [1, 3])
def test_every_request_is_answered_once_and_in_order(num_slots, spin, use_futex):
    memory = private_memory(Signals.nbytes(num_slots))
    caller = Signals(memory, num_slots, spin, use_futex)
    logs = [[] for _ in range(num_slots)]
    threads = [
        threading.Thread(target=serve, args=(Signals(memory, num_slots, spin, use_futex), slot, logs[slot]))
        for slot in range(num_slots)
    ]
    for thread in threads:
        thread.start()
    slots = np.arange(num_slots, dtype=np.int32)
    rng = np.random.default_rng(0)
    for number in range(100):
        for slot in slots:
            caller.post(slot, 10 + number)
        assert caller.wait(slots, int(rng.integers(1, num_slots + 1)), 10.0)
        assert caller.wait(slots, num_slots, 10.0)
        assert [caller.reply(slot) for slot in slots] == [(11 + number, 12 + number, 13 + number)] * num_slots
        if number % 40 == 7:
            time.sleep(0.002)  # long enough for the threads to park
    for slot in slots:
        caller.post(slot, 9)
    for thread in threads:
        thread.join(10)

    assert logs == [list(range(10, 110))] * num_slots


@pytest.mark.parametrize("use_futex", sorted({HAS_FUTEX, False}))
def test_a_wait_ends_when_its_time_is_up(use_futex):
    signals = Signals(private_memory(Signals.nbytes(2)), 2, True, use_futex)
    slots = np.arange(2, dtype=np.int32)

    assert signals.wait(slots, 2, 0.0)
    signals.post(1, 1)
    start = time.monotonic()
    assert not signals.wait(slots, 2, 0.05)
    assert time.monotonic() - start >= 0.05
    assert signals.wait(slots, 1, 0.0)
    assert signals.is_done(0)
    assert not signals.is_done(1)
    assert signals.next_command(0, 0.01) == -1
    assert signals.next_command(1, 0.01) == 1
    signals.forget(1)
    assert signals.wait(slots, 2, 0.0)


def test_impossible_slots_and_memory_are_refused():
    signals = Signals(private_memory(Signals.nbytes(1)), 1)
    with pytest.raises(IndexError, match=r"slot must be in \[0, 1\)"):
        signals.post(1, 1)
    with pytest.raises(ValueError, match="memory must hold"):
        Signals(private_memory(8), 1)


def test_a_parked_caller_and_worker_use_no_cpu():
    memory = private_memory(Signals.nbytes(1))
    caller, worker = Signals(memory, 1), Signals(memory, 1)
    thread = threading.Thread(target=serve, args=(worker, 0, []))
    thread.start()
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.5)
    used = time.process_time() - before
    caller.post(0, 9)
    thread.join(10)

    assert used < 0.1
