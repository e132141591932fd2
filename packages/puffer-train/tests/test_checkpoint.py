import errno
import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_train.checkpoint import (
    load_policy_state,
    read_checkpoint,
    read_metadata,
    write_checkpoint,
)
from puffer_train.errors import CheckpointError

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


def test_a_bit_that_a_disk_has_spoilt_is_noticed(tmp_path):
    path = write_checkpoint(tmp_path / "x.pt", {"policy": {"weight": torch.full((1000,), 0.1)}}, {})
    content = bytearray(path.read_bytes())
    place = content.find(np.full(4, 0.1, np.float32).tobytes())
    content[place] ^= 1
    path.write_bytes(content)

    with pytest.raises(CheckpointError, match=r"must be a whole file; .*x\.pt is damaged"):
        read_checkpoint(path)


def test_another_torch_file_and_a_newer_format_are_refused(tmp_path):
    torch.save({"weights": torch.ones(1)}, tmp_path / "other.pt")
    torch.save({"format": "puffer-checkpoint", "version": 99, "metadata": {}, "state": {}}, tmp_path / "newer.pt")

    with pytest.raises(CheckpointError, match="must be one that puffer-train wrote"):
        read_checkpoint(tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=r"version must be at most 1; .* has 99"):
        read_checkpoint(tmp_path / "newer.pt")


@pytest.mark.parametrize(
    "content",
    [
        {"format": "puffer-checkpoint"},
        {"format": "puffer-checkpoint", "version": "1", "metadata": {}, "state": {}},
        {"format": "puffer-checkpoint", "version": 1, "metadata": {}},
        {"format": "puffer-checkpoint", "version": 1, "metadata": [], "state": {}},
        [1, 2],
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "x.pt")

    with pytest.raises(CheckpointError, match="is of another kind"):
        read_checkpoint(tmp_path / "x.pt")


def test_what_a_state_lacks_is_named(tmp_path):
    path = write_checkpoint(tmp_path / "x.pt", {"policy": {}}, {})

    with pytest.raises(CheckpointError, match=r"must hold the state of a PuffeRL; .* lacks optimizer, rollout\."):
        read_checkpoint(path, needs=("policy", "optimizer", "rollout"))


def test_a_full_disk_is_told_as_one_and_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_checkpoint(tmp_path / "x.pt", {"x": 1}, {})

    class FullFile(io.FileIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", lambda path, mode: FullFile(path, mode))
    with pytest.raises(OSError, match="No space left on device"):
        write_checkpoint(path, {"x": torch.zeros(1000)}, {})
    monkeypatch.undo()

    assert read_checkpoint(path)[0] == {"x": 1}
    assert list(tmp_path.iterdir()) == [path]


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
