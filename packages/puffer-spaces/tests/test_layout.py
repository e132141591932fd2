import logging
import pickle

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_spaces import ActionLayout, Layout, action_space_for

DTYPES = [np.bool_, np.uint8, np.int8, np.int16, np.uint16, np.int32, np.int64, np.float16, np.float32, np.float64]
KEYS = st.sampled_from(["a", "b", "c/d", "pos", "0"])


@st.composite
def boxes(draw):
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    if dtype.kind == "f":
        low, high = draw(st.sampled_from([(-1.0, 1.0), (-np.inf, np.inf), (0.0, np.inf)]))
    elif dtype.kind == "b":
        low, high = 0, 1
    else:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return spaces.Box(low, high, shape, dtype.type)


STARTS = st.integers(-5, 5)
LEAVES = st.one_of(
    boxes(),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), STARTS),
    st.lists(st.tuples(st.integers(1, 9), STARTS), min_size=1, max_size=20).map(
        lambda pairs: spaces.MultiDiscrete([n for n, _ in pairs], start=[start for _, start in pairs])
    ),
    st.lists(st.integers(1, 3), min_size=1, max_size=2).map(lambda shape: spaces.MultiBinary(tuple(shape))),
)
NESTED = st.recursive(
    LEAVES,
    lambda children: st.one_of(
        st.dictionaries(KEYS, children, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(children, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=8,
)
DISCRETE = st.recursive(
    LEAVES.filter(lambda space: not isinstance(space, spaces.Box)),
    lambda children: st.one_of(
        st.dictionaries(KEYS, children, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(children, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=6,
)


def assert_same(one, two):
    if isinstance(one, np.ndarray) and isinstance(two, np.generic):  # Gymnasium samples some 0-d Boxes as scalars
        two = np.asarray(two)
    assert type(one) is type(two)
    if isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            assert_same(one[key], two[key])
    elif isinstance(one, tuple):
        assert len(one) == len(two)
        for left, right in zip(one, two, strict=True):
            assert_same(left, right)
    else:
        one, two = np.asarray(one), np.asarray(two)
        assert (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())


@given(NESTED, st.integers(0, 2**31 - 1))
@settings(max_examples=120, deadline=None)
def test_round_trip_is_exact(space, seed):
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


@given(NESTED, st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_a_batch_is_seen_as_views_in_the_structure_of_the_space(space, seed):
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


@given(NESTED)
@settings(max_examples=60, deadline=None)
def test_leaves_are_aligned_do_not_overlap_and_keep_one_dtype_where_they_share_it(space):
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


@given(NESTED)
@settings(max_examples=30, deadline=None)
def test_layouts_pickle_and_compare_by_space(space):
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


def test_samples_come_back_unchanged_and_take_every_value():
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


DICT = spaces.Dict(
    grid=spaces.Box(0, 1, (8, 10), np.float32),
    idx=spaces.Discrete(5),
    pair=spaces.MultiDiscrete([4, 11]),
    bits=spaces.MultiBinary(3),
    deep=spaces.Tuple([spaces.Dict(x=spaces.Discrete(3, start=1))]),
)
GOOD = {"grid": np.ones((8, 10), np.float32), "idx": 4, "pair": [1, 3], "bits": [1, 0, 1], "deep": ({"x": 1},)}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("grid", np.ones((8, 10))),
        ("grid", np.ones((8, 10)).tolist()),
        ("grid", np.ones((8, 10), np.int64)),
        ("idx", np.int64(4)),
        ("idx", np.uint8(4)),
        ("idx", np.array(4)),
        ("idx", np.array([4])),
        ("pair", np.array([1, 3], np.int8)),
        ("pair", (1, 3)),
        ("bits", np.array([True, False, True])),
        ("bits", np.array([1, 0, 1], np.int64)),
        ("deep", [{"x": np.int32(1)}]),
    ],
)
def test_near_values_are_cast_to_the_declared_types(key, value):
    layout = Layout(DICT)

    read = layout.unflatten(layout.flatten({**GOOD, key: value}))

    assert_same(read, layout.unflatten(layout.flatten(GOOD)))
    assert DICT.contains(read)


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        (
            "grid",
            np.ones((10, 8), np.float32),
            ValueError,
            r"leaf 'grid' must have shape \(8, 10\); got shape \(10, 8\)",
        ),
        ("grid", [[1], [1, 2]], ValueError, r"leaf 'grid' must be an array of shape \(8, 10\)"),
        ("grid", np.ones((8, 10), complex), TypeError, "leaf 'grid' must be castable to float32"),
        ("idx", 5, ValueError, r"leaf 'idx' must be in \[0, 4\]; got 5"),
        ("idx", -1, ValueError, "leaf 'idx' must be in"),
        ("idx", 1.0, TypeError, "leaf 'idx' must be an integer; got 1.0"),
        ("idx", np.array([1, 2]), ValueError, r"leaf 'idx' must have shape \(\); got shape \(2,\)"),
        ("idx", None, TypeError, "leaf 'idx' must be an integer"),
        ("pair", [1, 3, 2], ValueError, r"leaf 'pair' must have shape \(2,\); got shape \(3,\)"),
        ("pair", [1, 11], ValueError, r"element \[1\] of leaf 'pair' must be in \[0, 10\]; got 11"),
        ("pair", [1.0, 3.0], TypeError, "leaf 'pair' must hold integers"),
        ("bits", [0, 0, 2], ValueError, "leaf 'bits' must be in"),
        ("bits", np.array([0, 0, -1], np.int8), ValueError, "leaf 'bits' must be in"),
        ("deep", ({"x": 0},), ValueError, r"leaf 'deep/0/x' must be in \[1, 3\]; got 0"),
        ("deep", ({"y": 1},), KeyError, r"leaf 'deep/0/x' must be given; got keys \['y'\]"),
        ("deep", (3,), TypeError, "leaf 'deep/0/x' must be in a dict; got int 3"),
        ("deep", (), ValueError, "leaf 'deep' must be a tuple of length 1; got length 0"),
        ("deep", 7, TypeError, "leaf 'deep' must be a tuple; got int 7"),
        ("deep", {0: {"x": 1}}, TypeError, "leaf 'deep' must be a tuple; got dict"),
        ("deep", {"x"}, TypeError, "leaf 'deep' must be a tuple; got set"),
        ("pair", [1, [2]], ValueError, "leaf 'pair' must be an array of shape .* got ragged"),
    ],
)
def test_bad_values_are_refused_with_the_path_of_the_leaf(key, value, error, words):
    with pytest.raises(error, match=words):
        Layout(DICT).flatten({**GOOD, key: value})


def test_large_multidiscrete_is_range_checked_too():
    layout = Layout(spaces.MultiDiscrete([3] * 100, start=[-1] * 100))
    value = np.ones(100, np.int64)

    assert (layout.unflatten(layout.flatten(value)) == value).all()
    for wrong in (-2, 2):
        value[70] = wrong
        with pytest.raises(ValueError, match="the value must be in"):
            layout.flatten(value)


def test_integers_that_do_not_fit_are_refused_instead_of_wrapped():
    layout = Layout(spaces.Box(0, 255, (2,), np.uint8))

    assert layout.flatten(np.array([0, 255])).tolist() == [0, 255]
    with pytest.raises(ValueError, match=r"the value must fit uint8; got int64 values in \[0, 256\]"):
        layout.flatten(np.array([0, 256]))
    with pytest.raises(TypeError, match="the value must be castable to uint8 within its kind; got float64"):
        layout.flatten(np.array([0.0, 1.0]))


def test_a_cast_is_noted_once_for_each_leaf_and_dtype(caplog):
    layout = Layout(spaces.Dict(noted_once=spaces.Box(0, 1, (2,))))

    with caplog.at_level(logging.WARNING, logger="puffer_spaces"):
        for _ in range(3):
            layout.flatten({"noted_once": np.zeros(2)})
            layout.flatten({"noted_once": [0.0, 1.0]})
            layout.flatten({"noted_once": np.zeros(2, np.float32)})

    assert [record.getMessage() for record in caplog.records] == [
        "leaf 'noted_once' is declared float32 and returned as float64: cast on each write (said once)."
    ]


def test_bounds_of_a_box_are_not_checked_on_writing():
    layout = Layout(spaces.Box(0, 1, (2,)))

    assert layout.flatten(np.array([5, -5], np.float32)).tolist() == [5, -5]


def test_keys_that_the_space_does_not_have_are_ignored():
    layout = Layout(spaces.Dict(a=spaces.Discrete(3)))

    assert layout.flatten({"a": 2, "extra": object()}).tolist() == [2]


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


@given(DISCRETE, st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_discrete_action_spaces_become_choices_from_zero(space, seed):
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


@given(NESTED, st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_actions_survive_their_row(space, seed):
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


def test_leaves_with_equal_names_stay_apart():
    space = spaces.Dict({"a/0": spaces.Discrete(3), "a": spaces.Tuple([spaces.Discrete(5)])})
    layout = Layout(space)

    assert layout.unflatten(layout.flatten({"a/0": 2, "a": (4,)})) == {"a/0": 2, "a": (4,)}
    assert len(set(layout.struct_dtype.names)) == 2


def test_choices_at_the_ends_of_int64_are_kept():
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    for size in (1, 20):
        space = spaces.MultiDiscrete([3] * size + [2], start=[high - 2] * size + [low])
        value = np.array([high] * size + [low])

        assert (Layout(space).unflatten(Layout(space).flatten(value)) == value).all()
        with pytest.raises(ValueError, match=rf"element \[{size}\] of the value must be in"):
            Layout(space).flatten(np.array([high] * (size + 1)))
    assert ActionLayout(spaces.Discrete(3, start=high - 2)).unflatten(np.int32(2)) == high


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


def test_floats_that_overflow_the_declared_dtype_are_refused():
    space = spaces.Dict(depth=spaces.Box(-np.inf, np.inf, (2,), np.float16))

    with pytest.raises(ValueError, match=r"leaf 'depth' must fit float16; got float64 values in \[0.0, 1000000000.0\]"):
        Layout(space).flatten({"depth": np.array([0, 1e9])})
    assert np.isinf(Layout(space).flatten({"depth": [np.inf, 0]})[0])


@pytest.mark.parametrize("value", [None, "ab", {}, object(), [None, 1]])
def test_what_is_no_number_is_named(value):
    with pytest.raises(TypeError, match="the value must hold numbers; got"):
        Layout(spaces.Box(0, 1, (2,))).flatten(value)


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
