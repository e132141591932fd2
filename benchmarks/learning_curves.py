"""Learning curves of the default commands, and of Stable-Baselines3's PPO at equal steps.

    python benchmarks/learning_curves.py run gym-Acrobot-v1 --seeds 1 2 3     puffer train ID, and SB3 where it can
    python benchmarks/learning_curves.py table                                what was measured, as Markdown
    python benchmarks/learning_curves.py draw                                 the curves (needs matplotlib)
    python benchmarks/learning_curves.py run ID --contenders muon             the same settings with that optimizer
    python benchmarks/learning_curves.py improvement adamw muon               how probably the second is better

Results are kept in docs/learning/ID.json. A curve has one point for each fiftieth of a run's steps: the mean over the
episodes that ended in it. A run's result is the mean over its last tenth. Stable-Baselines3 runs with the settings that
its zoo (https://github.com/DLR-RM/rl-baselines3-zoo, hyperparams/ppo.yml) tuned for the task, for the steps that the
task's own settings here have. All runs have one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from puffer_spaces import load_config, spec
from puffer_vector import available_cpus

RESULTS = Path(__file__).parents[1] / "docs" / "learning"
NUM_POINTS = 50
Array = npt.NDArray[np.float64]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


class Task(NamedTuple):
    """What is measured of an env, and what SB3's zoo trains it with.

    Attributes:
        metric: Field of the episode records.
        goal: Value that counts as solved.
        sb3: Arguments of SB3's PPO; `num_envs` and `normalize` are about its vector env. None: no comparison.
    """

    metric: str
    goal: float
    sb3: dict[str, Any] | None = None


TASKS = {
    "gym-CartPole-v1": Task(
        "episode_return",
        475,
        {
            "num_envs": 8,
            "n_steps": 32,
            "batch_size": 256,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "n_epochs": 20,
            "learning_rate": lambda left: 1e-3 * left,
            "clip_range": lambda left: 0.2 * left,
        },
    ),
    "gym-Acrobot-v1": Task(
        "episode_return",
        -100,
        {"num_envs": 16, "normalize": True, "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4},
    ),
    "gym-Pendulum-v1": Task(
        "episode_return",
        -200,
        {
            "num_envs": 4,
            "n_steps": 1024,
            "gae_lambda": 0.95,
            "gamma": 0.9,
            "n_epochs": 10,
            "learning_rate": 1e-3,
            "use_sde": True,
            "sde_sample_freq": 4,
        },
    ),
    "gym-LunarLander-v3": Task(
        "episode_return",
        200,
        {
            "num_envs": 16,
            "n_steps": 1024,
            "batch_size": 64,
            "gae_lambda": 0.98,
            "gamma": 0.999,
            "n_epochs": 4,
            "ent_coef": 0.01,
        },
    ),
    "ocean-cartpole": Task("episode_length", 475),
    "ocean-memory": Task("perf", 0.95),
    "ocean-squared": Task("perf", 0.95),
    "ocean-target": Task("score", 8),
    "ocean-pong": Task("score", 18),
    "ocean-breakout": Task("score", 600),
}


OPTIONS = {"puffer": [], "adamw": ["--train.optimizer", "adamw"], "muon": ["--train.optimizer", "muon"]}
"""What the contenders add to the default command."""


class Episodes(NamedTuple):
    """Episodes that ended at about the same step: their mean stands for each of them."""

    steps: int
    seconds: float
    mean: float
    number: float


def run_puffer(env_id: str, seed: int, options: Sequence[str]) -> Iterable[Episodes]:
    """Run the default command in a fresh process; seconds count from its start."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", env_id, "--train.seed", str(seed), "--train.cpu-threads", "1", *options]
        command = [str(Path(sys.executable).parent / "puffer"), *words, "--run.runs-dir", folder]
        subprocess.run([*command, "--run.run-id", "r", "--run.dashboard", "none"], check=True, env=ONE_THREAD)
        lines = (Path(folder) / "r" / "metrics.jsonl").read_text().splitlines()
    metric = f"environment/{TASKS[env_id].metric}"
    for row in map(json.loads, lines):
        if metric in row:
            yield Episodes(row["agent_steps"], row["uptime"], row[metric], row["environment/num_episodes"])


def run_sb3(env_id: str, seed: int) -> Iterable[Episodes]:
    """Run SB3's PPO in a fresh process; seconds count from its start."""
    start = time.perf_counter()
    command = [sys.executable, __file__, "child", env_id, "--seeds", str(seed)]
    output = subprocess.run(command, check=True, env=ONE_THREAD, capture_output=True, text=True).stdout
    start_up = time.perf_counter() - start
    rows = json.loads(output)
    start_up -= rows[-1][1]
    for steps, seconds, episode_return in rows:
        yield Episodes(steps, start_up + seconds, episode_return, 1.0)


