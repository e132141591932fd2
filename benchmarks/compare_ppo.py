"""PPO on Gymnasium's CartPole-v1: PuffeRL beside Stable-Baselines3's PPO and a plain single-file PPO.

    python benchmarks/compare_ppo.py speed                      steps per second, all contenders in turn
    python benchmarks/compare_ppo.py speed --cleanrl PYTHON SCRIPT    CleanRL's ppo.py too, by the Python that it needs
    python benchmarks/compare_ppo.py solve --seeds 1 2 3 4 5    seconds from process start to a mean return of 475

Speed: 8 envs, 128 steps, 4 epochs of 4 minibatches, separate 2x64 tanh networks for actor and critic, one thread.
The plain PPO is written below as a textbook would: CleanRL's ppo.py is a script and no library, so it cannot be
imported; this one has its loop, network and hyper-parameters (4 envs in a SyncVectorEnv). CleanRL's own runs as a
process that is stopped while it is the turn of others. Solving: PuffeRL by
`puffer train gym-CartPole-v1`, Stable-Baselines3 with the settings that its zoo tuned for CartPole-v1. Solved is when
the last 100 episodes have a mean return of 475. Contenders that are not installed are left out.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from learning_curves import TASKS, machine
from torch import Tensor, nn
from torch.distributions import Categorical

import puffer_vector
from puffer_policies import default_policy, layer_init
from puffer_train import PuffeRL

RESULTS = Path(__file__).parents[1] / "docs" / "learning" / "compare_ppo.json"
SOLVED = 475.0
NUM_STEPS, NUM_EPOCHS, NUM_MINIBATCHES = 128, 4, 4
HAS_SB3 = importlib.util.find_spec("stable_baselines3") is not None
Updates = Iterator[int]
"""Each item is an update that was made; its value is the number of env steps so far."""


class TwinMLP(nn.Module):
    """Actor and critic, each of two layers of 64 tanh units: the network of CleanRL's ppo.py and SB3's MlpPolicy."""

    def __init__(self) -> None:
        super().__init__()

        def mlp(num_outputs: int, gain: float) -> nn.Sequential:
            last = layer_init(nn.Linear(64, num_outputs), std=gain)
            return nn.Sequential(
                layer_init(nn.Linear(4, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(), last
            )

        self.actor, self.critic = mlp(2, 0.01), mlp(1, 1.0)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(observations), self.critic(observations)


def puffer(seed: int = 1, shared: bool = False) -> Updates:
    """PuffeRL with the textbook's objective, 8 envs."""
    vec = puffer_vector.make("gym-CartPole-v1", 8, seed=seed)
    small: dict[str, Any] = {"hidden_size": 64, "num_layers": 2, "activation": "tanh"}
    policy = default_policy(vec, **small) if shared else TwinMLP()
    size = 8 * NUM_STEPS // NUM_MINIBATCHES
    trainer = PuffeRL(
        vec, policy, preset="cleanrl", seed=seed, minibatch_size=size, total_timesteps=10**9, cpu_threads=1
    )
    while True:
        trainer.evaluate()
        trainer.train()
        trainer.mean_and_log()
        yield trainer.agent_steps


def sb3(seed: int = 1, num_epochs: int = NUM_EPOCHS, batch_size: int = 256) -> Updates:
    """Stable-Baselines3's PPO, 8 envs; 10 epochs of minibatches of 64 are its defaults."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    envs = make_vec_env("CartPole-v1", 8, seed=seed)
    model = PPO(
        "MlpPolicy", envs, n_steps=NUM_STEPS, n_epochs=num_epochs, batch_size=batch_size, seed=seed, device="cpu"
    )
    while True:
        model.learn(8 * NUM_STEPS, reset_num_timesteps=False)
        yield model.num_timesteps


def cleanrl(command: list[str]) -> Updates:
    """CleanRL's ppo.py with its own settings, 4 envs: it prints a line of steps per second after each update."""
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [*command, "--env-id", "CartPole-v1", "--total-timesteps", str(10**9)],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        number = 0
        try:
            for line in process.stdout:
                if line.startswith("SPS:"):
                    number += 1
                    process.send_signal(signal.SIGSTOP)
                    yield number * 4 * NUM_STEPS
                    process.send_signal(signal.SIGCONT)
        finally:
            process.kill()


