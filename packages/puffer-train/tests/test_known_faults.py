"""The known faults of PufferLib 3.0's trainer: each has tests that begin with its name.

Those of a fault of the arithmetic are in the files of what it concerns; here are the faults that are met outside of it.

B1   The last step of each segment had no advantage, and the reward that came with its first row was never used.
B2   Steps that could teach nothing counted in the means, and pushed policy and entropy.
B3   Truncations were not stored: values were bootstrapped, and traces ran, over a time limit.
B4   Rows that only showed the start of an episode, whose action was ignored, were learned from.
B5   Memory was zeroed at each rollout and at no end of an episode.
B6   Agents that were dead or absent were learned from, as rows of zeros.
B7   Workers had the same seeds, and the seed that was given did not reach the environments.
B8   A worker that died left the main process waiting for ever.
B9   Mixed precision was entered and never left: optimizer and all that followed ran in it.
B10  Rewards were clamped to [-1, 1], always.
B11  Segments were drawn by priority, with weights that fitted another way of drawing.
B12  Advantages that were computed anew were overwritten by the old ones, and ratios were applied twice.
B13  Parts of a minibatch were summed without being averaged, and what was left ran into the next update.
B14  The wrapper with the LSTM initialised the policy again, with a large gain for the action head.
B15  Of several processes those that should be silent logged, failed at the end, and each counted its own steps alone.
B16  A checkpoint held the weights; schedule, random state, scales and environments began anew.
B17  Logged losses were one interval old, arrays in infos were lost, and explained variance was taken too late.
B18  Probabilities that were no numbers became uniform, and a diverged run went on in silence.
B19  Commands that the help named raised a TypeError, and the seed of the command line had no effect.
B20  An import changed the process: folders, signal handlers, filters of warnings.
B21  Stock policies lacked what the trainer calls, and nested spaces reached them as raw bytes.
B22  Asynchronous workers were read in turn, so that the slowest held up all.
B23  The asynchronous half of one backend returned what was not ready and lost what was.
B24  An evaluation had one environment, never ended, and returned nothing.
"""

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

import puffer_policies
import puffer_vector
from puffer_spaces import Layout, PufferEnv
from puffer_train import cli


def test_every_known_fault_is_listed_and_has_a_test_of_its_name():
    text = " ".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    marks = " ".join(re.findall(r"def test_((?:b\d+_)+)", text))

    listed = [int(number) for number in re.findall(r"^B(\d+) ", __doc__, re.MULTILINE)]
    assert listed == sorted({int(number) for number in re.findall(r"b(\d+)_", marks)}) == list(range(1, 25))


def test_b8_a_worker_that_dies_ends_the_rollout_with_an_error(make_trainer, cells):
    class Dying(cells):
        def step(self, actions):
            import os

            if self.first_world == 4 and self.left[0] % 2 == 0:
                os._exit(3)
            return super().step(actions)

    options = {"backend": "processes", "num_workers": 2}
    with (
        make_trainer(env=Dying, vec_options=options) as trainer,
        pytest.raises(puffer_vector.WorkerError, match="worker 1"),
    ):
        trainer.updates(10)


@pytest.mark.parametrize("command", ["train", "eval", "envs", "bench"])
def test_b19_every_command_explains_itself(command, capsys):
    assert cli.main([command, "--help"]) == 0
    assert f"usage: puffer {command}" in capsys.readouterr().out


SHORT_RUN = ["test-walk", "--vec.num-envs", "4", "--train.horizon", "4", "--train.num-iterations", "1"]


@pytest.mark.usefixtures("own_folder")
def test_b19_every_command_does_its_work(capsys):
    def output(*words):
        assert cli.main([*words]) == 0
        return capsys.readouterr().out

    assert "update_00000001.pt" in output("train", *SHORT_RUN)
    assert json.loads(output("eval", "test-walk", "--episodes", "2", "--json"))["episodes"] == 2
    assert output("envs", "test-walk") == "test-walk\n"
    assert "serial" in output("bench", "test-walk", "--num-envs", "2", "--backends", "serial", "--seconds", "0.01")


@pytest.mark.usefixtures("own_folder")
def test_b19_the_seed_of_the_command_line_reaches_the_worlds(walk_spec, monkeypatch):
    seeds, reset = [], walk_spec.entry_point.reset

    def reset_and_tell(env, seed=None, first_world=0, options=None):
        seeds.append((seed, first_world))
        return reset(env, seed, first_world, options)

    monkeypatch.setattr(walk_spec.entry_point, "reset", reset_and_tell)
    assert cli.main(["train", *SHORT_RUN, "--train.seed", "7"]) == 0

    assert seeds == [(7, 0)]


