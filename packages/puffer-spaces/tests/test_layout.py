"""Rows of observations: where the leaves lie, and that values come back as they were."""

import pickle

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_spaces import ActionLayout, Layout


@given(st.data(), st.integers(0, 2**31 - 1))
@settings(max_examples=120, deadline=None)
def test_round_trip_is_exact(nested_spaces, assert_same, data, seed):
    space = data.draw(nested_spaces)
    space.seed(seed)
    layout = Layout(space)
    rows = np.zeros((3, *layout.row_shape), layout.dtype)
    values = [space.sample() for _ in rows]
    bound = layout.bind(rows[1])

    layout.flatten_into(values[0], rows[0])
    bound.write(values[1])
    rows[2] = layout.flatten(values[2])

    for value, row in zip(values, rows, strict=True):
        assert_same(layout.unflatten(row), value)
        assert space.contains(layout.unflatten(row))
        assert layout.row_space.contains(row)
    assert_same(bound.read(), values[1])


@given(st.data(), st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_a_batch_is_seen_as_views_in_the_structure_of_the_space(nested_spaces, data, seed):
    space = data.draw(nested_spaces)
    space.seed(seed)
    layout = Layout(space)
    values = [space.sample() for _ in range(6)]
    rows = np.stack([layout.flatten(value) for value in values]).reshape(2, 3, *layout.row_shape)

    batch = layout.unflatten_batch(rows)

    def assert_views(part, of_values):
        if isinstance(part, dict):
            for key in part:
                assert_views(part[key], [value[key] for value in of_values])
        elif isinstance(part, tuple):
            for index, child in enumerate(part):
                assert_views(child, [value[index] for value in of_values])
        else:
            assert np.may_share_memory(part, rows)
            expected = np.stack([np.asarray(value) for value in of_values])
            assert part.shape == (2, 3, *expected.shape[1:])
            assert part.tobytes() == expected.tobytes()

    assert_views(batch, values)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_leaves_are_aligned_do_not_overlap_and_keep_one_dtype_where_they_share_it(nested_spaces, data):
    space = data.draw(nested_spaces)
    layout = Layout(space)

    dtypes = {leaf.dtype for leaf in layout.leaves}
    assert layout.dtype == (dtypes.pop() if len(dtypes) == 1 else np.uint8)
    end = 0
    for leaf in layout.leaves:
        assert leaf.offset >= end
        assert leaf.offset % leaf.dtype.itemsize == 0
        end = leaf.offset + leaf.nbytes
    assert end <= layout.nbytes < end + 8
    assert layout.nbytes % max(leaf.dtype.itemsize for leaf in layout.leaves) == 0
    assert layout.nbytes == layout.struct_dtype.itemsize


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_layouts_pickle_and_compare_by_space(nested_spaces, data):
    space = data.draw(nested_spaces)
    layout = pickle.loads(pickle.dumps(Layout(space)))

    assert layout == Layout(space)
    assert hash(layout) == hash(Layout(space))
    assert layout != ActionLayout(space)
    assert layout.struct_dtype == Layout(space).struct_dtype


def test_the_example_of_the_module():
    space = spaces.Dict(
        image=spaces.Box(0, 255, (3, 5), np.uint8), pos=spaces.Box(-1, 1, (2,), np.float32), tool=spaces.Discrete(4)
    )
    layout = Layout(space)

    assert [(leaf.name, leaf.offset, leaf.dtype, leaf.shape) for leaf in layout.leaves] == [
        ("image", 0, np.uint8, (3, 5)),
        ("pos", 16, np.float32, (2,)),
        ("tool", 24, np.int64, ()),
    ]
    assert (layout.nbytes, layout.dtype, layout.row_shape) == (32, np.uint8, (32,))
    row = layout.flatten({"image": np.full((3, 5), 7, np.uint8), "pos": [0.5, -0.5], "tool": 3})
    assert row[:16].tolist() == [7] * 15 + [0]
    assert row[16:24].view(np.float32).tolist() == [0.5, -0.5]
    assert row[24:].view(np.int64).tolist() == [3]


@pytest.mark.parametrize(
    ("space", "row_space"),
    [
        (spaces.Discrete(5), spaces.Box(0, 4, (1,), np.int64)),
        (spaces.Discrete(5, start=-2), spaces.Box(-2, 2, (1,), np.int64)),
        (spaces.Box(-1, 1, ()), spaces.Box(-1, 1, (1,))),
        (spaces.Box(0, 255, (4, 4, 3), np.uint8), spaces.Box(0, 255, (4, 4, 3), np.uint8)),
        (spaces.MultiBinary((2, 3)), spaces.Box(0, 1, (2, 3), np.int8)),
        (spaces.MultiDiscrete([4, 11], start=[1, 0]), spaces.Box(np.array([1, 0]), np.array([4, 10]), dtype=np.int64)),
        (spaces.Tuple([spaces.Discrete(3)] * 3), spaces.Box(0, 2, (3,), np.int64)),
        (spaces.Dict(a=spaces.Box(-1, 1, (2, 2)), b=spaces.Box(-1, 1, ())), spaces.Box(-1, 1, (5,))),
        (spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(4)]), spaces.Box(0, 255, (16,), np.uint8)),
    ],
    ids=str,
)
def test_rows_are_boxes_with_the_bounds_of_the_leaves(space, row_space):
    assert Layout(space).row_space == row_space


def test_scalar_spaces_have_integer_sizes():
    for space in (spaces.Discrete(5), spaces.Box(0, 1, ())):
        layout = Layout(space)

        assert layout.row_space.shape == (1,)
        assert all(isinstance(leaf.size, int) and leaf.size == 1 for leaf in layout.leaves)


