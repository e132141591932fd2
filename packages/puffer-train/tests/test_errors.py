import pytest

import puffer_vector
from puffer_train.errors import UsageError, usage_errors


def test_only_errors_of_our_own_checks_become_sentences(walk_spec):
    with pytest.raises(UsageError, match="num_envs must be at least 1"), usage_errors():
        puffer_vector.make(walk_spec, num_envs=0)
    with pytest.raises(ValueError, match="invalid literal") as raised, usage_errors():
        int("x")
    assert not isinstance(raised.value, UsageError)
