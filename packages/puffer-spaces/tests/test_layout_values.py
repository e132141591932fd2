"""Values that a row takes, casts or refuses."""

import logging

import numpy as np
import pytest
from gymnasium import spaces

from puffer_spaces import ActionLayout, Layout

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
def test_near_values_are_cast_to_the_declared_types(assert_same, key, value):
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


def test_choices_at_the_ends_of_int64_are_kept():
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    for size in (1, 20):
        space = spaces.MultiDiscrete([3] * size + [2], start=[high - 2] * size + [low])
        value = np.array([high] * size + [low])

        assert (Layout(space).unflatten(Layout(space).flatten(value)) == value).all()
        with pytest.raises(ValueError, match=rf"element \[{size}\] of the value must be in"):
            Layout(space).flatten(np.array([high] * (size + 1)))
    assert ActionLayout(spaces.Discrete(3, start=high - 2)).unflatten(np.int32(2)) == high


def test_integers_that_do_not_fit_are_refused_instead_of_wrapped():
    layout = Layout(spaces.Box(0, 255, (2,), np.uint8))

    assert layout.flatten(np.array([0, 255])).tolist() == [0, 255]
    with pytest.raises(ValueError, match=r"the value must fit uint8; got int64 values in \[0, 256\]"):
        layout.flatten(np.array([0, 256]))
    with pytest.raises(TypeError, match="the value must be castable to uint8 within its kind; got float64"):
        layout.flatten(np.array([0.0, 1.0]))


def test_floats_that_overflow_the_declared_dtype_are_refused():
    space = spaces.Dict(depth=spaces.Box(-np.inf, np.inf, (2,), np.float16))

    with pytest.raises(ValueError, match=r"leaf 'depth' must fit float16; got float64 values in \[0.0, 1000000000.0\]"):
        Layout(space).flatten({"depth": np.array([0, 1e9])})
    assert np.isinf(Layout(space).flatten({"depth": [np.inf, 0]})[0])


@pytest.mark.parametrize("value", [None, "ab", {}, object(), [None, 1]])
def test_what_is_no_number_is_named(value):
    with pytest.raises(TypeError, match="the value must hold numbers; got"):
        Layout(spaces.Box(0, 1, (2,))).flatten(value)


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
