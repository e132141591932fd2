"""Stages of a curriculum: settings and environment parameters change between updates."""

from __future__ import annotations

from pathlib import Path

import puffer_vector
from puffer_train import PuffeRL


def make_trainer() -> PuffeRL:
    vec = puffer_vector.make("ocean-cartpole", num_envs=8, seed=1, max_steps=5)
    return PuffeRL(vec, horizon=32, num_iterations=8, cpu_threads=1, device="cpu")


def episode_length(trainer: PuffeRL, num_updates: int = 2) -> float:
    for _ in range(num_updates):
        trainer.evaluate()
        trainer.train()
    return trainer.mean_and_log()["environment/episode_length"]


def test_a_parameter_holds_from_each_worlds_next_episode_and_after_a_resume(tmp_path: Path) -> None:
    with make_trainer() as trainer:
        assert episode_length(trainer) == 5.0
        trainer.vec.set_parameters(max_steps=3)
        trainer.change(gamma=0.9)
        trainer.learning_rate = 1e-5
        episode_length(trainer, 1)  # the episodes that were under way
        assert episode_length(trainer) == 3.0
        path = trainer.save_checkpoint(tmp_path / "stage.pt")
    with make_trainer() as trainer:
        trainer.load_checkpoint(path)

        assert trainer.config.gamma == 0.9
        assert episode_length(trainer) == 3.0
