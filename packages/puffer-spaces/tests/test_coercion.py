import numpy as np
import pytest

from puffer_spaces import as_flag, as_reward
from puffer_spaces.coercion import as_info, copy_actions


@pytest.mark.parametrize("value", [1.5, np.float32(1.5), np.float64(1.5), np.array(1.5), np.array([1.5]), [1.5]])
def test_rewards_of_one_number_are_floats(value):
    assert type(as_reward(value)) is float
    assert as_reward(value) == 1.5


@pytest.mark.parametrize("value", [True, np.True_, 1, np.int64(1), np.array(True), np.array([1])])
def test_flags_of_one_number_are_bools(value):
    assert as_flag(value) is True
    assert as_flag(np.zeros_like(value)) is False
    assert as_reward(value) == 1.0


def test_other_shapes_and_kinds_are_refused():
    with pytest.raises(ValueError, match=r"reward must be one number; got an array of shape \(2,\)"):
        as_reward(np.zeros(2))
    with pytest.raises(ValueError, match=r"done must be one number; got an array of shape \(0,\)"):
        as_flag(np.zeros(0), "done")
    with pytest.raises(TypeError, match=r"reward must be one number; got None"):
        as_reward(None)
    with pytest.raises(TypeError, match=r"terminated must be one number; got 'no'"):
        as_flag("no")


def test_a_reward_beyond_floats_and_a_flag_of_nan_are_refused():
    with pytest.raises(ValueError, match="reward must fit a float; got an integer of 1329 bits"):
        as_reward(10**400)
    with pytest.raises(ValueError, match="terminated must be true or false; got nan"):
        as_flag(np.float32("nan"))


def test_an_info_is_a_mapping_or_nothing():
    info = {"score": 1}

    assert as_info(info) is info
    assert as_info(None) == {}
    for value in ([], [1], "score", 3, True):
        with pytest.raises(TypeError, match="info must be a dict; got"):
            as_info(value)


@pytest.mark.parametrize(
    ("dtype", "actions", "error", "words"),
    [
        (np.int32, [0, 2**40], ValueError, r"actions of Env must fit int32; got values in \[0, 1099511627776\]"),
        (np.uint8, [-1, 0], ValueError, r"actions of Env must fit uint8; got values in \[-1, 0\]"),
        (np.int32, [0.0, 1.0], TypeError, "actions of Env must be castable to int32; got float64"),
        (np.float32, [None, 1], TypeError, "actions of Env must be castable to float32; got object"),
        (np.int32, [[0, 1]], ValueError, r"actions of Env must have shape \(2,\); got \(1, 2\)"),
        (np.int32, 0, ValueError, r"actions of Env must have shape \(2,\); got \(\)"),
    ],
)
def test_actions_are_never_wrapped_around_or_broadcast(dtype, actions, error, words):
    target = np.ones(2, dtype)

    with pytest.raises(error, match=words):
        copy_actions(actions, target, "Env")
    assert target.tolist() == [1, 1]


def test_actions_are_cast_within_their_kind():
    target = np.zeros(2, np.int32)
    copy_actions(np.array([1, 2], np.int64), target, "Env")

    assert target.tolist() == [1, 2]
