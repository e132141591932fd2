import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_train.checkpoint import (
    CheckpointError,
    CheckpointFolder,
    find_checkpoint,
    load_policy_state,
    read_checkpoint,
    read_metadata,
    write_checkpoint,
)

plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


class Marker:
    """Unpickling one creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def save(folder: Path, env_id: str, update: int, **metadata) -> Path:
    checkpoints = CheckpointFolder(folder / "checkpoints", keep_last=0)
    return checkpoints.save({"x": torch.ones(2)}, {"env_id": env_id, "update": update, **metadata})


@settings(max_examples=30, deadline=None)
@given(state=st.dictionaries(st.text(max_size=3), plain_values, max_size=3))
def test_plain_values_come_back_as_they_were(state, tmp_path_factory):
    path = tmp_path_factory.mktemp("c") / "x.pt"

    write_checkpoint(path, {"inner": state}, {"update": 1})

    assert read_checkpoint(path) == ({"inner": state}, {"update": 1})


def test_tensors_come_back_without_the_storage_they_were_a_view_of(tmp_path):
    view = torch.arange(1_000_000)[10:13]

    path = write_checkpoint(tmp_path / "x.pt", {"view": view, "half": torch.ones(2, dtype=torch.bfloat16)}, {})
    state, _ = read_checkpoint(path)

    assert torch.equal(state["view"], torch.tensor([10, 11, 12]))
    assert state["half"].dtype == torch.bfloat16
    assert path.stat().st_size < 10_000


def test_numpy_scalars_become_plain_numbers(tmp_path):
    path = write_checkpoint(tmp_path / "x.pt", {"a": np.float64(0.5), "b": np.int64(3), "c": np.bool_(True)}, {})
    state, _ = read_checkpoint(path)

    assert [type(value) for value in state.values()] == [float, int, bool]


@pytest.mark.parametrize("value", [object(), np.zeros(3), {1, 2}, np.random.default_rng(0)])
def test_other_objects_are_refused_with_their_place(tmp_path, value):
    with pytest.raises(TypeError, match=r"state\['outer'\]\[1\] must be a tensor or a plain value"):
        write_checkpoint(tmp_path / "x.pt", {"outer": [0, value]}, {})

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["plain pickle", "inside a torch file", "beside a valid checkpoint"])
def test_a_file_that_would_run_code_is_refused(tmp_path, form):
    path, marker = tmp_path / "x.pt", tmp_path / "marker"
    if form == "plain pickle":
        path.write_bytes(pickle.dumps(Marker(marker)))
    elif form == "inside a torch file":
        torch.save(Marker(marker), path)
    else:
        torch.save({"format": "puffer-checkpoint", "version": 1, "metadata": {}, "state": {"x": Marker(marker)}}, path)

    for read in (read_checkpoint, read_metadata):
        with pytest.raises(CheckpointError, match="a pickle can run code"):
            read(path)

    assert not marker.exists()


@pytest.mark.parametrize("content", [b"", b"no checkpoint", "half"])
def test_a_damaged_file_is_refused(tmp_path, content):
    path = write_checkpoint(tmp_path / "x.pt", {"x": torch.ones(100)}, {})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)

    with pytest.raises(CheckpointError, match=str(path)):
        read_checkpoint(path)


def test_another_torch_file_and_a_newer_format_are_refused(tmp_path):
    torch.save({"weights": torch.ones(1)}, tmp_path / "other.pt")
    torch.save({"format": "puffer-checkpoint", "version": 99, "metadata": {}, "state": {}}, tmp_path / "newer.pt")

    with pytest.raises(CheckpointError, match="must be one that puffer-train wrote"):
        read_checkpoint(tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=r"version must be at most 1; .* has 99"):
        read_checkpoint(tmp_path / "newer.pt")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"there is none at .*nothing\.pt"):
        read_checkpoint(tmp_path / "nothing.pt")


def test_an_error_while_writing_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = write_checkpoint(tmp_path / "x.pt", {"x": 1}, {})

    def fail(content, file):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        write_checkpoint(path, {"x": 2}, {})

    assert read_checkpoint(path)[0] == {"x": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_kill_during_a_write_leaves_a_whole_checkpoint(tmp_path):
    program = textwrap.dedent("""
        import sys, torch
        from puffer_train.checkpoint import CheckpointFolder
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


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod."])
@pytest.mark.parametrize("side", ["file", "policy"])
def test_weights_load_whatever_was_compiled_or_distributed(prefix, side):
    class Wrapper(torch.nn.Module):
        def __init__(self, inner, names):
            super().__init__()
            for name in names[1:]:
                outer = torch.nn.Module()
                outer.add_module(name, inner)
                inner = outer
            self.add_module(names[0], inner)

    plain = torch.nn.Sequential(torch.nn.Linear(2, 3))
    wrapped = Wrapper(torch.nn.Sequential(torch.nn.Linear(2, 3)), prefix.strip(".").split("."))
    source, target = (wrapped, plain) if side == "file" else (plain, wrapped)

    load_policy_state(target, source.state_dict())

    for one, other in zip(source.parameters(), target.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_submodule_called_module_keeps_its_name(tmp_path):
    policy = torch.nn.Module()
    policy.module = torch.nn.Linear(2, 2)
    path = write_checkpoint(tmp_path / "x.pt", {"policy": policy.state_dict()}, {})

    load_policy_state(policy, read_checkpoint(path)[0]["policy"])


def test_weights_of_another_shape_are_named():
    with pytest.raises(CheckpointError, match=r"weight is \(3, 2\) in the file and \(4, 2\) in the policy"):
        load_policy_state(torch.nn.Linear(2, 4), torch.nn.Linear(2, 3).state_dict())
    with pytest.raises(CheckpointError, match=r"the file lacks bias"):
        load_policy_state(torch.nn.Linear(2, 3), torch.nn.Linear(2, 3, bias=False).state_dict())


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
