"""The names of `puffer_ocean`, where PufferLib's users look for them; every environment has a class: `Breakout`."""

from puffer_ocean import *  # noqa: F403
from puffer_ocean import __all__, __dir__, __getattr__  # noqa: F401