def test_b20_importing_leaves_no_trace(tmp_path):
    program = """
import logging, os, signal, threading, warnings
import gymnasium, numpy, sympy, torch  # what these do is theirs
for number in (signal.SIGINT, signal.SIGTERM):  # this process may have inherited what an import did to its parent
    signal.signal(number, signal.SIG_DFL)
filters = list(warnings.filters)
log_handlers = list(logging.root.handlers)
state = torch.get_rng_state()
import puffer_train, puffer_train.cli, puffer_train.trainer
assert warnings.filters == filters
assert {signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)} == {signal.SIG_DFL}
assert logging.root.handlers == log_handlers
assert threading.active_count() == 1
assert torch.equal(torch.get_rng_state(), state)
assert os.listdir(".") == []
"""
    tmp_path.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-B", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


class Sampled(PufferEnv):
    """Observations by chance, of any space."""

    rebinds_buffers = True
    has_final_observations = True

    def __init__(self, space, action_space, num_envs=4, buf=None):
        self.observation_layout, self.action_layout = Layout(space), Layout(action_space)
        self.original_observation_space, self.original_action_space = space, action_space
        self.single_observation_space = self.observation_layout.row_space
        self.single_action_space = self.action_layout.row_space
        self.num_envs = self.num_agents = num_envs
        self.space = space
        super().__init__(buf)

    def reset(self, seed=None, first_world=0, options=None):
        self.space.seed(0 if seed is None else seed)
        self._show()
        return self.observations, []

    def step(self, actions):
        self.rewards[:] = 1.0
        self._show()
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def _show(self):
        for row in self.observations:
            self.observation_layout.flatten_into(self.space.sample(), row)


IMAGE = spaces.Box(0, 255, (3, 64, 64), np.uint8)
NESTED = spaces.Dict(
    place=spaces.Box(-1, 1, (3,), np.float32),
    inner=spaces.Dict(
        level=spaces.Discrete(4), pair=spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (), np.float64)])
    ),
)
WIDTHS = dict.fromkeys(("input_size", "hidden_size", "output_size"), 32)
STOCK = {
    "images": (IMAGE, lambda vec: puffer_policies.Convolutional(vec, framestack=3, **WIDTHS)),
    "procgen": (IMAGE, lambda vec: puffer_policies.ProcgenResnet(vec)),
    "nested": (NESTED, lambda _vec: None),
    "plain": (spaces.Box(-1, 1, (5,), np.float32), lambda vec: puffer_policies.Default(vec, hidden_size=16)),
}
ACTIONS = {
    "discrete": spaces.Discrete(3),
    "multi": spaces.MultiDiscrete([2, 3]),
    "continuous": spaces.Box(-1, 1, (2,), np.float32),
}


@pytest.mark.parametrize("action_space", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize(("space", "policy"), STOCK.values(), ids=STOCK)
def test_b21_stock_policies_train_alone_on_all_kinds_of_spaces(make_trainer, space, policy, action_space):
    options = {"num_envs": 4, "env_kwargs": {"space": space, "action_space": action_space}}
    with make_trainer(env=Sampled, policy=policy, vec_options=options, horizon=2, minibatch_size=8) as trainer:
        before = trainer.weights()
        losses = trainer.updates(1)

        assert losses["importance"] == pytest.approx(1.0, abs=1e-5)
        assert not torch.equal(trainer.weights(), before)


def test_b22_a_straggler_does_not_hold_up_the_others(make_trainer, cells):
    others_are_ahead = threading.Event()

    class Straggling(cells):
        num_steps = 0

        def step(self, actions):
            if self.first_world == 0 and self.num_steps == 1:
                assert others_are_ahead.wait(60)
            if self.first_world == 6 and self.num_steps == 12:  # half a rollout after the straggler's step
                others_are_ahead.set()
            self.num_steps += 1
            return super().step(actions)

    options = {"backend": "threads", "num_workers": 4, "batch_size": 2, "order": "first_come"}
    with make_trainer(env=Straggling, vec_options=options) as trainer:
        stats = trainer.evaluate()

        assert stats["agent_steps"] == 64
        assert others_are_ahead.is_set()


def test_b23_asynchronous_batches_give_the_same_run_on_every_backend(make_trainer):
    def run(**options):
        with make_trainer(vec_options={"batch_size": 4, **options}) as trainer:
            trainer.updates(2)
            assert trainer.experience.valid.all()
            return trainer.weights()

    expected = run(backend="serial")

    for backend in ("threads", "processes"):
        assert torch.equal(run(backend=backend, num_workers=2), expected)
