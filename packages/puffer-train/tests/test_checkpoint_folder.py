import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from puffer_train.checkpoint import read_checkpoint, read_metadata
from puffer_train.checkpoint_folder import CheckpointFolder, find_checkpoint
from puffer_train.errors import CheckpointError


def save(folder: Path, env_id: str, update: int, **metadata) -> Path:
    checkpoints = CheckpointFolder(folder / "checkpoints", keep_last=0)
    return checkpoints.save({"x": torch.ones(2)}, {"env_id": env_id, "update": update, **metadata})


def test_a_kill_during_a_write_leaves_a_whole_checkpoint(tmp_path):
    program = textwrap.dedent("""
        import sys, torch
        from puffer_train.checkpoint_folder import CheckpointFolder
        from pathlib import Path
        folder = CheckpointFolder(Path(sys.argv[1]), keep_last=2)
        update = 0
        while True:
            update += 1
            folder.save({"x": torch.full((300_000,), update)}, {"env_id": "e", "update": update, "score": update})
    """)
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) as process:
        deadline = time.monotonic() + 60
        while len(CheckpointFolder(tmp_path).paths()) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)
        process.send_signal(signal.SIGKILL)

    for path in [*CheckpointFolder(tmp_path).paths(), CheckpointFolder(tmp_path).best_path]:
        state, metadata = read_checkpoint(path)
        assert torch.equal(state["x"], torch.full((300_000,), metadata["update"]))
    CheckpointFolder(tmp_path).save({}, {"update": 10**6})
    assert not list(tmp_path.glob(".*"))


def test_the_last_ones_and_the_best_one_are_kept(tmp_path):
    checkpoints = CheckpointFolder(tmp_path, keep_last=2)
    for update, score in enumerate([1.0, 9.0, None, 3.0, float("nan")], start=1):
        checkpoints.save({}, {"update": update, "score": score})

    assert [path.name for path in checkpoints.paths()] == ["update_00000004.pt", "update_00000005.pt"]
    assert read_metadata(checkpoints.best_path)["update"] == 2


def test_one_checkpoint_and_all_checkpoints_can_be_kept(tmp_path):
    for keep_last, kept in ((1, 1), (0, 3)):
        checkpoints = CheckpointFolder(tmp_path / str(keep_last), keep_last)
        for update in range(3):
            checkpoints.save({}, {"update": update})
        assert len(checkpoints.paths()) == kept


def test_latest_is_the_highest_update_of_exactly_that_env(tmp_path):
    nine = save(tmp_path / "a", "squared", 9)
    ten = save(tmp_path / "b", "squared", 10)
    save(tmp_path / "c", "squared-two", 11)
    os.utime(ten, (0, 0))
    os.utime(nine, (10**9, 10**9))

    assert find_checkpoint(tmp_path, "squared") == ten
    assert find_checkpoint(tmp_path, "squared", "a") == nine
    assert find_checkpoint(tmp_path, "squared", str(nine)) == nine
    assert find_checkpoint(tmp_path, "squared", str(tmp_path / "b")) == ten


def test_of_equal_updates_the_later_one_is_latest(tmp_path):
    later = save(tmp_path / "a", "squared", 9, saved_at=200.0)
    save(tmp_path / "b", "squared", 9, saved_at=100.0)

    assert find_checkpoint(tmp_path, "squared") == later


def test_best_is_the_highest_score(tmp_path):
    save(tmp_path / "a", "squared", 9, score=1.0)
    save(tmp_path / "b", "squared", 1, score=2.0)

    assert read_metadata(find_checkpoint(tmp_path, "squared", "best"))["update"] == 1


def test_best_among_checkpoints_without_a_score_is_told_so(tmp_path):
    save(tmp_path / "one", "grid", 5)

    with pytest.raises(CheckpointError, match="the best checkpoint of grid must have a score"):
        find_checkpoint(tmp_path, "grid", "best")


def test_of_a_run_the_newest_whole_checkpoint_is_taken(tmp_path):
    two = save(tmp_path / "run", "squared", 2)
    three = save(tmp_path / "run", "squared", 3)
    three.write_bytes(three.read_bytes()[:100])

    assert find_checkpoint(tmp_path, "squared") == two
    assert find_checkpoint(tmp_path, "squared", "run") == two
    two.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"that can be read; of the newest: .*update_00000003.pt is damaged"):
        find_checkpoint(tmp_path, "squared", "run")


def test_a_run_is_found_before_another_folder_of_its_name(tmp_path, monkeypatch):
    path = save(tmp_path / "runs" / "mine", "squared", 1)
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)

    assert find_checkpoint("runs", "squared", "mine") == path.relative_to(tmp_path)


def test_a_missing_checkpoint_says_what_there_is(tmp_path):
    save(tmp_path / "a", "squared-two", 9)

    with pytest.raises(
        CheckpointError, match=r"a checkpoint of squared must be in .*; there are some of squared-two\."
    ):
        find_checkpoint(tmp_path, "squared")
    with pytest.raises(CheckpointError, match="there is none at all"):
        find_checkpoint(tmp_path / "nowhere", "squared")
    with pytest.raises(CheckpointError, match=r"the checkpoint must be of squared; .* is of squared-two\."):
        find_checkpoint(tmp_path, "squared", "a")
