"""The names of `puffer_spaces`, where PufferLib's users look for them."""

from puffer_spaces import *  # noqa: F403
from puffer_spaces import __all__  # noqa: F401
