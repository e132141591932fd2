import pickle

import pytest

from puffer_spaces import CheckError, MissingAdapter, MissingSuite, PufferError, UnknownEnvError


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (UnknownEnvError("x"), ValueError),
        (MissingAdapter("x"), TypeError),
        (MissingSuite("x"), ImportError),
        (CheckError("x"), AssertionError),
    ],
)
def test_each_error_is_a_puffer_error_and_a_builtin_one(error, builtin):
    assert isinstance(error, PufferError)
    assert isinstance(error, builtin)


def test_an_unknown_env_error_survives_a_process_boundary():
    error = UnknownEnvError("ocean-pog", ["ocean-pong"], ["The environments of x could not be read."])

    copy = pickle.loads(pickle.dumps(error))

    assert (copy.env_id, copy.near) == ("ocean-pog", ("ocean-pong",))
    assert str(copy) == str(error)
