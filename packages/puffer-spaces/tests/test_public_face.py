import subprocess
import sys

import puffer_spaces


def test_the_public_names_are_sorted_and_exist():
    assert puffer_spaces.__all__ == sorted(puffer_spaces.__all__)
    assert all(hasattr(puffer_spaces, name) for name in puffer_spaces.__all__)
    assert puffer_spaces.__version__


def test_importing_has_no_effect():
    script = """
import logging, random, signal, sys, threading, warnings
import numpy as np
import gymnasium
def state():
    return (warnings.filters[:], signal.getsignal(signal.SIGINT), threading.active_count(), random.getstate(),
            np.random.get_state()[1].tolist(), logging.getLogger().handlers[:], np.geterr())
before = state()
import puffer_spaces
assert state() == before
assert "torch" not in sys.modules
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
