"""Gymnasium, PettingZoo, gym and dm_env environments of any space as PufferEnvs."""

import importlib.metadata

from puffer_emulate.dm_env import DmEnvPufferEnv
from puffer_emulate.emulate import creator_of, emulate
from puffer_emulate.gymnasium import GymnasiumPufferEnv
from puffer_emulate.legacy_gym import LegacyGymPufferEnv
from puffer_emulate.pettingzoo import PettingZooPufferEnv
from puffer_emulate.registration import env_specs

__version__ = importlib.metadata.version("puffer-emulate")

__all__ = [
    "DmEnvPufferEnv",
    "GymnasiumPufferEnv",
    "LegacyGymPufferEnv",
    "PettingZooPufferEnv",
    "creator_of",
    "emulate",
    "env_specs",
]
