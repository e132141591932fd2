"""The names of `puffer_emulate`, where PufferLib's users look for them."""

from puffer_emulate import *  # noqa: F403
from puffer_emulate import __all__  # noqa: F401
