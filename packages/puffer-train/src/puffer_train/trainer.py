"""PuffeRL: the loop of rollouts and updates."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

import puffer_policies
import puffer_vector
from puffer_train.allocator import keep_freed_memory
from puffer_train.checkpoint import read_checkpoint, write_checkpoint
from puffer_train.checkpoint_folder import default_path
from puffer_train.config import CHANGEABLE, ConfigError, TrainConfig
from puffer_train.device import choose_device
from puffer_train.distributed import Ranks, check_agreement
from puffer_train.experience import experience_of
from puffer_train.generator import PrivateGenerator
from puffer_train.interval import Interval
from puffer_train.launch import Launch
from puffer_train.loggers import GuardedLogger
from puffer_train.normalization import ObservationNormalizer, float_leaves
from puffer_train.optim import make_optimizer
from puffer_train.puffer3 import Puffer3Update
from puffer_train.rewards import ReturnScale
from puffer_train.rollout import Rollout
from puffer_train.run_state import RunState
from puffer_train.schedules import entropy_coefficient, learning_rate_factor
from puffer_train.update import Learner, Update


class PuffeRL(AbstractContextManager["PuffeRL"]):
    """Trains a policy by PPO.

    ```python
    trainer = PuffeRL(vec, learning_rate=1e-3, total_timesteps=100_000)
    while not trainer.done:
        trainer.evaluate()          # a rollout: segments of experience
        trainer.train()             # an update from it
        print(trainer.mean_and_log())
    trainer.close()
    ```

    The whole run is a function of the config and the seed: the same twice gives the same weights, bit for bit, on the
    same machine with the same number of threads.

    Args:
        env: A vector env, or anything `puffer_vector.make` takes: an id, a PufferEnv, a creator.
        policy: An `nn.Module` in any form that `puffer_policies.adapt_policy` knows. None: chosen by the spaces.
        config: A config to start from, instead of single fields.
        device: Where the policy runs: auto, cpu, cuda ...
        logger: Gets each row of `mean_and_log` by its method `log`, through a `GuardedLogger`. `close` closes it.
        **fields: Fields of `TrainConfig`, or their aliases.

    Attributes:
        vec: The vector env.
        policy: The module as it was given.
        config: Resolved; changed by `change` and by assigning `learning_rate`.
        agent_steps: Steps of all agents so far, padding not counted.
        epoch: Updates so far.

    Raises:
        ConfigError: If settings are unknown or do not fit each other or the env. Nothing was started then.
    """

    def __init__(
        self,
        env: Any,
        policy: torch.nn.Module | None = None,
        *,
        config: TrainConfig | None = None,
        device: str | None = None,
        logger: Any = None,
        **fields: Any,
    ) -> None:
        if config is None:
            config = TrainConfig.from_fields(fields)
        elif fields:
            raise ConfigError(f"config must come alone; got also {', '.join(fields)}. Use dataclasses.replace.")
        config = config if device is None else dataclasses.replace(config, device=device)
        self.ranks = Ranks.join(config.rank_timeout_s)
        is_vector = hasattr(env, "agents_per_batch")
        self.vec = env if is_vector else puffer_vector.make(env, 1, seed=config.seed, first_world=self.ranks.rank)
        try:
            self._set_up(config, policy)
        except BaseException:
            if not is_vector:
                self.vec.close()
            raise
        self._logger = GuardedLogger(logger) if logger is not None and self.ranks.is_first else None

    def _set_up(self, config: TrainConfig, policy: torch.nn.Module | None) -> None:
        check_agreement(self.ranks, self.vec, config)
        config.check(self.vec, self.ranks.world_size)
        self.config = config.resolve(self.vec, self.ranks.world_size)
        if self.config.cpu_threads is not None:
            torch.set_num_threads(self.config.cpu_threads)
        self.device = choose_device(self.config.device, Launch.from_environment().local_rank)
        if self.config.keep_freed_memory and self.device.type == "cpu":
            keep_freed_memory()
        self._generator = PrivateGenerator(self.config.seed, self.device)
        with self._generator.use():
            self._make_policy(policy)
        self._make_learner()
        self._interval = Interval(self.vec.num_agents, self.ranks)
        self.agent_steps = 0
        self.epoch = 0
        self._make_rollout()
        self._state = RunState(
            policy=self.policy,
            optimizer=self._learner.optimizer,
            normalizer=self.normalizer,
            return_scale=self.return_scale,
            generator=self._generator,
            interval=self._interval,
            rollout=self._rollout,
            vec=self.vec,
            ranks=self.ranks,
        )
        self._given_config, self._changes = self.config, dict[str, Any]()
        self._learned_steps = 0
        self._ent_coef = self.config.ent_coef

    def _make_policy(self, policy: torch.nn.Module | None) -> None:
        self.policy = puffer_policies.default_policy(self.vec) if policy is None else policy
        if not isinstance(self.policy, torch.nn.Module):
            hint = f"{policy.__name__}(...)" if isinstance(policy, type) else "None for the default one"
            raise ConfigError(f"policy must be an nn.Module; got {policy!r}. Give {hint}.")
        self.policy.to(self.device)
        vec = self.vec
        spaces = (vec.single_observation_space, vec.single_action_space, vec.observation_layout, vec.action_layout)
        adapted: torch.nn.Module = puffer_policies.adapt_policy(self.policy, *spaces)  # type: ignore[assignment]
        self._adapted: Any = adapted.to(self.device)
        if self._adapted.is_recurrent and self.config.minibatch_unit == "transition":
            raise ConfigError(
                "minibatch_unit must be segment for a policy with memory; got transition. "
                "Use --train.minibatch-unit segment."
            )

    def _make_learner(self) -> None:
        config = self.config
        leaves = float_leaves(self.vec.observation_layout) if config.normalize_observations else []
        self.normalizer = ObservationNormalizer(leaves, config.observation_clip).to(self.device)
        parameters = list(self._adapted.parameters())
        self.ranks.broadcast_([*parameters, *self._adapted.buffers()])
        forward = self._adapted.forward_sequence
        self._learner = Learner(
            policy=self._adapted,
            parameters=[parameter for parameter in parameters if parameter.requires_grad],
            optimizer=make_optimizer(config, parameters),
            normalize=self.normalizer,
            autocast=self._autocast,
            ranks=self.ranks,
            forward=torch.compile(forward) if config.compile else forward,
        )

    def _make_rollout(self) -> None:
        config, vec = self.config, self.vec
        self.experience = experience_of(config, vec, self._adapted, self.ranks.world_size, self.device)
        self.return_scale = ReturnScale(vec.num_agents, self.device)
        self._rollout = Rollout(
            vec,
            self._adapted,
            self.normalizer,
            self.experience,
            self._interval,
            seed=config.seed,
            first_row=self.ranks.rank * vec.num_agents,
            autocast=self._autocast,
        )

    @property
    def done(self) -> bool:
        """Whether the run has all its updates, or as many as `stop_after_updates` allows."""
        config = self.config
        if config.stop_after_updates is not None and self.epoch >= config.stop_after_updates:
            return True
        if config.num_iterations is not None:
            return self.epoch >= config.num_iterations
        return self.agent_steps >= config.total_timesteps

    @property
    def total_agent_steps(self) -> int:
        """Agent steps of the whole run."""
        config = self.config
        assert config.batch_size is not None
        return config.total_timesteps if config.num_iterations is None else config.num_iterations * config.batch_size

    @property
    def learning_rate(self) -> float:
        """Step size of the optimizer. Assigning sets it from the next update on; the schedule goes on from there."""
        return self._learner.optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        factor = learning_rate_factor(self.config, self._progress)
        self.change(learning_rate=value / factor if factor > 0.0 else value)
        self._learner.optimizer.learning_rate = value

    def change(self, **fields: Any) -> None:
        """Change settings between updates, for a curriculum: learning rate, entropy, clipping, discount, length ...

        Raises:
            ConfigError: If a field does not exist, cannot change while a run goes on, or has a bad value.
        """
        for name in fields:
            if name not in CHANGEABLE:
                raise ConfigError(f"fields that change during a run must be of {sorted(CHANGEABLE)}; got {name}.")
        config = dataclasses.replace(self.config, **fields)
        config.check(self.vec, self.ranks.world_size)
        self.config = config
        self._changes.update(fields)

    def evaluate(self) -> dict[str, float]:
        """Run the policy until all segments are full.

        Returns:
            `agent_steps` of this rollout, `sps` (agent steps per second), `mean_reward` per agent step.

        Raises:
            NonFiniteError: If an observation, a reward or an output of the policy is not finite.
        """
        started = time.perf_counter()
        with self._generator.use():
            self._rollout.collect()
        experience = self.experience
        sums = [self._rollout.num_agent_steps, experience.rewards.sum().item(), experience.valid.sum().item()]
        num_steps, reward, num_valid = self.ranks.sum_(torch.tensor(sums, dtype=torch.float64)).tolist()
        self.agent_steps += int(num_steps)
        sps = num_steps / (time.perf_counter() - started)
        return {"agent_steps": int(num_steps), "sps": sps, "mean_reward": reward / max(num_valid, 1.0)}

    def train(self) -> dict[str, float]:
        """Update the policy from the last rollout.

        Returns:
            Means over the minibatches: `policy_loss`, `value_loss`, `entropy`, `old_approx_kl`, `approx_kl`,
            `clipfrac`, `importance`, `grad_norm`; and `explained_variance` before the update, `num_minibatches`.

        Raises:
            RuntimeError: If there was no `evaluate` since the last update.
            NonFiniteError: If a loss or gradient was not finite. The weights are spoilt then.
        """
        started = time.perf_counter()
        self.experience.use_up()
        config = self.config
        is_first = self.return_scale.count == 0.0
        if is_first:
            self._update_return_scale()
        self._learner.optimizer.learning_rate = config.learning_rate * learning_rate_factor(config, self._progress)
        self._ent_coef = entropy_coefficient(config, self._progress)
        update_class = Puffer3Update if config.objective == "puffer3" else Update
        update = update_class(
            self._learner,
            self.experience,
            config,
            rewards=self.return_scale.apply(self.experience.rewards, config.reward_clip),
            ent_coef=self._ent_coef,
            progress=self._progress,
            epoch=self.epoch,
        )
        with self._generator.use():
            losses = update.run()
        if config.normalize_observations:
            self.normalizer.update(self.experience.observations, self.experience.valid, self.ranks)
        if not is_first:
            self._update_return_scale()
        self.epoch += 1
        self._learned_steps = self.agent_steps
        self._interval.add_losses(losses)
        self._interval.seconds["train"] += time.perf_counter() - started
        return losses

    def mean_and_log(self) -> dict[str, float]:
        """Return and log means over what happened since the last call, and begin the next interval.

        Of several processes each has to call it: episodes are those of all, and rank 0 logs.

        Returns:
            A flat dict: `agent_steps`, `SPS`, `uptime`, `epoch`, `learning_rate` and `ent_coef` of the last update,
            `SPS/<part>` (see `puffer_train.timing.speeds`), `environment/<metric>`, `losses/<name>`,
            `performance/<stage>` (seconds).
        """
        row = self._interval.finish(
            agent_steps=self.agent_steps, epoch=self.epoch, learning_rate=self.learning_rate, ent_coef=self._ent_coef
        )
        if self._logger is not None:
            self._logger.log(row)
        return row

    def where_time_went(self) -> str:
        """Return one sentence on the time of the run up to the last `mean_and_log`, in this process."""
        return self._interval.where_time_went()

    def state_dict(self) -> dict[str, Any]:
        """Return everything a resumed run needs, as tensors and plain values. Call it between updates.

        Weights, optimizer, normalisers, counters, the state of the random generator, memory, the observations that wait
        for an action, and where the envs can, their exact state: then a resumed run equals an uninterrupted one.

        Of several processes each has to call it. Rank 0 gets the state of all, the others an empty dict.
        """
        return {**self._state.gather(), **self._counters()} if self.ranks.is_first else self._state.gather()

    def learned_state_dict(self) -> dict[str, Any]:
        """Return a copy of what was learned, of which a run resumed begins new episodes. It needs no other process."""
        return {**self._state.copy_of_learned(), **self._counters()}

    def _counters(self) -> dict[str, Any]:
        return {"agent_steps": self.agent_steps, "epoch": self.epoch, "changes": dict(self._changes)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state that rank 0's `state_dict` returned; of several processes each is given the whole of it.

        Without a state of the envs, or with another number of them or of processes, new episodes begin.

        Raises:
            CheckpointError: If the weights do not fit.
            ConfigError: If the processes were given different states.
        """
        self.agent_steps, self.epoch = int(state["agent_steps"]), int(state["epoch"])
        self._learned_steps = self.agent_steps
        self._state.load(state, self.epoch)
        self.config, self._changes = self._given_config, {}
        self.change(**state["changes"])
        if len(set(self.ranks.all((self.epoch, self.agent_steps)))) > 1:
            raise ConfigError("all processes must go on from the same checkpoint; they were given different ones.")

    def save_checkpoint(self, path: str | Path | None = None, metadata: dict[str, Any] | None = None) -> Path:
        """Write `state_dict` to a file, whole or not at all. Call it between updates, of several processes on each.

        Args:
            path: The file. None: `runs/<env>/checkpoints/update_<epoch>.pt`.
            metadata: Plain values beside the state, over those that are always there: `env_id`, `update`,
                `agent_steps`, `config`.

        Returns:
            The path.
        """
        env_id = str(self.vec.env_name)
        about = {"env_id": env_id, "update": self.epoch, "agent_steps": self.agent_steps}
        about["config"] = {"train": dataclasses.asdict(self.config)}
        path = default_path(env_id, self.epoch) if path is None else Path(path)
        state = self.state_dict()
        if self.ranks.is_first:
            write_checkpoint(path, state, {**about, **(metadata or {})})
        self.ranks.wait()
        return path

    def load_checkpoint(self, path: str | Path) -> dict[str, Any]:
        """Go on from a checkpoint, and return its metadata. Of several processes each has to read the same file.

        Raises:
            CheckpointError: If the file is missing, damaged, or of another policy.
        """
        state, metadata = read_checkpoint(path)
        self.load_state_dict(state)
        return metadata

    def close(self) -> None:
        """Close the vector env and the logger; a second call does nothing."""
        self.vec.close()
        if self._logger is not None:
            self._logger.close()

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def _progress(self) -> float:
        """Part of the run that was done with the last update; a rollout that waits for its own does not count."""
        config = self.config
        if config.num_iterations is not None:
            return self.epoch / config.num_iterations
        return self._learned_steps / config.total_timesteps

    def _update_return_scale(self) -> None:
        config = self.config
        if config.normalize_returns:
            self.return_scale.update(
                self.experience, gamma=config.gamma, reward_clip=config.reward_clip, ranks=self.ranks
            )

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.config.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)
