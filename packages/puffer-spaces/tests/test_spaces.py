from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

from puffer_spaces import action_nvec, as_gymnasium_space, joint_space


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Discrete(4), spaces.MultiDiscrete([4, 4, 4], dtype=np.int32)),
        (spaces.Discrete(5, start=-2), spaces.MultiDiscrete([5, 5, 5], dtype=np.int32, start=[-2, -2, -2])),
        (spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([[2, 3]] * 3, dtype=np.int32)),
        (spaces.MultiBinary(2), spaces.MultiBinary((3, 2))),
        (spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-1, 1, (3, 2), np.float32)),
        (spaces.Box(0, 255, (2, 2), np.uint8), spaces.Box(0, 255, (3, 2, 2), np.uint8)),
    ],
    ids=str,
)
def test_joint_space_has_a_row_per_agent(space, expected):
    assert joint_space(space, 3) == expected


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(5, start=-2), spaces.MultiDiscrete([4, 5], start=[3, 1]), spaces.Box(-1, 1, (2,))],
    ids=str,
)
def test_every_value_of_an_agent_is_valid_in_its_row(space):
    joint = joint_space(space, 4)

    for _ in range(50):
        rows = np.stack([space.sample() for _ in range(4)])
        assert joint.contains(rows.astype(joint.dtype))
        assert all(space.contains(row.astype(space.dtype)) for row in joint.sample())


@pytest.mark.parametrize(
    "space", [spaces.Discrete(1000), spaces.MultiDiscrete([1000, 9]), spaces.Box(-1, 1, (2,))], ids=str
)
def test_a_seeded_joint_space_repeats_its_samples_and_columns_differ(space):
    joint = joint_space(space, 4)
    joint.seed(7)
    first = np.array([joint.sample() for _ in range(20)])
    joint.seed(7)
    second = np.array([joint.sample() for _ in range(20)])

    assert (first == second).all()
    assert all(not np.array_equal(first[:, i], first[:, j]) for i in range(4) for j in range(i))


def test_joint_space_refuses_nested_spaces_and_no_agents():
    with pytest.raises(TypeError, match="row_space"):
        joint_space(spaces.Tuple([spaces.Discrete(2)]), 3)
    with pytest.raises(ValueError, match="num_agents must be at least 1; got 0"):
        joint_space(spaces.Discrete(2), 0)


def foreign(**attributes):
    return SimpleNamespace(**attributes)


class MultiBinary:
    n = 3


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (foreign(n=4), spaces.Discrete(4)),
        (foreign(n=np.int64(4), start=-1), spaces.Discrete(4, start=-1)),
        (foreign(nvec=[2, 3], dtype=np.int32), spaces.MultiDiscrete([2, 3], dtype=np.int32)),
        (MultiBinary(), spaces.MultiBinary(3)),
        (
            foreign(low=np.zeros((2, 2)), high=np.ones((2, 2)), shape=(2, 2), dtype=np.dtype("float64")),
            spaces.Box(0, 1, (2, 2), np.float64),
        ),
        (foreign(low=0, high=255, shape=(4,), dtype="uint8"), spaces.Box(0, 255, (4,), np.uint8)),
        (
            foreign(spaces={"b": foreign(n=2), "a": foreign(n=3)}),
            spaces.Dict(a=spaces.Discrete(3), b=spaces.Discrete(2)),
        ),
        ([foreign(n=2), spaces.Discrete(3)], spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])),
        ({"x": (foreign(n=2),)}, spaces.Dict(x=spaces.Tuple([spaces.Discrete(2)]))),
    ],
    ids=str,
)
def test_spaces_of_other_libraries_are_converted_by_what_they_have(space, expected):
    assert as_gymnasium_space(space) == expected


def test_gymnasium_spaces_are_returned_as_they_are():
    for space in (spaces.Discrete(2), spaces.Text(3), spaces.Dict(a=spaces.Tuple([spaces.Discrete(2)]))):
        assert as_gymnasium_space(space) is space


def test_what_looks_like_no_space_is_refused():
    with pytest.raises(TypeError, match="space must be a Gymnasium space or look like one"):
        as_gymnasium_space(3)


def test_choices_are_counted_through_the_structure():
    space = spaces.Dict(
        a=spaces.Discrete(4, start=2), b=spaces.Tuple([spaces.MultiDiscrete([[2, 3], [4, 5]]), spaces.MultiBinary(2)])
    )

    assert action_nvec(space).tolist() == [4, 2, 3, 4, 5, 2, 2]
    assert action_nvec(spaces.Discrete(3)).dtype == np.int64
    with pytest.raises(TypeError, match="action_nvec takes discrete spaces"):
        action_nvec(spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))]))


def test_a_joint_space_never_wraps_a_choice_around():
    for space in (spaces.Discrete(3, start=2**40), spaces.Discrete(2**40), spaces.MultiDiscrete([2, 2**40])):
        with pytest.raises(ValueError, match="must have values that fit int32"):
            joint_space(space, 2)


def test_a_space_without_leaves_has_no_choices():
    assert action_nvec(spaces.Dict({})).tolist() == action_nvec(spaces.Tuple([])).tolist() == []
