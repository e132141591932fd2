"""Named sets of training fields, other words for fields, and which fields may change while a run goes on."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "cleanrl": {
        "horizon": 128,
        "update_epochs": 4.0,
        "learning_rate": 2.5e-4,
        "schedule": "linear",
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "clip_coef": 0.2,
        "vf_coef": 0.5,
        "vf_clip_coef": 0.2,
        "ent_coef": 0.01,
        "ent_coef_final": None,
        "max_grad_norm": 0.5,
        "optimizer": "adam",
        "adam_eps": 1e-5,
        "weight_decay": 0.0,
        "normalize_advantages": "minibatch",
        "normalize_observations": False,
        "normalize_returns": False,
        "reward_clip": None,
        "recompute_advantages": "never",
        "minibatch_unit": "transition",
        "objective": "ppo",
        "target_kl": None,
    },
    "puffer3": {
        "horizon": 64,
        "update_epochs": 1.0,
        "learning_rate": 0.015,
        "schedule": "cosine",
        "gamma": 0.995,
        "gae_lambda": 0.90,
        "clip_coef": 0.2,
        "vf_coef": 2.0,
        "vf_clip_coef": 0.2,
        "ent_coef": 0.001,
        "ent_coef_final": None,
        "max_grad_norm": 1.5,
        "optimizer": "muon",
        "adam_eps": 1e-12,
        "weight_decay": 0.0,
        "normalize_advantages": "minibatch",
        "normalize_observations": False,
        "normalize_returns": False,
        "reward_clip": 1.0,
        "recompute_advantages": "minibatch",
        "minibatch_unit": "segment",
        "objective": "puffer3",
        "target_kl": None,
    },
}
"""Named sets of `TrainConfig` fields. A preset replaces each field that it names.

`default`: the recommended settings. `cleanrl`: equal, update by update, to a plain textbook PPO. `puffer3`: the
objective of PufferLib 3.0, its known faults included, for comparisons.
"""

ALIASES: dict[str, str] = {
    "bptt_horizon": "horizon",
    "num_steps": "horizon",
    "n_steps": "horizon",
    "n_epochs": "update_epochs",
    "replay_ratio": "update_epochs",
    "lr": "learning_rate",
    "value_coef": "vf_coef",
    "entropy_coef": "ent_coef",
    "clip_range": "clip_coef",
    "norm_adv": "normalize_advantages",
    "max_minibatch_size": "microbatch_size",
    "total_agent_steps": "total_timesteps",
}
"""Other words for a field, as users of other libraries know them."""

CHANGEABLE = frozenset(
    {
        "learning_rate", "anneal_lr", "schedule", "min_lr_ratio", "total_timesteps", "num_iterations", "update_epochs",
        "gamma", "gae_lambda", "rho_clip", "trace_clip", "clip_coef", "vf_coef", "vf_clip_coef", "ent_coef",
        "ent_coef_final", "max_grad_norm", "reward_clip", "target_kl", "stop_after_updates",
        "priority_alpha", "priority_beta",
    }
)  # fmt: skip
"""Fields that may be changed between updates (`PuffeRL.change`)."""
