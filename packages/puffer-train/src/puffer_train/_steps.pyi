from typing import Any

import numpy as np
import numpy.typing as npt
import torch

class UsualSteps:
    def __init__(
        self,
        rows: dict[str, npt.NDArray[Any]],
        experience: dict[str, npt.NDArray[Any]],
        payload: list[npt.NDArray[np.uint8]],
        horizon: int,
    ) -> None: ...
    def take_outcome(
        self,
        ids: npt.NDArray[np.int64],
        rewards: npt.NDArray[np.float32],
        terminals: npt.NDArray[np.bool_],
        truncations: npt.NDArray[np.bool_],
        masks: npt.NDArray[np.bool_],
        invalid: npt.NDArray[np.bool_],
        resets: npt.NDArray[np.bool_],
    ) -> bool | None: ...
    def store(
        self,
        ids: npt.NDArray[np.int64],
        values: torch.Tensor,
        log_probs: torch.Tensor,
        masks: npt.NDArray[np.bool_],
        resets: npt.NDArray[np.bool_],
        payload: tuple[torch.Tensor, ...],
    ) -> int | None: ...

def is_range(ids: npt.NDArray[np.int64]) -> bool: ...
