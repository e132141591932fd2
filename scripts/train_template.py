"""A training script to copy: alone, or in several processes that share the worlds.

    python train_template.py
    torchrun --nproc_per_node=2 train_template.py

Each run goes on from the checkpoint that the last one left; delete it to begin anew.
"""

import argparse
from pathlib import Path

import puffer_vector
from puffer_policies import default_policy
from puffer_train import PuffeRL, Ranks

ENV = "ocean-cartpole"  # an id, or a class of your own such as that of env_template.py
NUM_ENVS = 64  # of all processes together, as every count here
CHECKPOINT = Path("checkpoint.pt")
SAVE_EVERY = 10  # updates


def train(total_timesteps: int) -> None:
    ranks = Ranks.join()
    vec = puffer_vector.make(ENV, seed=1, **ranks.share(NUM_ENVS))
    policy = default_policy(vec, hidden_size=64)
    with PuffeRL(vec, policy, total_timesteps=total_timesteps, horizon=32, seed=1, cpu_threads=1) as trainer:
        if CHECKPOINT.exists():
            trainer.load_checkpoint(CHECKPOINT)
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            row = trainer.mean_and_log()  # on every process: it collects the episodes of all
            if ranks.is_first:
                episode_return = row.get("environment/episode_return", float("nan"))  # none may have ended yet
                print(f"{row['agent_steps']:9.0f} steps  {row['SPS']:7.0f} steps/s  return {episode_return:.1f}")
            if trainer.epoch % SAVE_EVERY == 0:
                trainer.save_checkpoint(CHECKPOINT)
        trainer.save_checkpoint(CHECKPOINT)
        if ranks.is_first:
            print(f"{trainer.where_time_went()}\ncheckpoint: {CHECKPOINT}, of {trainer.epoch} updates")


if __name__ == "__main__":  # worker processes import this file
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--total-timesteps", type=int, default=500_000, help="agent steps of the whole run")
    train(parser.parse_args().total_timesteps)
