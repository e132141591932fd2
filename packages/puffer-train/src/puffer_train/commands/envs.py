"""`puffer envs`: list what can be trained."""

import sys

from puffer_spaces import env_ids, spec
from puffer_train.environments import why_unavailable
from puffer_train.errors import UsageError

_USAGE = """usage: puffer envs [WORD ...]

List the ids of all installed environments, one a line; with words, those that contain every word. Behind an id that
cannot be made here stands why."""


def main(words: list[str]) -> int:
    """List the environments that are installed."""
    if "-h" in words or "--help" in words:
        sys.stdout.write(f"{_USAGE}\n")
        return 0
    for word in words:
        if word.startswith("-"):
            raise UsageError(f"puffer envs has no option {word}. Give words to look for, such as: puffer envs ocean")
    found = [env_id for env_id in env_ids() if all(word.lower() in env_id.lower() for word in words)]
    if words and not found:
        raise UsageError(f"an environment must contain {' and '.join(words)}; none does. puffer envs lists all.")
    for env_id in found:
        reason = why_unavailable(spec(env_id))
        sys.stdout.write(f"{env_id}\n" if reason is None else f"{env_id}  (cannot be made here: {reason})\n")
    return 0
