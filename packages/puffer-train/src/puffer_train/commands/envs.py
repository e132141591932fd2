"""`puffer envs`: list what can be trained."""

import sys

from puffer_spaces import env_ids
from puffer_train.errors import UsageError

_USAGE = """usage: puffer envs [WORD ...]

List the ids of all installed environments, one a line; with words, those that contain every word."""


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
    sys.stdout.write("".join(f"{env_id}\n" for env_id in found))
    return 0
