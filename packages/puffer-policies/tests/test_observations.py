import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_policies import unflatten_observations
from puffer_spaces import Layout

LEAVES = [
    spaces.Box(-1, 1, (2, 3)),
    spaces.Box(-1, 1, ()),
    spaces.Box(0, 255, (3, 5), np.uint8),
    spaces.Box(-9, 9, (2,), np.int16),
    spaces.Box(-1, 1, (3,), np.float64),
    spaces.Discrete(4, start=-2),
    spaces.MultiDiscrete([2, 7]),
    spaces.MultiBinary(5),
    spaces.Box(0, 1, (2, 2), np.bool_),
]

nested_spaces = st.recursive(
    st.sampled_from(LEAVES),
    lambda children: (
        st.lists(children, min_size=1, max_size=3).map(spaces.Tuple)
        | st.dictionaries(st.sampled_from("abc"), children, min_size=1, max_size=3).map(spaces.Dict)
    ),
    max_leaves=6,
)


def assert_same(got, value, row):
    if isinstance(value, dict):
        assert list(got) == list(value)
        for key in value:
            assert_same(got[key], value[key], row)
    elif isinstance(value, tuple):
        for left, right in zip(got, value, strict=True):
            assert_same(left, right, row)
    else:
        np.testing.assert_array_equal(got[row].numpy(), value)
        assert got.shape[1:] == np.shape(value)
        assert got.numpy().dtype == np.asarray(value).dtype


@given(nested_spaces, st.booleans())
@settings(max_examples=60, deadline=None)
def test_structure_dtypes_and_values_come_back(space, give_layout):
    layout = Layout(space)
    values = [space.sample() for _ in range(3)]
    rows = torch.from_numpy(np.stack([layout.flatten(value) for value in values]))

    got = unflatten_observations(rows, layout if give_layout else space)

    for index, value in enumerate(values):
        assert_same(got, value, index)


def test_leading_dimensions_are_kept_and_memory_is_shared():
    space = spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Discrete(3))
    rows = torch.zeros(4, 5, Layout(space).nbytes, dtype=torch.uint8)

    got = unflatten_observations(rows, space)
    got["a"][...] = 1.0

    assert got["a"].shape == (4, 5, 2)
    assert got["b"].shape == (4, 5)
    assert rows.any()


def test_rows_of_another_space_are_refused():
    space = spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Discrete(3))

    with pytest.raises(ValueError, match=r"flat must hold rows of at least 8 elements of uint8; got torch\.float32"):
        unflatten_observations(torch.zeros(4, 16), space)
    with pytest.raises(ValueError, match="rows of at least 16 elements"):
        unflatten_observations(torch.zeros(4, 12, dtype=torch.uint8), space)


@pytest.mark.parametrize("give_layout", [True, False])
def test_it_compiles_without_a_break(give_layout):
    space = spaces.Dict(
        a=spaces.Box(0, 255, (3, 5), np.uint8), b=spaces.Tuple([spaces.Discrete(4), spaces.Box(-1, 1, ())])
    )
    layout = Layout(space)
    rows = torch.from_numpy(np.stack([layout.flatten(space.sample()) for _ in range(3)]))
    described = layout if give_layout else space

    got = torch.compile(lambda x: unflatten_observations(x, described), fullgraph=True, backend="eager")(rows)

    expected = unflatten_observations(rows, described)
    assert torch.equal(got["a"], expected["a"])
    assert torch.equal(got["b"][0], expected["b"][0])
    assert torch.equal(got["b"][1], expected["b"][1])
