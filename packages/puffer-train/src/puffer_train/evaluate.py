"""Measure a policy over whole episodes, without a bias toward short ones.

Whoever takes the first N episodes that end, out of many worlds at once, gets too many short ones. Here the number of
episodes of each row is fixed before the start: N of them shared as evenly as possible among the agents that are there
at the first observation. Each row counts its first episodes up to its number, however long the others take.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box

import puffer_policies
import puffer_vector
from puffer_train.agent_numbers import agents_per_world, number_arguments
from puffer_train.errors import RunError
from puffer_train.noise import fill_uniform

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Evaluation:
    """The episodes of an evaluation, in the order of their rows.

    Attributes:
        env_id: Name of the environment.
        scores: float64 (num_episodes,), in the environment's own units; the return where it keeps no score.
        episode_returns: float64 (num_episodes,).
        episode_lengths: float64 (num_episodes,), steps of the agent.
    """

    env_id: str
    scores: Floats
    episode_returns: Floats
    episode_lengths: Floats

    @property
    def num_episodes(self) -> int:
        """How many episodes were counted."""
        return len(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `puffer eval --json` prints: means and population standard deviations."""
        return {
            "env": self.env_id,
            "episodes": self.num_episodes,
            "score": _mean_and_std(self.scores),
            "episode_return": _mean_and_std(self.episode_returns),
            "episode_length": _mean_and_std(self.episode_lengths),
        }


def evaluate_policy(
    policy: torch.nn.Module,
    env: Any,
    *,
    num_episodes: int = 32,
    deterministic: bool = False,
    seed: int = 0,
    device: str | torch.device = "cpu",
    normalizer: Callable[[torch.Tensor], torch.Tensor] | None = None,
    max_steps: int = 100_000,
    on_progress: Callable[[int], None] | None = None,
    **vector_options: Any,
) -> Evaluation:
    """Play whole episodes and return what they brought.

    The same arguments give the same result. Memory flows through an episode and is zero at the start of each.

    Args:
        policy: An adapted policy or any module that `puffer_policies.adapt_policy` takes. It plays in eval mode.
        env: A vector env, which is reset and stays open, or anything `puffer_vector.make` takes, which is closed.
        num_episodes: Episodes to count.
        deterministic: Take the most probable action instead of sampling.
        seed: Root of the worlds' seeds and of the action noise.
        device: Where the policy is.
        normalizer: What the trainer did to observations before the policy saw them.
        max_steps: Steps after which the evaluation ends with the episodes that it has, and a warning.
        on_progress: Called with the number of counted episodes whenever some were added.
        **vector_options: For `puffer_vector.make`, if `env` is no vector env. `num_envs` defaults to one world an
            episode, 256 at most.

    Raises:
        ValueError: If `num_episodes` is not positive, or the vector env is asynchronous.
        RunError: If no episode ended within `max_steps`, or no agent was there at the first observation.
    """
    if num_episodes < 1:
        raise ValueError(f"num_episodes must be at least 1; got {num_episodes}.")
    if not hasattr(env, "async_reset") or not hasattr(env, "agents_per_batch"):
        vector_options.setdefault("num_envs", min(num_episodes, 256))
        with puffer_vector.make(env, **vector_options) as vec:
            return evaluate_policy(
                policy,
                vec,
                num_episodes=num_episodes,
                deterministic=deterministic,
                seed=seed,
                device=device,
                normalizer=normalizer,
                max_steps=max_steps,
                on_progress=on_progress,
            )
    if env.agents_per_batch != env.num_agents:
        raise ValueError(
            "evaluation needs all worlds in one batch; "
            f"got batch_size={env.batch_size}, num_envs={env.num_envs}. Leave batch_size out."
        )
    player = _Player(policy, env, deterministic, seed, torch.device(device), normalizer)
    was_training = policy.training
    policy.eval()
    try:
        with torch.inference_mode():
            counts = _play(player, env, num_episodes, seed, max_steps, on_progress)
    finally:
        policy.train(was_training)
    return _evaluation(env.env_name, counts, num_episodes, max_steps)


class _Player:
    """Chooses the actions of all rows, and keeps their memory."""

    def __init__(
        self,
        policy: Any,
        vec: Any,
        deterministic: bool,
        seed: int,
        device: torch.device,
        normalizer: Callable[[torch.Tensor], torch.Tensor] | None,
    ) -> None:
        if not hasattr(policy, "action_head"):
            policy = puffer_policies.adapt_policy(
                policy,
                vec.single_observation_space,
                vec.single_action_space,
                observation_layout=vec.observation_layout,
                action_layout=vec.action_layout,
            )
        self._policy = policy
        self._vec = vec
        self._deterministic = deterministic
        self._seed = seed
        self._device = device
        self._normalizer = normalizer
        self._state = self._policy.initial_state(vec.num_agents, device)
        self._rows = np.arange(vec.num_agents, dtype=np.int64)
        numbers = torch.arange(vec.num_agents, device=device) % agents_per_world(vec)
        self._agent_numbers = number_arguments(self._policy, numbers)
        self._noise = np.empty((vec.num_agents, self._policy.action_head.num_noise), dtype=np.float32)
        self._steps = np.zeros(vec.num_agents, dtype=np.int64)
        space = vec.single_action_space
        self._bounds = (space.low, space.high) if isinstance(space, Box) else None

    def choose(self, observations: npt.NDArray[Any], masks: Flags, fresh: Flags) -> npt.NDArray[Any]:
        """Return the actions of all rows.

        Args:
            observations: Own dtype (num_agents, *observation_shape).
            masks: bool (num_agents,), rows that hold an agent; the others are fed zeros, as in training.
            fresh: bool (num_agents,), rows whose memory starts anew.
        """
        if fresh.any():
            rows = torch.from_numpy(np.flatnonzero(fresh)).to(self._device)
            self._state = tuple(part.index_fill(0, rows, 0) for part in self._state)
        absent = torch.from_numpy(~masks).to(self._device)
        inputs = torch.from_numpy(np.ascontiguousarray(observations)).to(self._device)
        if not masks.all():
            inputs = inputs.clone()
            inputs[absent] = 0
        if self._normalizer is not None:
            inputs = self._normalizer(inputs)
        parameters, _, self._state = self._policy.forward_eval(inputs, self._state, *self._agent_numbers)
        head = self._policy.action_head
        action_mask = self._action_mask(absent)
        if self._deterministic:
            actions = head.mode(parameters, action_mask)
        else:
            fill_uniform(self._noise, self._seed, self._steps, self._rows)
            actions = head.sample(parameters, torch.from_numpy(self._noise).to(self._device), action_mask)
        self._steps += 1
        array: npt.NDArray[Any] = actions.cpu().numpy()
        return array if self._bounds is None else np.clip(array, *self._bounds)

    def _action_mask(self, absent: torch.Tensor) -> torch.Tensor | None:
        mask = self._vec.action_mask
        if mask is None:
            return None
        # A row without any legal action would have no distribution.
        return torch.from_numpy(np.ascontiguousarray(mask)).to(self._device) | absent[:, None]


