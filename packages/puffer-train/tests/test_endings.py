"""Runs that do not end by themselves: signals, a folder or a reader that goes away, a number that is none."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from puffer_train import cli, read_metrics
from puffer_train.checkpoint import read_metadata
from puffer_train.checkpoint_folder import CheckpointFolder

SMALL = ["--vec.num-envs", "4", "--train.horizon", "8", "--policy.hidden-size", "8", "--run.run-id", "one"]

pytestmark = pytest.mark.usefixtures("own_folder")


def has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_run_whose_folder_goes_away_ends_with_one_sentence(at_step, capsys):
    at_step(12, happens=lambda _env: shutil.rmtree("runs"))

    assert cli.main(["train", "test-walk", *SMALL, "--run.dashboard", "none"]) == 1
    assert capsys.readouterr().err.startswith("puffer: the run folder must stay where it is; runs/one")
    assert not Path("runs").exists()


def test_a_run_that_nobody_listens_to_any_more_leaves_a_checkpoint(monkeypatch):
    words = ["train", "test-walk", *SMALL, "--run.dashboard", "plain", "--run.dashboard-interval-s", "0"]
    read, write = os.pipe()
    with os.fdopen(write, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        os.close(read)

        def message(_dashboard, _text):
            """The first line still finds a reader."""

        monkeypatch.setattr("puffer_train.dashboard.PlainDashboard.message", message)
        assert cli.main(words) == 141

    assert Path("runs/one/checkpoints/update_00000001.pt").exists()


def test_a_reward_that_is_no_number_ends_the_run_with_its_place(at_step, capsys):
    def spoil(env):
        env.rewards[2] = float("nan")

    at_step(12, happens=spoil)

    assert cli.main(["train", "test-walk", *SMALL]) == 1
    assert "puffer: rewards must be finite; got nan in env 2" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_finishes_the_update_and_leaves_a_checkpoint(number, code, at_step, capsys):
    before = signal.getsignal(number)
    at_step(12, happens=lambda _env: os.kill(os.getpid(), number))

    assert cli.main(["train", "test-walk", *SMALL, "--run.dashboard", "plain"]) == code

    assert capsys.readouterr().out.endswith("\ngo on with: puffer train test-walk --resume runs/one\n")
    assert read_metrics("runs/one/metrics.jsonl")[-1]["epoch"] == 2
    assert read_metadata(CheckpointFolder(Path("runs/one/checkpoints")).paths()[-1])["update"] == 2
    assert signal.getsignal(number) is before


def test_a_second_signal_ends_at_once(at_step):
    at_step(3, 4, happens=lambda _env: os.kill(os.getpid(), signal.SIGINT))

    assert cli.main(["train", "test-walk", *SMALL]) == 130

    assert not Path("runs/one").exists()  # nothing had been learned


def test_an_environment_that_ends_the_process_costs_no_update(at_step, capsys):
    def leave(_env):
        sys.exit(3)

    at_step(14, happens=leave)  # in the second rollout

    assert cli.main(["train", "test-walk", *SMALL]) == 1

    errors = capsys.readouterr().err
    assert errors.startswith("puffer: an environment or a policy must not end the process; one called sys.exit(3).")
    assert CheckpointFolder(Path("runs/one/checkpoints")).paths()[-1].name == "update_00000001.pt"


def test_an_interrupt_that_no_signal_brought_is_no_success(at_step):
    def interrupt(_env):
        raise KeyboardInterrupt

    at_step(3, happens=interrupt)

    assert cli.main(["train", "test-walk", *SMALL]) == 130


def test_ctrl_c_leaves_no_process_and_no_shared_memory():
    Path("slow_walk.py").write_text(
        textwrap.dedent("""
            import time
            from puffer_spaces import PufferEnv

            class Slow(PufferEnv):
                def __init__(self, buf=None, seed=None):
                    super().__init__(buf, seed)
                    self.observation_space = self.make_space(1)
                    self.action_space = self.make_discrete(2)

                def reset(self, seed=None):
                    return [0.0], {}

                def step(self, action):
                    time.sleep(0.001)
                    return [1.0], float(action), True, False, {}
        """)
    )
    memory_before = set(Path("/dev/shm").iterdir())
    words = ["--vec.backend", "processes", "--vec.num-workers", "2", *SMALL]
    command = [sys.executable, "-m", "puffer_train.cli", "train", "slow_walk:Slow", *words]
    with subprocess.Popen(command, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        deadline = time.monotonic() + 90
        metrics = Path("runs/one/metrics.jsonl")
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 130

    assert CheckpointFolder(Path("runs/one/checkpoints")).paths()
    assert set(Path("/dev/shm").iterdir()) <= memory_before
    deadline = time.monotonic() + 5  # a fork server notices by its pipe that its parent has gone
    while has_processes(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not has_processes(process.pid)
