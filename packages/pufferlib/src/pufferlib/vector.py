"""The names of `puffer_vector`, where PufferLib's users look for them."""

from puffer_vector import *  # noqa: F403
from puffer_vector import __all__  # noqa: F401
