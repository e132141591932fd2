"""Composable wrappers. Those of rows take any PufferEnv, of one agent or many; those of steps a foreign env."""

from puffer_emulate.wrappers.clip import ClipAction, ClipReward
from puffer_emulate.wrappers.frame_stack import FrameStack
from puffer_emulate.wrappers.limits import ActionRepeat, ParallelActionRepeat, ParallelTimeLimit
from puffer_emulate.wrappers.normalize import NormalizeObservation, NormalizeReward
from puffer_emulate.wrappers.resize import Resize
from puffer_emulate.wrappers.statistics import EpisodeStatistics
from puffer_emulate.wrappers.wrapper import PufferWrapper

__all__ = [
    "ActionRepeat",
    "ClipAction",
    "ClipReward",
    "EpisodeStatistics",
    "FrameStack",
    "NormalizeObservation",
    "NormalizeReward",
    "ParallelActionRepeat",
    "ParallelTimeLimit",
    "PufferWrapper",
    "Resize",
]
