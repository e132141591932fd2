"""Steps per second of rollout and update together on ocean-breakout, beside the fp32 rate of the machine.

python benchmarks/train_speed.py [--threads 2] [--repeats 5] [--cases mlp lstm ...]

Each case trains in a process of its own, so that its memory and its allocator are its own. The network is Linear
118-128-GELU with heads, with or without an LSTM of 128 in between; observations go in as they are; each batch is used
once. FLOP/s count the matrix products alone: of the rollout, and of forward and backward in the update. They stand over
two rates of the machine, that of the BLAS which torch links and that of oneDNN: on some processors one is half of the
other.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

import puffer_ocean
import puffer_policies
import puffer_vector
from puffer_train import PuffeRL

ENV, INPUTS, HIDDEN, OUTPUTS = "ocean-breakout", 118, 128, 4
GEMM_SHAPES = ((4096, 128, 128), (8192, 256, 1024), (4096, 512, 512))
STEPS_PER_REPEAT = 500_000


@dataclasses.dataclass(frozen=True)
class Case:
    """What is trained, and what is asked of it."""

    rnn: str | None = None
    num_agents: int = 2048
    precision: str = "float32"
    asked: str = ""

    @property
    def flops_per_step(self) -> int:
        """Floating-point operations of the matrix products for one agent step; the input needs no gradient."""
        first, heads = 2 * INPUTS * HIDDEN, 2 * HIDDEN * OUTPUTS
        gates = 2 * 8 * HIDDEN * HIDDEN if self.rnn == "lstm" else 0
        rollout, update = first + gates + heads, 2 * first + 3 * (gates + heads)
        return rollout + update


CASES = {
    "mlp": Case(asked="600 k"),
    "lstm": Case("lstm", asked="110 k"),
    "mlp-16384": Case(num_agents=16384, asked="within 20 % of mlp"),
    "lstm-16384": Case("lstm", num_agents=16384),
    "mlp-bf16": Case(precision="bfloat16"),
    "lstm-bf16": Case("lstm", precision="bfloat16"),
}


class StageClock:
    """Splits wall time among stages; a stage inside another takes its time away from the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._stack: list[str] = []
        self._since = 0.0

    def run(self, stage: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function as a stage."""
        self._switch()
        self._stack.append(stage)
        try:
            return function(*args, **kwargs)
        finally:
            self._switch()
            self._stack.pop()

    def wrap(self, owner: Any, name: str, stage: str) -> None:
        """Make a method of an object or class a stage; `*` stands for the name of the outermost stage."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            outermost = self._stack[0] if self._stack else ""
            return self.run(stage.replace("*", outermost), function, *args, **kwargs)

        setattr(owner, name, timed)

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._stack:
            self.seconds[self._stack[-1]] += now - self._since
        self._since = now


def make_trainer(case: Case, clock: StageClock | None = None) -> PuffeRL:
    """Make the trainer of a case; a clock gets the stages."""
    if clock is not None:
        clock.wrap(puffer_ocean.OceanEnv, "step", "env")
    vec = puffer_vector.make(ENV, num_envs=case.num_agents, seed=1)
    torch.manual_seed(1)
    policy = puffer_policies.default_policy(vec, HIDDEN, case.rnn, num_layers=1)
    if clock is not None:
        for name in ("recv", "send", "episodes"):
            clock.wrap(vec, name, "vector")
        for name in ("forward_eval", "forward_sequence"):
            clock.wrap(policy, name, "* forward")
        for name in ("sample_with_log_prob", "log_prob_and_entropy"):
            clock.wrap(policy.action_head, name, "* action head")
        clock.wrap(torch.Tensor, "backward", "* backward")
        clock.wrap(torch.optim.AdamW, "step", "optimizer")
        clock.wrap(torch.nn.utils, "clip_grad_norm_", "optimizer")
    return PuffeRL(
        vec,
        policy,
        horizon=64,
        batch_size=case.num_agents * 64,
        minibatch_size=32768,
        update_epochs=1,
        normalize_observations=False,
        precision=case.precision,
        total_timesteps=10**9,
    )


def train_for(trainer: PuffeRL, num_steps: int, clock: StageClock) -> float:
    """Train for at least some steps and return the steps per second."""
    steps, start = 0, time.perf_counter()
    while steps < num_steps:
        steps += int(clock.run("rollout", trainer.evaluate)["agent_steps"])
        clock.run("update", trainer.train)
    return steps / (time.perf_counter() - start)


def steps_per_second(case: Case, repeats: int) -> list[float]:
    """Return the rate of each repeat, after one batch to warm up."""
    with make_trainer(case) as trainer:
        train_for(trainer, 1, StageClock())
        return [train_for(trainer, STEPS_PER_REPEAT, StageClock()) for _ in range(repeats)]


def stage_shares(case: Case) -> dict[str, float]:
    """Return the share of each stage in the time of one repeat."""
    clock = StageClock()
    with make_trainer(case, clock) as trainer:
        train_for(trainer, 1, clock)
        clock.seconds.clear()
        train_for(trainer, STEPS_PER_REPEAT, clock)
    total = sum(clock.seconds.values())
    return {stage: seconds / total for stage, seconds in clock.seconds.items()}


def gemm_rates() -> dict[str, float]:
    """Return the best FLOP/s of a product through BLAS and through oneDNN."""
    best = {"BLAS": 0.0, "oneDNN": 0.0}
    with torch.inference_mode():
        for rows, inner, outputs in GEMM_SHAPES:
            x, weight = torch.randn(rows, inner), torch.randn(outputs, inner)
            # With one thread torch takes oneDNN for 16 images or more.
            pixels = x.view(16, rows // 16, 1, inner).permute(0, 3, 1, 2)
            kernel = weight[:, :, None, None]
            ways = {"BLAS": lambda x=x, w=weight: x @ w.t()}
            ways["oneDNN"] = lambda x=pixels, w=kernel: torch.nn.functional.conv2d(x, w)
            for name, way in ways.items():
                rate = 2 * rows * inner * outputs / shortest_seconds(way)
                best[name] = max(best[name], rate)
    return best


def shortest_seconds(function: Callable[[], object], repeats: int = 60) -> float:
    """Return the shortest time of a call: a ceiling must not depend on what else runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(case: Case, repeats: int) -> dict[str, Any]:
    """Measure one case in this process."""
    load = os.getloadavg()[0]
    rates = steps_per_second(case, repeats)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rates": rates, "peak_mb": peak_mb, "load": load, "shares": stage_shares(case)}


def report(name: str, case: Case, result: dict[str, Any], gemm: dict[str, float]) -> None:
    """Print what was measured of a case."""
    median = statistics.median(result["rates"])
    flops = median * case.flops_per_step
    shares = ", ".join(f"{flops / rate:.0%} of {way}" for way, rate in gemm.items())
    asked = f" (asked: {case.asked})" if case.asked else ""
    print(
        f"{name}: {median / 1e3:.0f} k steps/s ({min(result['rates']) / 1e3:.0f}..{max(result['rates']) / 1e3:.0f})"
        f"{asked}, {flops / 1e9:.0f} GFLOP/s ({shares}), peak {result['peak_mb']:.0f} MB, load {result['load']:.1f}"
    )
    stages = sorted(result["shares"].items(), key=lambda item: -item[1])
    print("   " + ", ".join(f"{stage} {share:.1%}" for stage, share in stages), flush=True)


def main() -> None:
    """Print the rates of the machine, then two lines a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2, help="threads of torch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--in-process", action="store_true", help="print one case as JSON; what the others call")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.in_process:
        print(json.dumps(measure(CASES[options.cases[0]], options.repeats)))
        return
    gemm = gemm_rates()
    rates = ", ".join(f"{way} {rate / 1e9:.0f} GFLOP/s" for way, rate in gemm.items())
    print(f"fp32 product, {options.threads} threads: {rates}; load average {os.getloadavg()}", flush=True)
    for name in options.cases:
        command = [sys.executable, __file__, "--in-process", "--cases", name]
        command += ["--threads", str(options.threads), "--repeats", str(options.repeats)]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        report(name, CASES[name], json.loads(answer), gemm)


if __name__ == "__main__":
    main()
