import numpy as np
import pytest

from puffer_spaces import as_flag, as_reward


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
