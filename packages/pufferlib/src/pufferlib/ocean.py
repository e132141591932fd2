"""The names of `puffer_ocean`, where PufferLib's users look for them."""

from puffer_ocean import *  # noqa: F403
from puffer_ocean import __all__  # noqa: F401
