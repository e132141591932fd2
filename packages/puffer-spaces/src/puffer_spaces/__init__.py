"""PufferEnv, its buffers, spaces and their flat layout, seeding, registry and checks."""

from importlib.metadata import version as _version

from puffer_spaces.adapt import Adapter, adapters, as_puffer_env
from puffer_spaces.buffers import Array, Buffers
from puffer_spaces.checks import Finding, check_env
from puffer_spaces.coercion import as_flag, as_info, as_reward, copy_actions
from puffer_spaces.env import PufferEnv, StepResult
from puffer_spaces.episodes import Episodes, episode_dtype
from puffer_spaces.errors import CheckError, MissingAdapter, MissingSuite, PufferError, UnknownEnvError
from puffer_spaces.layout import ActionLayout, BoundRow, Layout, action_space_for
from puffer_spaces.leaves import Leaf
from puffer_spaces.registry import EnvSpec, Parameter, env_ids, load_config, load_object, make_env, register, spec
from puffer_spaces.resets import reset_env
from puffer_spaces.seeding import hash2, hash3, mix, world_seed, world_seeds
from puffer_spaces.single_agent import SingleAgentEnv
from puffer_spaces.spaces import action_nvec, as_gymnasium_space, joint_space

__version__ = _version("puffer-spaces")

__all__ = [
    "ActionLayout",
    "Adapter",
    "Array",
    "BoundRow",
    "Buffers",
    "CheckError",
    "EnvSpec",
    "Episodes",
    "Finding",
    "Layout",
    "Leaf",
    "MissingAdapter",
    "MissingSuite",
    "Parameter",
    "PufferEnv",
    "PufferError",
    "SingleAgentEnv",
    "StepResult",
    "UnknownEnvError",
    "action_nvec",
    "action_space_for",
    "adapters",
    "as_flag",
    "as_gymnasium_space",
    "as_info",
    "as_puffer_env",
    "as_reward",
    "check_env",
    "copy_actions",
    "env_ids",
    "episode_dtype",
    "hash2",
    "hash3",
    "joint_space",
    "load_config",
    "load_object",
    "make_env",
    "mix",
    "register",
    "reset_env",
    "spec",
    "world_seed",
    "world_seeds",
]
