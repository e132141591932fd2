import numpy as np
import numpy.typing as npt
import torch

def fill_uniform(
    out: npt.NDArray[np.float32], key: int, steps: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> None: ...
def hash_range(out: npt.NDArray[np.uint64], key: int) -> None: ...
def estimate_advantages(
    rewards: npt.NDArray[np.float32],
    values: npt.NDArray[np.float32],
    final_values: npt.NDArray[np.float32],
    terminals: npt.NDArray[np.uint8],
    truncations: npt.NDArray[np.uint8],
    valid: npt.NDArray[np.uint8],
    ratios: npt.NDArray[np.float32] | None,
    gamma: float,
    gae_lambda: float,
    rho_clip: float,
    trace_clip: float,
    advantages: npt.NDArray[np.float32],
    targets: npt.NDArray[np.float32],
) -> None: ...
def add_moments(
    rows: npt.NDArray[np.float32],
    valid: npt.NDArray[np.uint8],
    mean: npt.NDArray[np.float64],
    totals: npt.NDArray[np.float64],
) -> None: ...
def sample_categorical(
    logits: npt.NDArray[np.float32],
    values: npt.NDArray[np.float32],
    noise: npt.NDArray[np.float32],
    actions: npt.NDArray[np.int32],
    log_probs: npt.NDArray[np.float32],
) -> bool: ...
def categorical_terms(
    logits: npt.NDArray[np.float32],
    choices: npt.NDArray[np.int32],
    log_table: npt.NDArray[np.float32],
    log_probs: npt.NDArray[np.float32],
    entropies: npt.NDArray[np.float32],
) -> bool: ...
def categorical_gradient(
    log_table: npt.NDArray[np.float32],
    choices: npt.NDArray[np.int32],
    entropies: npt.NDArray[np.float32],
    by_log_prob: npt.NDArray[np.float32],
    by_entropy: npt.NDArray[np.float32],
    by_logit: npt.NDArray[np.float32],
) -> None: ...
def ppo_terms(
    log_probs: npt.NDArray[np.float32],
    entropies: npt.NDArray[np.float32],
    values: npt.NDArray[np.float32],
    old_log_probs: npt.NDArray[np.float32],
    old_values: npt.NDArray[np.float32],
    advantages: npt.NDArray[np.float32],
    targets: npt.NDArray[np.float32],
    weights: npt.NDArray[np.float32],
    clip_coef: float,
    vf_coef: float,
    vf_clip_coef: float,
    ent_coef: float,
    ratios: npt.NDArray[np.float32],
    gradients: npt.NDArray[np.float32],
    sums: npt.NDArray[np.float32],
) -> float: ...
def clip_gradients(gradients: list[torch.Tensor], max_norm: float) -> float: ...
def adamw_step(
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    means: list[torch.Tensor],
    squares: list[torch.Tensor],
    steps: list[torch.Tensor],
    learning_rate: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
) -> None: ...
