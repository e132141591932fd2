"""Rows of actions: choices count from zero, whatever the space."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_spaces import ActionLayout, Layout, action_space_for


@given(st.data(), st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_discrete_action_spaces_become_choices_from_zero(discrete_spaces, data, seed):
    space = data.draw(discrete_spaces)
    layout = ActionLayout(space)
    row_space = layout.row_space
    row_space.seed(seed)

    assert type(row_space) is (spaces.Discrete if isinstance(space, spaces.Discrete) else spaces.MultiDiscrete)
    assert layout.dtype == np.int32
    for _ in range(3):
        row = np.asarray(row_space.sample(), np.int32)
        action = layout.unflatten(row)
        assert space.contains(action)
        assert (layout.flatten(action) == row).all()


@given(st.data(), st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_actions_survive_their_row(nested_spaces, assert_same, data, seed):
    space = data.draw(nested_spaces)
    space.seed(seed)
    layout = ActionLayout(space)
    rows = np.zeros((2, *layout.row_shape), layout.dtype)
    for index in range(2):
        action = space.sample()
        if layout.dtype.kind == "f" and any(np.iinfo(leaf.space.dtype).bits > 16 for leaf in integer_boxes(layout)):
            return
        layout.flatten_into(action, rows[index : index + 1])
        assert_same(layout.unflatten(rows[index]), action)
    layout.unflatten_batch(rows)


def integer_boxes(layout):
    return [leaf for leaf in layout.leaves if not leaf.is_discrete and np.dtype(leaf.space.dtype).kind in "iu"]


def test_start_offsets_are_restored_in_actions():
    layout = ActionLayout(
        spaces.Dict(move=spaces.Discrete(5, start=-2), pair=spaces.MultiDiscrete([2, 2], start=[3, 7]))
    )

    assert layout.row_space == spaces.MultiDiscrete([5, 2, 2], dtype=np.int32)
    action = layout.unflatten(np.array([4, 0, 1], np.int32))
    assert (action["move"], action["pair"].tolist()) == (2, [3, 8])
    batch = layout.unflatten_batch(np.array([[0, 0, 0], [4, 1, 1]], np.int32))
    assert (batch["move"].tolist(), batch["pair"].tolist()) == ([-2, 2], [[3, 7], [4, 8]])
    with pytest.raises(ValueError, match=r"leaf 'move' must be in \[0, 4\]; got 5"):
        layout.unflatten(np.array([5, 0, 0], np.int32))


def test_box_only_actions_become_one_box_of_the_common_dtype():
    space = spaces.Tuple([spaces.Box(-1, 1, (2,), np.float32), spaces.Box(0, 255, (), np.uint8)])
    layout = ActionLayout(space)

    assert layout.row_space == spaces.Box(np.array([-1, -1, 0], np.float32), np.array([1, 1, 255], np.float32))
    direction, amount = layout.unflatten(np.array([0.5, -0.5, 299.6], np.float32))
    assert (direction.tolist(), amount.item(), amount.dtype, amount.shape) == ([0.5, -0.5], 255, np.uint8, ())
    assert layout.unflatten(np.array([0, 0, 9.6], np.float32))[1] == 10


def test_mixed_actions_become_bytes_with_a_layout():
    space = spaces.Dict(aim=spaces.Box(-1, 1, (2,), np.float32), fire=spaces.Discrete(2, start=1))
    layout = ActionLayout(space)

    assert layout.is_mixed
    assert layout.row_space == spaces.Box(0, 255, (12,), np.uint8)
    assert [(leaf.name, leaf.offset, leaf.dtype) for leaf in layout.leaves] == [
        ("aim", 0, np.float32),
        ("fire", 8, np.int32),
    ]
    row = layout.flatten({"aim": [0.5, 0.25], "fire": 2})
    assert row[8:].view(np.int32).tolist() == [1]
    assert layout.unflatten(row)["fire"] == 2
    only_int32 = spaces.Tuple([spaces.Box(0, 9, (2,), np.int32), spaces.Discrete(3)])
    assert ActionLayout(only_int32).dtype == np.uint8


@pytest.mark.parametrize(
    ("space", "row_space"),
    [
        (spaces.Discrete(4), spaces.Discrete(4)),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), spaces.MultiDiscrete([[2, 3], [4, 5]], dtype=np.int32)),
        (spaces.MultiBinary(3), spaces.MultiDiscrete([2, 2, 2], dtype=np.int32)),
        (spaces.Box(-2, 2, ()), spaces.Box(-2, 2, (1,))),
        (spaces.Box(-2, 2, (2, 2)), spaces.Box(-2, 2, (2, 2))),
    ],
    ids=str,
)
def test_a_single_leaf_keeps_its_shape_as_an_action(space, row_space):
    assert action_space_for(space) == row_space


def test_choices_per_leaf_are_listed_for_policies():
    layout = ActionLayout(
        spaces.Tuple([spaces.Discrete(4, start=1), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)])
    )

    assert [leaf.nvec.tolist() for leaf in layout.leaves] == [[4], [2, 3], [2, 2]]
    assert [leaf.path for leaf in layout.leaves] == [(0,), (1,), (2,)]
    assert [leaf.low.tolist() for leaf in layout.leaves] == [[0], [0, 0], [0, 0]]
    assert [leaf.high.tolist() for leaf in layout.leaves] == [[3], [1, 2], [1, 1]]
    assert Layout(spaces.Box(0, 1, (2,))).leaves[0].nvec.size == 0


@pytest.mark.parametrize("space", [spaces.Discrete(2**40), spaces.Tuple([spaces.MultiDiscrete([2, 2**32])])])
def test_choices_beyond_int32_cannot_be_actions(space):
    assert Layout(space).dtype == np.int64
    with pytest.raises(ValueError, match="must have values that fit int32"):
        ActionLayout(space)


def test_an_integer_action_is_never_made_of_nan_or_beyond_its_dtype():
    top = np.iinfo(np.uint64).max
    layout = ActionLayout(
        spaces.Dict(
            count=spaces.Box(0, top, (1,), np.uint64),
            force=spaces.Box(-1, 1, (1,)),
            level=spaces.Box(-5, 5, (1,), np.int64),
        )
    )

    action = layout.unflatten(np.array([2.0**64, 0.5, 9]))
    assert action["count"] > np.uint64(top - 4096)
    assert action["level"] == 5
    with pytest.raises(ValueError, match="leaf 'level' must be a number; got nan"):
        layout.unflatten(np.array([0, 0, np.nan]))
