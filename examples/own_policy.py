"""Train a network of your own: any module that returns (logits, value).

    python own_policy.py

Or from the command line, in this folder; the class is called with the vector env:

    puffer train gym-CartPole-v1 --policy.name own_policy:Network --train.total-timesteps 50000
"""

import sys

import torch
from torch import nn

import puffer_vector
from puffer_train import PuffeRL, evaluate_policy


class Network(nn.Module):
    """Two layers, then the logits of the choices and the value."""

    def __init__(self, env, hidden_size=64):
        super().__init__()
        width, choices = env.single_observation_space.shape[0], int(env.single_action_space.n)
        self.body = nn.Sequential(
            nn.Linear(width, hidden_size), nn.Tanh(), nn.Linear(hidden_size, hidden_size), nn.Tanh()
        )
        self.actor = nn.Linear(hidden_size, choices)
        self.critic = nn.Linear(hidden_size, 1)

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(observations)
        return self.actor(hidden), self.critic(hidden)


if __name__ == "__main__":
    total_timesteps = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    vec = puffer_vector.make("gym-CartPole-v1", num_envs=16)
    policy = Network(vec)
    with PuffeRL(vec, policy, total_timesteps=total_timesteps, learning_rate=3e-3, cpu_threads=1) as trainer:
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            row = trainer.mean_and_log()
            print(f"{row['agent_steps']:7.0f} steps, episodes of {row.get('environment/episode_length', 0):.0f} steps")
        print(evaluate_policy(policy, "gym-CartPole-v1", num_episodes=16, normalizer=trainer.normalizer).to_dict())
