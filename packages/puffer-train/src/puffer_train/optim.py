"""Optimizers. One object, whichever kinds of parameters the policy has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from puffer_train.optim_host import HostAdamW, is_small

if TYPE_CHECKING:
    from puffer_train.config import TrainConfig


class Optimizer:
    """One or two torch optimizers that step together and share their learning rate.

    Args:
        parts: Torch optimizers over disjoint parameters.
    """

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts

    @property
    def learning_rate(self) -> float:
        """Step size of the next step."""
        return float(self.parts[0].param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = value

    def step(self) -> None:
        """Update the parameters by their gradients."""
        for part in self.parts:
            if not (isinstance(part, HostAdamW) and part.step_by_loop()):
                part.step()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for part in self.parts:
            for group in part.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return moments and settings."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state that `state_dict` returned: its moments and learning rate, under the settings given here.

        Raises:
            ValueError: If it is of another optimizer or of other parameters.
        """
        own, given = _kinds(part.param_groups for part in self.parts), _kinds(x["param_groups"] for x in state["parts"])
        if own != given:
            raise ValueError(
                f"the optimizer's state must be of {own}; got one of {given}. "
                "Resume with the optimizer that the run began with."
            )
        for part, part_state in zip(self.parts, state["parts"], strict=True):
            _load_moments(part, part_state)


def _kinds(groups: Iterable[list[dict[str, Any]]]) -> str:
    return " and ".join("Adam" if "betas" in part[0] else "Muon" for part in groups)


def _load_moments(part: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a state without its settings, which torch would put over those that a resumed run was given."""
    settings = [{name: x for name, x in group.items() if name not in ("params", "lr")} for group in part.param_groups]
    part.load_state_dict(state)
    for group, own in zip(part.param_groups, settings, strict=True):
        group.update(own)


def make_optimizer(config: TrainConfig, parameters: Iterable[torch.nn.Parameter]) -> Optimizer:
    """Make the optimizer that `config.optimizer` names.

    Muon (Jordan et al. 2024) orthogonalises the update of each matrix. Vectors, scalars, convolutions and matrices with
    one row go to AdamW. Its step is scaled to the root mean square of AdamW's, so that one learning rate fits both; the
    puffer3 objective keeps Muon's original scale, for which its learning rate was chosen.

    Raises:
        ValueError: If nothing is to be trained.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if not trained:
        raise ValueError("the policy must have parameters that require gradients; got none.")
    fused = all(parameter.is_floating_point() for parameter in trained)
    adam: dict[str, Any] = {
        "lr": config.learning_rate,
        "betas": (config.adam_beta1, config.adam_beta2),
        "eps": config.adam_eps,
        "fused": fused,
    }
    if is_small(trained) and config.optimizer != "muon":
        weight_decay = config.weight_decay if config.optimizer == "adamw" else 0.0
        return Optimizer(HostAdamW(trained, weight_decay=weight_decay, **adam))
    if config.optimizer == "adam":
        return Optimizer(torch.optim.Adam(trained, **adam))
    if config.optimizer == "adamw":
        return Optimizer(torch.optim.AdamW(trained, weight_decay=config.weight_decay, **adam))
    if not hasattr(torch.optim, "Muon"):
        raise ValueError(f"optimizer=muon needs torch.optim.Muon; torch {torch.__version__} has none. Use adamw.")
    matrices = [parameter for parameter in trained if parameter.ndim == 2 and min(parameter.shape) > 1]
    others = [parameter for parameter in trained if parameter.ndim != 2 or min(parameter.shape) <= 1]
    parts: list[torch.optim.Optimizer] = []
    if matrices:
        muon = torch.optim.Muon(
            matrices,
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            momentum=config.muon_momentum,
            adjust_lr_fn="original" if config.objective == "puffer3" else "match_rms_adamw",
        )
        parts.append(muon)
    if others:
        parts.append(torch.optim.AdamW(others, weight_decay=config.weight_decay, **adam))
    return Optimizer(*parts)