def test_start_is_kept_in_every_value():
    space = spaces.Dict(move=spaces.Discrete(5, start=-2), other=spaces.Box(0, 1, (2,)))
    layout = Layout(space)

    for value in range(-2, 3):
        other = np.zeros(2, np.float32)
        assert layout.unflatten(layout.flatten({"move": value, "other": other}))["move"] == value


def test_samples_come_back_unchanged_and_take_every_value(assert_same):
    space = spaces.Dict(position=spaces.Box(-1, 1, (2,)), colour=spaces.Discrete(5))
    space.seed(0)
    layout = Layout(space)
    colours = set()
    for _ in range(1000):
        sample = space.sample()
        value = layout.unflatten(layout.flatten(sample))
        assert_same(value, sample)
        colours.add(int(value["colour"]))

    assert colours == set(range(5))


def test_a_row_with_a_field_out_of_range_names_the_field():
    layout = Layout(
        spaces.Dict(position=spaces.Box(-1, 1, (2,)), colour=spaces.Discrete(5), kind=spaces.MultiBinary(2))
    )
    row = np.zeros(layout.row_shape, np.uint8)
    row.view(layout.struct_dtype)["colour"] = 5

    with pytest.raises(ValueError, match=r"leaf 'colour' must be in \[0, 4\]; got 5"):
        layout.unflatten(row)
    row.view(layout.struct_dtype)["colour"] = 4
    row.view(layout.struct_dtype)["kind"] = [0, 2]
    with pytest.raises(ValueError, match="leaf 'kind' must be in"):
        layout.unflatten(row)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Dict(a=spaces.Tuple([spaces.Discrete(2), spaces.Text(5)])), "leaf 'a/1' must be a Box, Discrete"),
        (spaces.Sequence(spaces.Discrete(2)), "the value must be a Box, Discrete"),
        (spaces.Graph(spaces.Discrete(2), None), "Encode it as one of these"),
        (spaces.OneOf([spaces.Discrete(2)]), "Dict or Tuple space; got OneOf"),
    ],
    ids=["nested", "Sequence", "Graph", "OneOf"],
)
def test_other_spaces_are_refused_with_their_path(space, words):
    with pytest.raises(TypeError, match=words):
        Layout(space)


def test_spaces_without_content_are_refused():
    with pytest.raises(ValueError, match="at least one leaf"):
        Layout(spaces.Dict())
    with pytest.raises(ValueError, match="at least one element"):
        Layout(spaces.Box(0, 1, (0,)))


def test_rows_of_another_kind_are_refused():
    layout = Layout(spaces.Box(0, 1, (2, 3)))

    for row in (np.zeros((2, 3)), np.zeros(5, np.float32), np.zeros((2, 6), np.float32)[:, ::2]):
        with pytest.raises(ValueError, match=r"row must be float32 \(2, 3\) and C-contiguous"):
            layout.bind(row)
    with pytest.raises(ValueError, match=r"rows must be float32 and end in the shape \(2, 3\)"):
        layout.unflatten_batch(np.zeros((4, 3, 2), np.float32))


def test_read_values_do_not_share_memory_with_the_row():
    layout = Layout(spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.MultiDiscrete([3]), c=spaces.MultiBinary(2)))
    row = layout.flatten({"a": [0, 0], "b": [0], "c": [0, 0]})
    value = layout.unflatten(row)

    row[...] = 1

    assert [value[key].tolist() for key in "abc"] == [[0, 0], [0], [0, 0]]


def test_leaves_with_equal_names_stay_apart():
    space = spaces.Dict({"a/0": spaces.Discrete(3), "a": spaces.Tuple([spaces.Discrete(5)])})
    layout = Layout(space)

    assert layout.unflatten(layout.flatten({"a/0": 2, "a": (4,)})) == {"a/0": 2, "a": (4,)}
    assert len(set(layout.struct_dtype.names)) == 2


def test_a_row_that_cannot_be_written_is_refused():
    layout = Layout(spaces.MultiDiscrete([3, 3]))
    fixed = np.zeros(2, np.int64)
    fixed.setflags(write=False)

    for write in (lambda row: layout.flatten_into([1, 2], row), layout.bind):
        with pytest.raises(ValueError, match=r"row must be a writable array; got list \[0, 0\]"):
            write([0, 0])
        with pytest.raises(ValueError, match="row must be a writable array; got a read-only array"):
            write(fixed)
    assert layout.unflatten(fixed).tolist() == [0, 0]


def test_layouts_of_dicts_in_another_order_differ():
    one, other = spaces.Discrete(2), spaces.Discrete(3)

    assert spaces.Dict([("z", one), ("a", other)]) == spaces.Dict([("a", other), ("z", one)])
    assert Layout(spaces.Dict([("z", one), ("a", other)])) != Layout(spaces.Dict([("a", other), ("z", one)]))


def test_a_batch_may_have_no_rows_or_lie_across_memory():
    space = spaces.Dict(idx=spaces.Discrete(3), pos=spaces.Box(0, 1, (2,)))
    layout = Layout(space)

    assert layout.unflatten_batch(np.zeros((0, *layout.row_shape), np.uint8))["pos"].shape == (0, 2)
    rows = np.stack([layout.flatten({"idx": i, "pos": [0.5, 1]}) for i in range(3)])
    assert layout.unflatten_batch(np.asfortranarray(rows))["idx"].tolist() == [0, 1, 2]
