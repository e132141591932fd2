"""Train a native environment of your own, written in C; it is compiled when it is first used.

    python own_native_env/catch_env.py

Or from the command line, in the folder of this file:

    puffer train catch_env:ocean-catch --env.width 5 --train.total-timesteps 500000
    puffer eval catch_env:ocean-catch
"""

import sys
from pathlib import Path

import puffer_vector
from puffer_ocean import load_env
from puffer_spaces import register
from puffer_train import PuffeRL

CATCH = register(load_env(Path(__file__).with_name("catch.c")))  # now `ocean-catch` is an id

if __name__ == "__main__":
    total_timesteps = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    vec = puffer_vector.make("ocean-catch", num_envs=256, width=7)
    with PuffeRL(vec, total_timesteps=total_timesteps, learning_rate=3e-3, cpu_threads=1) as trainer:
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            row = trainer.mean_and_log()
            print(f"{row['agent_steps']:7.0f} steps, {100 * row.get('environment/perf', 0):.0f} % caught")
