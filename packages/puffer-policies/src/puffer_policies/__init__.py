"""Policies for reinforcement learning: encoders, memories, action heads."""

from importlib.metadata import version as _version

from puffer_policies.attention import AttentionMemory
from puffer_policies.default import CNNS, MEMORIES, DefaultPolicy, default_policy
from puffer_policies.distributions import (
    ActionHead,
    AutoregressiveHead,
    BernoulliHead,
    BetaHead,
    CategoricalHead,
    CompositeHead,
    NonFiniteParametersError,
    NormalHead,
    TanhNormalHead,
    make_action_head,
)
from puffer_policies.encoders import MLP, MultiInput, make_encoder
from puffer_policies.images import ImpalaCNN, NatureCNN
from puffer_policies.independent import IndependentPolicies
from puffer_policies.initialization import layer_init
from puffer_policies.linear import Linear
from puffer_policies.memory import GRU, LSTM, Memory, MinGRU
from puffer_policies.observations import unflatten_observations
from puffer_policies.policies import Policy, TrainablePolicy
from puffer_policies.protocol import AdaptedPolicy, adapt_policy
from puffer_policies.recurrent import LSTMWrapper, RecurrentPolicy
from puffer_policies.residual import ResidualBlock, ResidualMLP
from puffer_policies.spaces import env_spaces
from puffer_policies.stock import Convolutional, Default, ProcgenResnet

__version__ = _version("puffer-policies")

__all__ = [
    "CNNS",
    "GRU",
    "LSTM",
    "MEMORIES",
    "MLP",
    "ActionHead",
    "AdaptedPolicy",
    "AttentionMemory",
    "AutoregressiveHead",
    "BernoulliHead",
    "BetaHead",
    "CategoricalHead",
    "CompositeHead",
    "Convolutional",
    "Default",
    "DefaultPolicy",
    "ImpalaCNN",
    "IndependentPolicies",
    "LSTMWrapper",
    "Linear",
    "Memory",
    "MinGRU",
    "MultiInput",
    "NatureCNN",
    "NonFiniteParametersError",
    "NormalHead",
    "Policy",
    "ProcgenResnet",
    "RecurrentPolicy",
    "ResidualBlock",
    "ResidualMLP",
    "TanhNormalHead",
    "TrainablePolicy",
    "adapt_policy",
    "default_policy",
    "env_spaces",
    "layer_init",
    "make_action_head",
    "make_encoder",
    "unflatten_observations",
]
