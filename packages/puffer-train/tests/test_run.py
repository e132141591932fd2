import errno
import shutil
from pathlib import Path

import pytest
import torch

from puffer_train.errors import RunError
from puffer_train.metrics_file import read_metrics
from puffer_train.run import RunFolder, run_folder_of


def test_a_new_run_has_its_own_folder(tmp_path):
    runs = [RunFolder.create(tmp_path / "runs", "gym-ALE/Pong-v5") for _ in range(3)]
    for run in runs:
        run.close()

    assert len({run.path for run in runs}) == 3
    assert all(run.path.parent == tmp_path / "runs" and run.path.name.startswith("gym-ALE-Pong-v5-") for run in runs)


def test_a_named_run_must_be_new_and_plainly_named(tmp_path):
    RunFolder.create(tmp_path, "squared", "mine").close()

    with pytest.raises(ValueError, match=r"mine exists\. Go on with it by --resume mine"):
        RunFolder.create(tmp_path, "squared", "mine")
    for name in ("a/b", "..", "/x", "", " ", "a\nb"):
        with pytest.raises(ValueError, match="must be a plain folder name"):
            RunFolder.create(tmp_path, "squared", name)
    with pytest.raises(ValueError, match="must not be latest, which names a checkpoint of any run"):
        RunFolder.create(tmp_path, "squared", "latest")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_one_process_at_a_time_writes_to_a_run(tmp_path):
    run = RunFolder.create(tmp_path, "squared", "mine")
    run.log({"agent_steps": 10})
    with pytest.raises(ValueError, match="one process at a time can write to a run; another one does"):
        RunFolder.reopen(run.path, update=0, agent_steps=0)
    run.close()

    RunFolder.reopen(run.path, update=0, agent_steps=10).close()
    assert len(read_metrics(run.metrics.path)) == 1


def test_a_run_folder_that_goes_away_ends_the_run(tmp_path):
    run = RunFolder.create(tmp_path, "squared", "mine")
    shutil.rmtree(run.path)

    for write in (
        lambda: run.log({"agent_steps": 1}),
        lambda: run.save_checkpoint({}, {"update": 1}),
        lambda: run.write_config(""),
    ):
        with pytest.raises(RunError, match=r"the run folder must stay where it is; .*mine is gone"):
            write()
    run.close()
    assert not run.path.exists()


def test_what_the_disk_refuses_ends_the_run_with_its_place(tmp_path, monkeypatch):
    run = RunFolder.create(tmp_path, "squared", "mine")

    def fail(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(RunError, match=r"must stay writable; .*mine: No space left on device"):
        run.save_checkpoint({}, {"update": 1})
    run.close()


def test_a_run_that_cannot_begin_leaves_no_folder(tmp_path, monkeypatch):
    def fail(_path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("puffer_train.run.MetricsFile", fail)
    with pytest.raises(OSError, match="No space"):
        RunFolder.create(tmp_path, "squared", "mine")

    assert list(tmp_path.iterdir()) == []


def test_a_reopened_run_forgets_what_came_after_the_checkpoint(tmp_path):
    run = RunFolder.create(tmp_path, "squared", "mine")
    for update in (1, 2, 3):
        run.metrics.log({"agent_steps": 10 * update})
        run.save_checkpoint({"x": torch.ones(1)}, {"env_id": "squared", "update": update})
    run.close()

    run = RunFolder.reopen(run.path, update=2, agent_steps=20)
    run.close()

    assert [row["agent_steps"] for row in read_metrics(run.metrics.path)] == [10, 20]
    assert [path.name for path in run.checkpoints.paths()] == ["update_00000001.pt", "update_00000002.pt"]


def test_a_checkpoint_knows_its_run(tmp_path):
    run = RunFolder.create(tmp_path, "squared", "mine")
    path = run.save_checkpoint({}, {"env_id": "squared", "update": 1})
    run.write_config("x = 1\n")
    run.close()
    copy = tmp_path / "copy.pt"
    copy.write_bytes(path.read_bytes())

    assert run_folder_of(path) == run.path
    assert run_folder_of(copy) is None


def test_the_path_of_a_run_stays_as_it_was_given(tmp_path, monkeypatch):
    run = RunFolder.create(tmp_path / "runs", "squared", "mine")
    name = run.save_checkpoint({}, {"env_id": "squared", "update": 1}).name
    run.write_config("x = 1\n")
    run.close()
    (tmp_path / "link").symlink_to("runs")

    for folder, path, expected in [
        (tmp_path, f"runs/mine/checkpoints/{name}", Path("runs/mine")),
        (tmp_path, f"link/mine/checkpoints/{name}", Path("link/mine")),
        (tmp_path / "runs", f"mine/checkpoints/{name}", Path("mine")),
        (run.path, f"checkpoints/{name}", run.path.resolve()),
        (run.path / "checkpoints", name, run.path.resolve()),
        (run.path / "checkpoints", f"../checkpoints/{name}", run.path.resolve()),
    ]:
        monkeypatch.chdir(folder)
        assert run_folder_of(path) == expected


def test_a_run_that_fails_is_kept_once_it_holds_something(tmp_path):
    def fail(run):
        with run:
            raise RuntimeError("the simulator has gone")

    empty, with_row, with_checkpoint = (RunFolder.create(tmp_path, "squared", name) for name in ("a", "b", "c"))
    with_row.log({"epoch": 1})
    with_checkpoint.save_checkpoint({}, {"env_id": "squared", "update": 0})
    for run in (empty, with_row, with_checkpoint):
        with pytest.raises(RuntimeError, match="gone"):
            fail(run)
    with RunFolder.create(tmp_path, "squared", "d"):
        pass
    gone = RunFolder.create(tmp_path, "squared", "e")
    shutil.rmtree(gone.path)
    with pytest.raises(RuntimeError) as caught:
        fail(gone)
    assert not hasattr(caught.value, "__notes__")  # who knows what was in it

    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "c", "d"]