class Textbook:
    """PPO in one loop with the clipped loss, GAE and clipped values, without anything that makes it fast.

    Schulman et al. 2017 (https://arxiv.org/abs/1707.06347); learning rate 2.5e-4, annealed over 500 thousand steps.
    """

    def __init__(self, num_envs: int, seed: int = 1) -> None:
        torch.manual_seed(seed)
        make = lambda: gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))  # noqa: E731
        self.envs = SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        self.agent = TwinMLP()
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=2.5e-4, eps=1e-5)
        self.rng = np.random.default_rng(seed)
        self.returns: collections.deque[float] = collections.deque(maxlen=100)
        self.observation = torch.from_numpy(self.envs.reset(seed=seed)[0])
        self.shape = (NUM_STEPS, num_envs)

    def updates(self, total_steps: int = 500_000) -> Updates:
        per_update = NUM_STEPS * self.envs.num_envs
        for number in range(1, total_steps // per_update + 1):
            self.optimizer.param_groups[0]["lr"] = 2.5e-4 * (1.0 - (number - 1) * per_update / total_steps)
            self.update(*self.rollout())
            yield number * per_update

    def rollout(self) -> tuple[Tensor, ...]:
        """Return observations, actions, log-probabilities, values, advantages: all (steps * envs, ...)."""
        observations, actions = torch.zeros(*self.shape, 4), torch.zeros(self.shape, dtype=torch.int64)
        log_probs, values, rewards, dones = (torch.zeros(self.shape) for _ in range(4))
        for t in range(NUM_STEPS):
            observations[t] = self.observation
            with torch.no_grad():
                logits, value = self.agent(self.observation)
                distribution = Categorical(logits=logits)
                actions[t] = distribution.sample()
                log_probs[t], values[t] = distribution.log_prob(actions[t]), value.flatten()
            observation, reward, terminated, truncated, infos = self.envs.step(actions[t].numpy())
            self.observation = torch.from_numpy(observation)
            rewards[t], dones[t] = torch.from_numpy(reward), torch.from_numpy(terminated | truncated).float()
            if "final_info" in infos:
                ended = infos["final_info"]["_episode"]
                self.returns.extend(infos["final_info"]["episode"]["r"][ended].tolist())
        advantages = self.advantages(values, rewards, dones)
        return tuple(part.flatten(0, 1) for part in (observations, actions, log_probs, values, advantages))

    def advantages(self, values: Tensor, rewards: Tensor, dones: Tensor) -> Tensor:
        with torch.no_grad():
            next_value = self.agent.critic(self.observation).flatten()
        advantages, trace = torch.zeros(self.shape), torch.zeros(self.envs.num_envs)
        for t in reversed(range(NUM_STEPS)):
            goes_on = 1.0 - dones[t]
            delta = rewards[t] + 0.99 * next_value * goes_on - values[t]
            advantages[t] = trace = delta + 0.99 * 0.95 * goes_on * trace
            next_value = values[t]
        return advantages

    def update(
        self, observations: Tensor, actions: Tensor, log_probs: Tensor, values: Tensor, advantages: Tensor
    ) -> None:
        targets = advantages + values
        size = len(values) // NUM_MINIBATCHES
        self.clip_fractions: list[float] = []
        for _ in range(NUM_EPOCHS):
            order = self.rng.permutation(len(values))
            for start in range(0, len(values), size):
                rows = order[start : start + size]
                logits, value = self.agent(observations[rows])
                distribution = Categorical(logits=logits)
                ratio = (distribution.log_prob(actions[rows]) - log_probs[rows]).exp()
                advantage = advantages[rows]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                with torch.no_grad():  # CleanRL's script reports both, and so does PuffeRL
                    self.kl = ((ratio - 1.0) - ratio.log()).mean().item()
                    self.clip_fractions.append(((ratio - 1.0).abs() > 0.2).float().mean().item())
                policy_loss = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()
                change = (value.flatten() - values[rows]).clamp(-0.2, 0.2)
                errors = (value.flatten() - targets[rows]) ** 2, (values[rows] + change - targets[rows]) ** 2
                loss = policy_loss + 0.25 * torch.max(*errors).mean() - 0.01 * distribution.entropy().mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.agent.parameters(), 0.5)
                self.optimizer.step()


def rate(updates: Updates, seconds: float) -> float:
    """Return env steps per second over about so long a time."""
    first = next(updates)
    start = time.perf_counter()
    while (took := time.perf_counter() - start) < seconds:
        steps = next(updates)
    return (steps - first) / took


