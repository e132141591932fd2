"""Two processes against one that has all segments in two blocks."""

import subprocess
import sys
import textwrap

import torch

SCRIPT = textwrap.dedent(
    '''
    import sys

    import numpy as np
    import puffer_vector
    import torch
    from gymnasium.spaces import Box, Discrete

    from puffer_policies import default_policy
    from puffer_spaces import PufferEnv
    from puffer_train import PuffeRL


    class Hills(PufferEnv):
        """World w starts at a place of its own; moving right pays; it ends at the top."""

        rebinds_buffers = True
        has_final_observations = True
        single_observation_space = Box(-9, 9, (2,), np.float32)
        single_action_space = Discrete(2)

        def __init__(self, num_envs=1, buf=None):
            self.num_envs = self.num_agents = num_envs
            super().__init__(buf)

        def reset(self, seed=None, first_world=0, options=None):
            self.worlds = first_world + np.arange(self.num_envs)
            self.observations[:, 0] = self.worlds / 10
            self.observations[:, 1] = self.worlds % 3
            return self.observations, []

        def step(self, actions):
            self.observations[:, 0] += 0.2 * np.asarray(actions).reshape(-1)
            self.rewards[:] = self.observations[:, 0] * self.worlds
            ended = self.observations[:, 0] > 1
            self.terminals[:] = ended & (self.worlds % 2 == 0)
            self.truncations[:] = ended & (self.worlds % 2 == 1)
            self.final_observations[:] = self.observations
            self.observations[ended, 0] = 0.0
            return self.observations, self.rewards, self.terminals, self.truncations, []


    def main(rank, world_size, folder):
        torch.set_num_threads(1)
        if world_size > 1:
            torch.distributed.init_process_group(
                "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world_size
            )
        num_envs = 8 // world_size
        vec = puffer_vector.make(Hills, num_envs=num_envs, seed=1, first_world=rank * num_envs)
        torch.manual_seed(0)
        policy = default_policy(vec, hidden_size=16, recurrent="lstm")
        rows = []

        class Logger:
            def log(self, row):
                rows.append(row)

            def close(self):
                pass

        with PuffeRL(
            vec, policy, horizon=8, minibatch_size=32, update_epochs=2, learning_rate=3e-3, num_iterations=3,
            segment_blocks=2 // world_size, logger=Logger(), max_grad_norm=0.1,
        ) as trainer:
            while not trainer.done:
                trainer.evaluate()
                losses = trainer.train()
                trainer.mean_and_log()
            torch.save(
                {
                    "weights": [parameter.detach() for parameter in policy.parameters()],
                    "losses": losses,
                    "agent_steps": trainer.agent_steps,
                    "first_observation": trainer.experience.observations[0, 0],
                },
                f"{folder}/result_{world_size}_{rank}.pt",
            )
        print(len(rows))
        if world_size > 1:
            torch.distributed.destroy_process_group()


    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    '''
)


def test_b15_two_processes_give_the_result_of_one_with_the_same_blocks(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    commands = [(0, 1), (0, 2), (1, 2)]
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(world_size), str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, world_size in commands
    ]
    try:
        outputs = [process.communicate(timeout=100)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    one, first, second = (torch.load(tmp_path / f"result_{size}_{rank}.pt") for rank, size in commands)

    for expected, mine, its in zip(one["weights"], first["weights"], second["weights"], strict=True):
        assert torch.equal(mine, its)
        torch.testing.assert_close(mine, expected, atol=1e-5, rtol=0)
    assert first["agent_steps"] == second["agent_steps"] == one["agent_steps"] == 3 * 64
    assert outputs[1].split() == ["3"]
    assert outputs[2].split() == ["0"]
    for name, value in one["losses"].items():
        assert abs(first["losses"][name] - value) < 1e-4, name
    assert not torch.equal(first["first_observation"], second["first_observation"])
