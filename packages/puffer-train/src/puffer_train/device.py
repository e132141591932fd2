"""Where the policy runs."""

import torch

from puffer_train.config import ConfigError


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """Return the device that a setting means; auto is CUDA where there is one.

    Args:
        name: auto, cpu, cuda, cuda:0 ...
        local_rank: Number of this process on its machine: auto and cuda give each process a GPU of its own.

    Raises:
        ConfigError: If there is no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and torch.cuda.device_count() > 1:
        name = f"cuda:{local_rank % torch.cuda.device_count()}"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device must be auto, cpu, cuda, cuda:0 ...; got {name!r}.") from error
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:  # as torch says that it has no such device
        raise ConfigError(f"device must be one that this machine has; got {name}. Use cpu or auto.") from error
    return device