def speed(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Measure the rates of all contenders in turns, print and return them."""
    contenders: dict[str, Callable[[], Updates]] = {
        "PuffeRL": puffer,
        "PuffeRL, one network for both": lambda: puffer(shared=True),
        "textbook PPO, 4 envs": lambda: Textbook(4).updates(10**9),
        "textbook PPO, 8 envs": lambda: Textbook(8).updates(10**9),
    }
    if arguments.cleanrl:
        python, script = arguments.cleanrl
        command = [str(Path(word).absolute()) for word in (shutil.which(python) or python, script)]
        contenders["CleanRL's ppo.py, 4 envs"] = lambda: cleanrl(command)
    if HAS_SB3:
        contenders["SB3, same settings"] = sb3
        contenders["SB3, 10 epochs, minibatches of 64"] = lambda: sb3(num_epochs=10, batch_size=64)
    running = {name: start() for name, start in contenders.items()}
    rates: dict[str, list[int]] = {name: [] for name in running}
    for _ in range(arguments.rounds):
        for name, updates in running.items():
            rates[name].append(round(rate(updates, arguments.seconds)))
    reference = statistics.median(rates["PuffeRL"])
    for name, values in rates.items():
        median = statistics.median(values)
        spread = f"({min(values):,}..{max(values):,})"
        print(f"{name:36s} {median:9,.0f} steps/s {spread:20s} PuffeRL is {reference / median:5.2f} times as fast")
    return {name: {"steps_per_second": values} for name, values in rates.items()}


def solve_puffer(seed: int) -> tuple[float, int]:
    """Return seconds of the process and env steps at which the default command has solved the task."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", "gym-CartPole-v1", "--train.seed", str(seed), "--run.run-id", "r", "--run.dashboard", "none"]
        command = [str(Path(sys.executable).parent / "puffer"), *words, "--run.runs-dir", folder]
        subprocess.run(command, check=True)
        lines = (Path(folder) / "r" / "metrics.jsonl").read_text().splitlines()
    episodes: collections.deque[float] = collections.deque(maxlen=100)
    for row in map(json.loads, lines):
        if "environment/num_episodes" in row:  # a line has a mean only: it stands for each of its episodes
            episodes.extend([row["environment/episode_return"]] * int(row["environment/num_episodes"]))
        if len(episodes) == 100 and statistics.fmean(episodes) >= SOLVED:
            return row["uptime"], row["agent_steps"]
    return float("nan"), row["agent_steps"]


def solve_sb3(seed: int) -> int:
    """Train by the zoo's settings until solved and return the env steps."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class Solved(BaseCallback):
        def _on_step(self) -> bool:
            episodes = self.model.ep_info_buffer or ()
            return not (len(episodes) == 100 and statistics.fmean(episode["r"] for episode in episodes) >= SOLVED)

    settings = dict(TASKS["gym-CartPole-v1"].sb3 or {})
    envs = make_vec_env("CartPole-v1", settings.pop("num_envs"), seed=seed)
    model = PPO("MlpPolicy", envs, **settings, seed=seed, device="cpu")
    model.learn(100_000, callback=Solved())
    return model.num_timesteps


def solve_textbook(seed: int) -> int:
    """Train with 4 envs until solved and return the env steps, -1 if that never happens."""
    ppo = Textbook(4, seed)
    return next(
        (steps for steps in ppo.updates() if len(ppo.returns) == 100 and statistics.fmean(ppo.returns) >= SOLVED), -1
    )


SOLVERS = {"sb3": solve_sb3, "textbook": solve_textbook}


def solve(contender: str, seed: int) -> dict[str, float]:
    """Return seconds since the start of a fresh process, and env steps, to the solution."""
    if contender == "puffer":
        seconds, steps = solve_puffer(seed)
    else:
        start = time.perf_counter()
        command = [sys.executable, __file__, "child", "--contenders", contender, "--seeds", str(seed)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        seconds, steps = time.perf_counter() - start, int(output)
    return {"seconds": round(seconds, 2), "steps": steps, "load": round(os.getloadavg()[0], 1)}


def solve_all(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Solve the task by all contenders with all seeds; print the times and return them by seed."""
    entries: dict[str, dict[str, Any]] = {}
    for name in arguments.contenders:
        found = entries[name] = {str(seed): solve(name, seed) for seed in arguments.seeds}
        seconds = [entry["seconds"] for entry in found.values()]
        spread = f"{min(seconds):.1f}..{max(seconds):.1f}"
        print(f"{name:9s} median {statistics.median(seconds):6.1f} s ({spread}) of {len(seconds)} seeds")
    return entries


def save(key: str, entries: dict[str, dict[str, Any]], options: str) -> None:
    """Put what was measured into the file of results, beside what other calls measured."""
    RESULTS.parent.mkdir(exist_ok=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, found in entries.items():
        results.setdefault(key, {}).setdefault(name, {}).update(found)
    results[f"{key}_command"] = f"python benchmarks/compare_ppo.py {key} --save{options}"
    results[f"{key}_machine"] = f"{machine()}, load {os.getloadavg()[0]:.1f}"
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["speed", "solve", "child"], default="speed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each contender in each round")
    parser.add_argument("--contenders", nargs="+", default=["puffer", *(["sb3"] if HAS_SB3 else []), "textbook"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument(
        "--cleanrl", nargs=2, metavar=("PYTHON", "SCRIPT"), help="run CleanRL's ppo.py beside the others"
    )
    parser.add_argument("--save", action="store_true", help=f"in {RESULTS.relative_to(RESULTS.parents[2])}")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "child":
        print(SOLVERS[arguments.contenders[0]](arguments.seeds[0]))
        return
    print(machine())
    entries = speed(arguments) if arguments.what == "speed" else solve_all(arguments)
    if arguments.save:
        save(arguments.what, entries, " --cleanrl PYTHON SCRIPT" if arguments.cleanrl else "")


if __name__ == "__main__":
    main()
