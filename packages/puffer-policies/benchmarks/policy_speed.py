"""Forward and backward of policies on one minibatch, beside the fp32 rate of a matrix product on the same machine.

python packages/puffer-policies/benchmarks/policy_speed.py [--threads 2] [--keep-pages]
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace

import torch
from gymnasium import spaces

from puffer_policies import default_policy

SEGMENTS, HORIZON, INPUTS, ACTIONS, HIDDEN = 512, 64, 118, 3, 128
ROWS = SEGMENTS * HORIZON


def median_seconds(function: Callable[[], object], repeats: int) -> float:
    """Call once to warm up, then return the median time."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def keep_pages() -> None:
    """Tell glibc to keep freed memory, so that large tensors do not fault their pages in again."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
    libc.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD


def gemm_rate(repeats: int) -> dict[str, float]:
    """Return GFLOP/s of a large product through BLAS and through oneDNN."""
    x, weight = torch.randn(8192, 512), torch.randn(512, 512)
    flops = 2 * 8192 * 512 * 512
    pixels = x.view(1, 8192, 1, 512).permute(0, 3, 1, 2)
    with torch.no_grad():
        blas = median_seconds(lambda: x @ weight, repeats)
        onednn = median_seconds(lambda: torch.nn.functional.conv2d(pixels, weight[:, :, None, None]), repeats)
    return {"BLAS": flops / blas / 1e9, "oneDNN": flops / onednn / 1e9}


def policy_rows_per_second(recurrent: str | None, with_resets: bool, repeats: int, autocast: bool = False) -> float:
    """Return the rows per second of one forward and backward over a minibatch."""
    env = SimpleNamespace(
        single_observation_space=spaces.Box(-1, 1, (INPUTS,)), single_action_space=spaces.Discrete(ACTIONS)
    )
    policy = default_policy(env, HIDDEN, recurrent, num_layers=1)
    observations = torch.randn(SEGMENTS, HORIZON, INPUTS)
    resets = torch.rand(SEGMENTS, HORIZON) < 0.01 if with_resets else torch.zeros(SEGMENTS, HORIZON, dtype=torch.bool)
    actions = torch.randint(ACTIONS, (ROWS,), dtype=torch.int32)
    state = policy.initial_state(SEGMENTS)

    def update() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            parameters, values = policy.forward_sequence(observations, state, resets)
        log_prob, entropy = policy.action_head.log_prob_and_entropy(parameters, actions)
        (log_prob.mean() + 0.01 * entropy.mean() + values.square().mean()).backward()
        policy.zero_grad()

    return ROWS / median_seconds(update, repeats)


def rollout_rows_per_second(recurrent: str | None, rows: int, repeats: int) -> float:
    """Return the rows per second of a rollout step: forward, sample, log-probability."""
    env = SimpleNamespace(
        single_observation_space=spaces.Box(-1, 1, (INPUTS,)), single_action_space=spaces.Discrete(ACTIONS)
    )
    policy = default_policy(env, HIDDEN, recurrent, num_layers=1)
    observations, noise = torch.randn(rows, INPUTS), torch.rand(rows, 1)
    state = policy.initial_state(rows)

    def step() -> None:
        with torch.no_grad():
            parameters, _, _ = policy.forward_eval(observations, state)
            policy.action_head.sample_with_log_prob(parameters, noise)

    return rows / median_seconds(step, repeats)


def flops_per_row(recurrent: str | None) -> int:
    """Return the floating-point operations of the matrix products of forward and backward, per row."""
    first = 2 * INPUTS * HIDDEN * 2  # the input needs no gradient
    heads = 2 * HIDDEN * (ACTIONS + 1) * 3
    gates = {None: 0, "lstm": 8, "gru": 6, "mingru": 2}[recurrent]
    return first + heads + 2 * gates * HIDDEN * HIDDEN * 3


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--keep-pages", action="store_true", help="let glibc keep freed memory")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.keep_pages:
        keep_pages()
    rates = gemm_rate(options.repeats)
    print(f"fp32 product, {options.threads} threads: " + ", ".join(f"{k} {v:.0f} GFLOP/s" for k, v in rates.items()))
    print(f"{'policy':>8} {'resets':>6} {'rows/s':>10} {'GFLOP/s':>8} {'of best product':>15}")
    for recurrent in (None, "lstm", "gru", "mingru"):
        for with_resets in (False, True) if recurrent else (False,):
            rate = policy_rows_per_second(recurrent, with_resets, options.repeats)
            gflops = rate * flops_per_row(recurrent) / 1e9
            share = gflops / max(rates.values())
            print(f"{recurrent or 'mlp':>8} {with_resets!s:>6} {rate:>10.0f} {gflops:>8.0f} {share:>15.0%}")
    for recurrent in (None, "lstm", "gru", "mingru"):
        print(f"rollout {recurrent or 'mlp':>6}, 2048 rows: {rollout_rows_per_second(recurrent, 2048, 50):.0f} rows/s")
    for recurrent in (None, "lstm"):
        rate = policy_rows_per_second(recurrent, True, options.repeats, autocast=True)
        print(f"bf16 autocast {recurrent or 'mlp':>6}: {rate:.0f} rows/s")


if __name__ == "__main__":
    main()
