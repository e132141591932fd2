import mmap

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from puffer_spaces import Buffers

IMAGE = spaces.Box(0, 255, (3, 5), np.uint8)
CHOICES = spaces.MultiDiscrete([3, 4])
NAMES = ["observations", "actions", "rewards", "terminals", "truncations", "masks", "final_observations", "action_mask"]


def arrays(buffers):
    return {name: buffers[name] for name in NAMES if buffers[name] is not None}


def test_allocated_arrays_have_the_dtypes_and_shapes_of_the_contract():
    buffers = Buffers.allocate(IMAGE, CHOICES, 6, action_mask_size=7)

    assert {name: (array.dtype.str.lstrip("|<"), array.shape) for name, array in arrays(buffers).items()} == {
        "observations": ("u1", (6, 3, 5)),
        "actions": ("i4", (6, 2)),
        "rewards": ("f4", (6,)),
        "terminals": ("b1", (6,)),
        "truncations": ("b1", (6,)),
        "masks": ("b1", (6,)),
        "final_observations": ("u1", (6, 3, 5)),
        "action_mask": ("b1", (6, 7)),
    }
    assert buffers.masks.all()
    assert buffers.action_mask.all()
    assert not any(buffers[name].any() for name in ("observations", "actions", "rewards", "terminals", "truncations"))


def test_actions_have_the_dtype_of_a_box_and_int32_otherwise():
    for space, dtype, shape in [
        (spaces.Box(-1, 1, (2,), np.float64), np.float64, (3, 2)),
        (spaces.Discrete(4), np.int32, (3,)),
    ]:
        buffers = Buffers.allocate(IMAGE, space, 3)

        assert (buffers.actions.dtype, buffers.actions.shape) == (dtype, shape)
        assert buffers.action_mask is None


@given(st.integers(1, 200), st.integers(0, 9))
def test_each_array_starts_on_a_cache_line_of_its_own(num_agents, action_mask_size):
    buffers = Buffers.allocate(IMAGE, CHOICES, num_agents, action_mask_size)

    lines = [
        set(range(array.ctypes.data // 64, (array.ctypes.data + array.nbytes - 1) // 64 + 1))
        for array in arrays(buffers).values()
    ]
    assert all(array.ctypes.data % 64 == 0 for array in arrays(buffers).values())
    assert sum(map(len, lines)) == len(set().union(*lines))


def test_two_views_of_one_memory_see_each_other_and_leave_its_contents():
    memory = mmap.mmap(-1, Buffers.nbytes(IMAGE, CHOICES, 4, 7))
    one = Buffers.from_memory(memory, IMAGE, CHOICES, 4, 7)
    one.clear()
    one.rewards[:] = [1, 2, 3, 4]
    one.masks[2] = False

    two = Buffers.from_memory(memory, IMAGE, CHOICES, 4, 7)

    assert two.rewards.tolist() == [1, 2, 3, 4]
    assert two.masks.tolist() == [True, True, False, True]
    two.observations[3] = 9
    assert (one.observations[3] == 9).all()


@pytest.mark.parametrize("memory", [bytearray(64), bytes(10_000)])
def test_memory_that_is_too_small_or_read_only_is_refused(memory):
    with pytest.raises(ValueError, match=r"memory must be writable and hold 512 bytes"):
        Buffers.from_memory(memory, IMAGE, CHOICES, 4, 7)


def test_a_slice_is_a_view_of_the_rows():
    buffers = Buffers.allocate(IMAGE, CHOICES, 6, 7)

    rows = buffers[2:4]

    assert rows.num_agents == 2
    rows.observations[...] = 1
    rows.action_mask[...] = False
    assert np.flatnonzero(buffers.observations.any((1, 2))).tolist() == [2, 3]
    assert np.flatnonzero(~buffers.action_mask.all(1)).tolist() == [2, 3]
    assert Buffers.allocate(IMAGE, CHOICES, 3)[:1].action_mask is None


def test_buffers_stand_where_a_dict_of_arrays_is_expected():
    buffers = Buffers.allocate(IMAGE, CHOICES, 2)

    assert dict(**buffers) == {name: buffers[name] for name in NAMES}
    assert buffers["rewards"] is buffers.rewards
    assert "masks" in buffers
    assert "mask" not in buffers
    with pytest.raises(KeyError, match="mask"):
        buffers["mask"]
    with pytest.raises(TypeError, match="slice"):
        buffers[0]


def test_a_dict_of_six_arrays_gets_final_observations():
    buffers = Buffers.allocate(IMAGE, CHOICES, 2)
    six = {name: buffers[name] for name in NAMES[:6]}

    taken = Buffers.from_mapping(six)

    assert taken.observations is buffers.observations
    assert taken.final_observations.shape == (2, 3, 5)
    assert Buffers.from_mapping(buffers) is buffers
    with pytest.raises(ValueError, match="masks"):
        Buffers.from_mapping({name: six[name] for name in NAMES[:5]})


def test_spaces_that_are_no_row_are_refused():
    with pytest.raises(ValueError, match="row_space"):
        Buffers.allocate(spaces.Dict(a=IMAGE), CHOICES, 2)
    with pytest.raises(ValueError, match="num_agents must be at least 1"):
        Buffers.allocate(IMAGE, CHOICES, 0)
