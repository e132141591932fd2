"""How many slots a vector env has and how many of them make a batch, worked out and checked before anything is built.

A unit is what `num_envs` counts: a world of a batched creator, else an env object. A slot is what one worker steps at
once; a batch is a whole number of slots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from puffer_vector.arguments import checked_choice, checked_integer

Order = Literal["fixed", "first_come"]


@dataclass(frozen=True)
class Plan:
    """Sizes of a vector env.

    Attributes:
        num_units: Units in all.
        num_slots: Slots in all; num_units is a multiple of it.
        slots_per_batch: Slots in one batch.
        num_workers: Threads or processes that step, counting the calling thread where it takes part.
        order: Whether batches come in a fixed order, or whichever is ready first.
    """

    num_units: int
    num_slots: int
    slots_per_batch: int
    num_workers: int
    order: Order = "fixed"

    @property
    def units_per_slot(self) -> int:
        """Units that one slot steps."""
        return self.num_units // self.num_slots

    @property
    def is_sync(self) -> bool:
        """Whether a batch holds every slot."""
        return self.slots_per_batch == self.num_slots

    def grouped(self) -> Plan:
        """Return the plan with one slot a batch, for workers that share the work of each batch."""
        if self.num_slots % self.slots_per_batch:
            return self
        return Plan(self.num_units, self.num_slots // self.slots_per_batch, 1, self.num_workers, self.order)


def make_plan(
    num_envs: int,
    *,
    num_workers: int | None,
    batch_size: int | None,
    mode: str,
    order: str,
    surplus_envs: int,
    envs_per_worker: int | None,
    cpus: int,
    one_worker: bool = False,
) -> Plan:
    """Check the sizes a caller asks for and fill in the others.

    Args:
        num_envs: Units in a batch of a synchronous env, or in all when batch_size is given.
        num_workers: Workers, or None to choose the largest valid number up to `cpus`.
        batch_size: Units in a batch, or None.
        mode: "sync", or "async" for batches of half the units unless batch_size or surplus_envs say otherwise.
        order: "fixed" or "first_come".
        surplus_envs: Units beyond a batch of num_envs.
        envs_per_worker: Units a worker, another way to say num_workers.
        cpus: CPUs this process may use.
        one_worker: The backend has no workers beside the calling thread.

    Raises:
        ValueError: The sizes do not fit together.
        TypeError: A size is no integer.
    """
    num_envs = checked_integer("num_envs", num_envs, 1, "Arguments of the env itself go to env_args= and env_kwargs=.")
    num_workers = _checked_size("num_workers", num_workers)
    batch_size = _checked_size("batch_size", batch_size)
    envs_per_worker = _checked_size("envs_per_worker", envs_per_worker)
    surplus_envs = checked_integer("surplus_envs", surplus_envs)
    checked_choice("mode", mode, ("sync", "async"))
    checked_choice("order", order, ("fixed", "first_come"))
    total, batch = _total_and_batch(num_envs, batch_size, mode, surplus_envs)
    if order == "fixed" and total % batch:
        raise ValueError(
            f"num_envs must be a multiple of batch_size when batches come in a fixed order; got {total} envs, "
            f'batch_size={batch}. Use a batch_size of {_near_divisors(total, batch)}, or order="first_come".'
        )
    if one_worker:
        if num_workers not in (None, 1) or envs_per_worker not in (None, total):
            raise ValueError(
                f'backend "serial" has one worker, the calling thread; got num_workers={num_workers}, '
                f'envs_per_worker={envs_per_worker}. Leave them out, or use backend="threads" or "processes".'
            )
        num_slots = total // math.gcd(total, batch)
        return Plan(total, num_slots, batch * num_slots // total, 1, order)  # type: ignore[arg-type]
    workers = _num_workers(total, batch, num_workers, envs_per_worker, cpus)
    return Plan(total, workers, batch * workers // total, workers, order)  # type: ignore[arg-type]


def _checked_size(name: str, size: Any) -> int | None:
    return None if size is None else checked_integer(name, size, 1)


def _total_and_batch(num_envs: int, batch_size: int | None, mode: str, surplus_envs: int) -> tuple[int, int]:
    total = num_envs + surplus_envs
    if batch_size is None:
        if surplus_envs:
            return total, num_envs
        if mode == "async":
            if num_envs % 2:
                raise ValueError(
                    f'num_envs must be even for mode="async" without batch_size, since half of the envs make a batch; '
                    f"got num_envs={num_envs}. Use {num_envs + 1} envs, or give batch_size."
                )
            return total, num_envs // 2
        return total, total
    if batch_size > total:
        raise ValueError(
            f"batch_size must be at most the number of envs; got batch_size={batch_size}, {total} envs. "
            f"Use batch_size={total} or fewer."
        )
    return total, batch_size


def _num_workers(total: int, batch: int, num_workers: int | None, envs_per_worker: int | None, cpus: int) -> int:
    if envs_per_worker is not None:
        if total % envs_per_worker:
            raise ValueError(
                f"the number of envs must be a multiple of envs_per_worker; got {total} envs, "
                f"envs_per_worker={envs_per_worker}. Use {_near_divisors(total, envs_per_worker)} envs a worker."
            )
        if num_workers not in (None, total // envs_per_worker):
            raise ValueError(
                f"num_workers must agree with envs_per_worker; got num_workers={num_workers}, "
                f"envs_per_worker={envs_per_worker} for {total} envs. Give one of them."
            )
        num_workers = total // envs_per_worker
    valid = [workers for workers in range(1, total + 1) if total % workers == 0 and batch % (total // workers) == 0]
    if num_workers is None:
        fitting = [workers for workers in valid if workers <= cpus]
        return fitting[-1] if fitting else valid[0]
    if num_workers in valid:
        return num_workers
    if total % num_workers:
        low, high = total - total % num_workers, total + num_workers - total % num_workers
        envs = f"{low} or {high}" if low else f"{high}"
        raise ValueError(
            f"num_envs must be a multiple of num_workers; got num_envs={total}, num_workers={num_workers}. "
            f"Use {envs} envs, or {_near(valid, num_workers)} workers."
        )
    raise ValueError(
        f"batch_size must be a whole number of workers' envs; got batch_size={batch} with {total // num_workers} envs "
        f"in each of {num_workers} workers. Use {_near(valid, num_workers)} workers."
    )


def _near(values: list[int], wanted: int) -> str:
    nearest = sorted(sorted(values, key=lambda value: abs(value - wanted))[:2])
    return " or ".join(str(value) for value in nearest)


def _near_divisors(total: int, wanted: int) -> str:
    return _near([size for size in range(1, total + 1) if total % size == 0], wanted)
