import numpy as np
import numpy.typing as npt

def fill_uniform(
    out: npt.NDArray[np.float32], key: int, steps: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> None: ...
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