def train_sb3(env_id: str, seed: int) -> list[tuple[int, float, float]]:
    """Train by SB3's PPO and return steps, seconds and return of each episode's end."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    settings = dict(TASKS[env_id].sb3 or {})
    envs: Any = make_vec_env(env_id.removeprefix("gym-"), settings.pop("num_envs"), seed=seed)
    if settings.pop("normalize", False):
        envs = VecNormalize(envs, gamma=settings["gamma"])
    start = time.perf_counter()

    episodes: list[tuple[int, float, float]] = []

    class Recorder(BaseCallback):
        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:  # Monitor's, so before any normalisation
                    now = time.perf_counter() - start
                    episodes.append((self.num_timesteps, round(now, 3), float(info["episode"]["r"])))
            return True

    PPO("MlpPolicy", envs, **settings, seed=seed, device="cpu").learn(total_steps(env_id), callback=Recorder())
    return episodes


def total_steps(env_id: str) -> int:
    return int(load_config(spec(env_id))["train"]["total_timesteps"])


def curve(episodes: Sequence[Episodes], total: int) -> list[list[float]]:
    """Return [steps, seconds, mean] for each part of the run in which episodes ended."""
    parts: list[list[Episodes]] = [[] for _ in range(NUM_POINTS)]
    for group in episodes:
        parts[min(NUM_POINTS - 1, (group.steps - 1) * NUM_POINTS // total)].append(group)
    return [[part[-1].steps, round(part[-1].seconds, 2), round(mean_of(part), 4)] for part in parts if part]


def mean_of(episodes: Sequence[Episodes]) -> float:
    return float(np.average([group.mean for group in episodes], weights=[group.number for group in episodes]))


def measure(env_id: str, contender: str, seed: int) -> dict[str, Any]:
    load = os.getloadavg()[0]
    if contender == "sb3":
        episodes = list(run_sb3(env_id, seed))
    else:
        episodes = list(run_puffer(env_id, seed, OPTIONS[contender]))
    total = total_steps(env_id)
    last = [group for group in episodes if group.steps > 0.9 * total]
    return {
        "seed": seed,
        "result": round(mean_of(last), 4),
        "seconds": round(episodes[-1].seconds, 1),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "curve": curve(episodes, total),
    }


def machine() -> str:
    """Return what the figures were measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "gymnasium"))
    return f"{available_cpus()} CPUs {cpu}, {platform.system()}, Python {platform.python_version()}, {libraries}"


def run(env_id: str, contenders: Sequence[str], seeds: Sequence[int]) -> None:
    """Measure the seeds and write the file of results after each."""
    path = RESULTS / f"{env_id}.json"
    task = TASKS[env_id]
    for contender in contenders:
        if contender == "sb3" and not (task.sb3 and find_spec("stable_baselines3")):
            continue
        for seed in seeds:
            entry = measure(env_id, contender, seed)
            print(
                f"{env_id} {contender} seed {seed}: {task.metric} {entry['result']}, {entry['seconds']} s", flush=True
            )
            results = json.loads(path.read_text()) if path.exists() else {"runs": {}}
            others = [old for old in results["runs"].get(contender, []) if old["seed"] != seed]
            results["runs"][contender] = sorted([*others, entry], key=lambda one: one["seed"])
            results.update(
                env_id=env_id,
                metric=task.metric,
                total_steps=total_steps(env_id),
                optimizer=load_config(spec(env_id))["train"].get("optimizer", "adamw"),
                machine=machine(),
                threads=1,
                command=f"python benchmarks/learning_curves.py run {env_id}",
            )
            RESULTS.mkdir(parents=True, exist_ok=True)
            path.write_text(dumps(results) + "\n")


def dumps(results: dict[str, Any]) -> str:
    """Return JSON with one line for each run."""
    head = {key: value for key, value in results.items() if key != "runs"}
    runs = {name: ",\n   ".join(map(json.dumps, entries)) for name, entries in results["runs"].items()}
    body = ",\n  ".join(f"{json.dumps(name)}: [\n   {entries}\n  ]" for name, entries in runs.items())
    return json.dumps(head, indent=1)[:-2] + ',\n "runs": {\n  ' + body + "\n }\n}"


def stored() -> Iterable[dict[str, Any]]:
    """Yield what was measured, in the order of the tasks."""
    for env_id in TASKS:
        path = RESULTS / f"{env_id}.json"
        if path.exists():
            yield json.loads(path.read_text())


def shown(results: dict[str, Any]) -> dict[str, Any]:
    """Return the runs of the default command and of SB3; those with another optimizer are for `improvement`."""
    return {name: results["runs"][name] for name in ("puffer", "sb3") if name in results["runs"]}


