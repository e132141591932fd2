"""`python -m puffer_vector ID` and `puffer bench ID`: how fast an env is on this machine."""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from puffer_spaces import MissingAdapter, MissingSuite, UnknownEnvError
from puffer_vector.autotune import machine, measure, table


def bench(words: Sequence[str] | None = None, program: str = "puffer bench") -> int:
    """Measure the steps per second of an environment under each backend.

    Args:
        words: Arguments of the command; None for those of the process.
        program: What the command was called by, for its help and its errors.

    Returns:
        The exit code: 0, or 2 for what cannot be measured.
    """
    description = (bench.__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("env", help="registered id, such as ocean-squared, or module:attribute")
    parser.add_argument("--num-envs", type=int, default=64, help="worlds")
    parser.add_argument("--backends", nargs="+", default=["serial", "threads", "processes"])
    parser.add_argument("--num-workers", type=int, nargs="+", help="worker counts to try")
    parser.add_argument("--batch-sizes", type=int, nargs="+", help="batch sizes to try")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each setting (default: 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--env-kwargs", nargs="+", default=[], metavar="NAME=VALUE", help="arguments of the env")
    arguments = parser.parse_args(None if words is None else list(words))
    try:
        trials = measure(
            _env(arguments.env),
            arguments.num_envs,
            backends=arguments.backends,
            num_workers=arguments.num_workers,
            batch_sizes=arguments.batch_sizes,
            seconds=arguments.seconds,
            env_kwargs=dict(map(_name_and_value, arguments.env_kwargs)),
        )
    except (UnknownEnvError, MissingAdapter, MissingSuite, ImportError, AttributeError, ValueError) as error:
        sys.stderr.write(f"{program}: {error}\n")
        return 2
    if not trials or all(trial.error for trial in trials):
        reason = trials[-1].error if trials else "no setting has workers that divide the envs and the batch."
        sys.stderr.write(f"{program}: {reason}\n")
        return 2
    if arguments.json:
        found = {"env": arguments.env, "machine": machine(), "trials": [asdict(trial) for trial in trials]}
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        sys.stdout.write(table(trials) + "\n")
    return 0


def _env(name: str) -> Any:
    from puffer_spaces import load_object, spec

    return load_object(name) if ":" in name else spec(name)


def _name_and_value(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name.isidentifier() or not equals:
        raise ValueError(f"--env-kwargs must be NAME=VALUE; got {text!r}.")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):  # a plain word
        return name, value
