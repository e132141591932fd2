"""What a checkpoint holds: what was learned, which all processes share, and where each of them is."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch

from puffer_train.checkpoint import load_policy_state
from puffer_train.distributed import Ranks
from puffer_train.generator import PrivateGenerator
from puffer_train.interval import Interval
from puffer_train.normalization import ObservationNormalizer
from puffer_train.optim import Optimizer
from puffer_train.rewards import ReturnScale
from puffer_train.rollout import Rollout


@dataclass
class RunState:
    """The parts of a run that have a state, and how it is gathered from all processes and given back to them.

    The state of a run has the learned parts, those of rank 0, and as `other_ranks` a list with those of each other.
    """

    policy: torch.nn.Module
    optimizer: Optimizer
    normalizer: ObservationNormalizer
    return_scale: ReturnScale
    generator: PrivateGenerator
    interval: Interval
    rollout: Rollout
    vec: Any
    ranks: Ranks

    def gather(self) -> dict[str, Any]:
        """Return the state of all processes on rank 0, and an empty dict on the others. Each has to call it."""
        own = self._own()
        parts = self.ranks.gather(own)
        return {**self._learned(), **own, "other_ranks": parts[1:]} if parts else {}

    def copy_of_learned(self) -> dict[str, Any]:
        """Return a copy of what was learned as a state without environments: from it a run begins new episodes."""
        none = dict.fromkeys(("returns", "interval", "rollout", "vec"))
        return {**self._learned(), **none, "generator": self.generator.state_dict(), "other_ranks": []}

    def load(self, state: dict[str, Any], epoch: int) -> None:
        """Go back to a state; of several processes each is given the whole of it.

        Without a state of the environments, or with another number of them or of processes, new episodes begin.
        """
        load_policy_state(self.policy, state["policy"])
        # A copy: torch's optimizers go on in the tensors that they are given.
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        self.normalizer.load_state_dict(state["normalizer"])
        self.return_scale.load_state_dict(state["return_scale"])
        parts = [state, *state["other_ranks"]]
        fits = len(parts) == self.ranks.world_size
        own = parts[self.ranks.rank] if fits else state
        self.generator.load_state_dict(own["generator"])
        if own["interval"] is not None and (fits or self.ranks.is_first):
            self.interval.load_state_dict(own["interval"])
        if fits and own["vec"] is not None and self.rollout.fits(own["rollout"]):
            self.return_scale.returns.copy_(own["returns"])
            self.vec.set_state(own["vec"])
            self.rollout.load_state_dict(own["rollout"])
        else:
            self.return_scale.returns.zero_()
            self.rollout.start_anew(epoch)

    def _learned(self) -> dict[str, Any]:
        """Return a copy, which the next update leaves as it is."""
        return {
            "policy": {name: value.detach().clone() for name, value in self.policy.state_dict().items()},
            "optimizer": copy.deepcopy(self.optimizer.state_dict()),
            "normalizer": copy.deepcopy(self.normalizer.state_dict()),
            "return_scale": self.return_scale.state_dict(),
        }

    def _own(self) -> dict[str, Any]:
        vec_state = None
        if self.vec.has_state and self.rollout.is_started:
            self.vec.drain()
            vec_state = self.vec.get_state()
        return {
            "generator": self.generator.state_dict(),
            "returns": self.return_scale.returns.clone(),
            "rollout": self.rollout.state_dict(),
            "interval": self.interval.state_dict(),
            "vec": vec_state,
        }
