import pytest
import torch

from puffer_train.metrics import read_metrics
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
    for name in ("a/b", "..", "/tmp/x"):
        with pytest.raises(ValueError, match="must be a plain folder name"):
            RunFolder.create(tmp_path, "squared", name)


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