class _Counts:
    """What each row has played: its own sums of rewards and steps, and the environment's records where there are any.

    Args:
        quotas: int64 (num_rows,), episodes that each row counts.
        rows_per_world: To find the row of a record.
    """

    def __init__(self, quotas: npt.NDArray[np.int64], rows_per_world: int) -> None:
        self.quotas = quotas
        self.rows_per_world = rows_per_world
        self.num_episodes = 0
        self.own: list[list[tuple[float, float, float]]] = [[] for _ in quotas]
        self.recorded: list[list[tuple[float, float, float]]] = [[] for _ in quotas]
        self._returns = np.zeros(len(quotas))
        self._lengths = np.zeros(len(quotas))

    def add_step(self, rewards: npt.NDArray[Any], ended: Flags, valid: Flags, records: npt.NDArray[np.void]) -> bool:
        """Add what a step brought; return whether a row counts one episode more."""
        num_episodes = self.num_episodes
        self._returns += np.where(valid, rewards, 0.0)
        self._lengths += valid
        for row in np.flatnonzero(ended & valid).tolist():
            if len(self.own[row]) < self.quotas[row]:
                episode_return = float(self._returns[row])
                self.own[row].append((episode_return, episode_return, float(self._lengths[row])))
                self.num_episodes += 1
        self._returns[ended] = 0.0
        self._lengths[ended] = 0.0
        for record in records:
            row = int(record["world"]) * self.rows_per_world + int(record["agent"])
            if len(self.recorded[row]) < self.quotas[row]:
                values = (record["score"], record["episode_return"], record["episode_length"])
                self.recorded[row].append((float(values[0]), float(values[1]), float(values[2])))
        return self.num_episodes > num_episodes

    def episodes(self) -> Floats:
        """Return (score, return, length) of each episode: float64 (num_episodes, 3)."""
        has_records = sum(map(len, self.recorded)) == self.num_episodes
        return np.array([episode for row in (self.recorded if has_records else self.own) for episode in row])


def _play(
    player: _Player,
    vec: Any,
    num_episodes: int,
    seed: int,
    max_steps: int,
    on_progress: Callable[[int], None] | None,
) -> _Counts:
    vec.async_reset(seed)
    observations, *_, masks = vec.recv()
    vec.episodes()
    valid = masks.copy()
    counts = _Counts(_quotas(valid, num_episodes), agents_per_world(vec))
    fresh = np.ones(vec.num_agents, dtype=np.bool_)
    for _ in range(max_steps):
        vec.send(player.choose(observations, valid, fresh))
        observations, rewards, terminals, truncations, _, _, masks = vec.recv()
        ended = terminals | truncations
        if counts.add_step(rewards, ended, valid, vec.episodes()) and on_progress is not None:
            on_progress(counts.num_episodes)
        if counts.num_episodes == num_episodes:
            break
        fresh = ended | ~masks
        valid = masks.copy()
    return counts


def _quotas(present: Flags, num_episodes: int) -> npt.NDArray[np.int64]:
    """Share the episodes among the rows that hold an agent; the first rows get what cannot be divided."""
    rows = np.flatnonzero(present)
    if not len(rows):
        raise RunError("an evaluation needs an agent at the first observation; all masks are False.")
    quotas = np.zeros(len(present), dtype=np.int64)
    quotas[rows] = num_episodes // len(rows)
    quotas[rows[: num_episodes % len(rows)]] += 1
    return quotas


def _evaluation(env_id: str, counts: _Counts, num_episodes: int, max_steps: int) -> Evaluation:
    episodes = counts.episodes()
    if not len(episodes):
        raise RunError(f"an episode must end within max_steps={max_steps}; none did. Raise max_steps.")
    if len(episodes) < num_episodes:
        warnings.warn(
            f"only {len(episodes)} of {num_episodes} episodes ended within max_steps={max_steps}; "
            "long episodes are missing from the means.",
            RuntimeWarning,
            stacklevel=3,
        )
    return Evaluation(env_id, episodes[:, 0], episodes[:, 1], episodes[:, 2])


def _mean_and_std(values: Floats) -> dict[str, float]:
    return {"mean": float(values.mean()), "std": float(values.std())}