def print_table() -> None:
    print(
        "| environment | steps | trainer | seeds | result (worst..best) | solved at | reached after s | whole run s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for results in stored():
        goal = TASKS[results["env_id"]].goal
        for contender, entries in shown(results).items():
            found = [entry["result"] for entry in entries]
            seconds = statistics.median(entry["seconds"] for entry in entries)
            print(
                f"| {results['env_id']} | {results['total_steps']:,} | {contender} | {len(entries)} | "
                f"{results['metric']} {statistics.fmean(found):.4g} ({min(found):.4g}..{max(found):.4g}) | {goal:g} | "
                f"{reached(entries, goal)} | {seconds:.0f} |"
            )


def reached(entries: Sequence[dict[str, Any]], goal: float) -> str:
    """Return the median of the seconds after which a curve is at the goal, and how many seeds got there."""
    times = [next((seconds for _, seconds, mean in entry["curve"] if mean >= goal), None) for entry in entries]
    there = [seconds for seconds in times if seconds is not None]
    count = "" if len(there) == len(times) else f" ({len(there)} of {len(times)})"
    return f"{statistics.median(there):.1f}{count}" if there else "not"


def print_improvement(one: str, other: str) -> None:
    """Print how probably a run of the second contender ends above one of the first, and a 95 % interval.

    Agarwal et al. 2021 (https://arxiv.org/abs/2108.13264): the mean over tasks of P(other > one), ties by half; the
    interval is that of a bootstrap over the seeds of each task.
    """
    rng = np.random.default_rng(0)
    tasks: dict[str, tuple[Array, Array]] = {}
    for results in stored():
        named = {**results["runs"], results.get("optimizer", "adamw"): results["runs"]["puffer"]}
        if one in named and other in named:
            ours, theirs = (np.array([entry["result"] for entry in named[name]]) for name in (one, other))
            tasks[results["env_id"]] = ours, theirs
    if not tasks:
        sys.exit(f"both contenders must have runs of one task; got none for {one} and {other}. Call run first.")
    for env_id, (ours, theirs) in tasks.items():
        print(f"{env_id:20s} {one} {ours.mean():8.4g}  {other} {theirs.mean():8.4g}  P {above(ours, theirs):.2f}")
    drawn = [
        np.mean([above(rng.choice(a, len(a)), rng.choice(b, len(b))) for a, b in tasks.values()]) for _ in range(2000)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    mean = np.mean([above(*pair) for pair in tasks.values()])
    print(f"P({other} > {one}) = {mean:.2f} ({low:.2f}..{high:.2f}), {len(tasks)} tasks")


def above(ours: Array, theirs: Array) -> float:
    return float(np.mean((theirs[:, None] > ours) + 0.5 * (theirs[:, None] == ours)))


def draw() -> None:
    """Write gymnasium.svg and ocean.svg: the mean of the seeds, and their range as a band."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update(
        {
            "svg.hashsalt": "puffer",
            "svg.fonttype": "none",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    for name, prefix in (("gymnasium", "gym-"), ("ocean", "ocean-")):
        panels = [results for results in stored() if results["env_id"].startswith(prefix)]
        columns = min(3, len(panels))
        rows = -(-len(panels) // columns)
        figure, axes = pyplot.subplots(rows, columns, figsize=(3.2 * columns, 2.4 * rows), squeeze=False)
        for axis in axes.flat[len(panels) :]:
            axis.remove()
        for axis, results in zip(axes.flat, panels, strict=False):
            draw_panel(axis, results)
        figure.tight_layout()
        figure.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})


def draw_panel(axis: Any, results: dict[str, Any]) -> None:
    total = results["total_steps"]
    grid = np.linspace(0, total, NUM_POINTS + 1)[1:]
    for contender, entries in shown(results).items():
        color = "tab:blue" if contender == "puffer" else "tab:orange"
        curves = []
        for entry in entries:
            steps, _, means = np.array(entry["curve"]).T
            curves.append(np.interp(grid, steps, means, left=np.nan))
        is_there = ~np.isnan(curves).all(0)
        lines = np.array(curves)[:, is_there]
        label = f"{contender}, {len(entries)} seeds"
        axis.plot(grid[is_there], np.nanmean(lines, 0), color=color, label=label)
        axis.fill_between(grid[is_there], np.nanmin(lines, 0), np.nanmax(lines, 0), color=color, alpha=0.2, lw=0)
    axis.axhline(TASKS[results["env_id"]].goal, color="grey", lw=0.8, ls=":")
    axis.set(title=results["env_id"], xlabel="agent steps", ylabel=results["metric"].replace("_", " "))
    axis.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    axis.legend(frameon=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["run", "table", "draw", "improvement", "child"], default="table")
    parser.add_argument("env_ids", nargs="*", metavar="ID", default=list(TASKS))
    parser.add_argument("--contenders", nargs="+", choices=[*OPTIONS, "sb3"], default=["puffer", "sb3"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    arguments = parser.parse_args()
    if arguments.what == "improvement":
        print_improvement(*arguments.env_ids)
        return
    if unknown := set(arguments.env_ids) - TASKS.keys():
        parser.error(f"ID must be one of {', '.join(TASKS)}; got {', '.join(sorted(unknown))}")
    if arguments.what == "child":
        print(json.dumps(train_sb3(arguments.env_ids[0], arguments.seeds[0])))
    elif arguments.what == "run":
        for env_id in arguments.env_ids:
            run(env_id, arguments.contenders, arguments.seeds)
    elif arguments.what == "table":
        print_table()
    else:
        draw()


if __name__ == "__main__":
    main()
