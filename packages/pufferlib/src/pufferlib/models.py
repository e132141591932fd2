"""The names of `puffer_policies`, where PufferLib's users look for them."""

from puffer_policies import *  # noqa: F403
from puffer_policies import __all__  # noqa: F401
