"""Errors whose message is a sentence for the person at the keyboard.

The command line names them before anything that takes long to import is there, so this module imports nothing heavy.
"""

import contextlib
import traceback
from collections.abc import Iterator

_OWN_MODULES = "puffer"


class UsageError(ValueError):
    """What the user asked for cannot be done; nothing was begun. The exit code is 2."""


class CheckpointError(RuntimeError):
    """A checkpoint is missing, damaged, refused, or belongs to something else. The exit code is 2."""


class RunError(RuntimeError):
    """A run or an evaluation that had begun cannot go on. The exit code is 1."""


class NonFiniteError(RunError):
    """An observation, a reward, an output of the policy, a loss or a gradient is infinite or not a number."""


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Turn an argument error that our own checks raise inside the block into a UsageError."""
    try:
        yield
    except UsageError:
        raise
    except (ValueError, TypeError) as error:
        if is_argument_error(error):
            raise UsageError(str(error)) from error
        raise


@contextlib.contextmanager
def no_exit() -> Iterator[None]:
    """Turn an exit that an environment or a policy calls inside the block into a RunError; a run ends by its own word.

    Raises:
        RunError: With the code of the exit.
    """
    try:
        yield
    except SystemExit as error:
        raise RunError(
            f"an environment or a policy must not end the process; one called sys.exit({error.code!r}). "
            "Raise an error there instead."
        ) from error


def is_argument_error(error: BaseException | None) -> bool:
    """Say whether an error is what one of our own checks says about an argument.

    A ValueError or TypeError out of other code (a user's environment, torch) is no sentence for users: it keeps its
    traceback.
    """
    if not isinstance(error, ValueError | TypeError):
        return False
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1].f_globals.get("__name__", "")).startswith(_OWN_MODULES)
