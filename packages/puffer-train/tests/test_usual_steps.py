"""Steps stored by the compiled pass are those that array operations store."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from puffer_spaces import PufferEnv
from puffer_train import rollout
from puffer_train.experience import Experience
from puffer_train.native import steps
from puffer_train.usual_steps import usual_steps

pytestmark = pytest.mark.skipif(steps() is None, reason="needs the compiled steps")
NUM_AGENTS, HORIZON, NUM_SLOTS = 3, 4, 8


class Masked(PufferEnv):
    """Shows a byte, forbids a choice in turn, and ends every fifth step, in turn by a termination and a truncation."""

    rebinds_buffers = True
    has_final_observations = True
    action_mask_size = 3

    def __init__(self, num_envs=4, buf=None):
        self.single_observation_space = Box(0, 255, (2, 3), np.uint8)
        self.single_action_space = Discrete(3)
        self.num_envs = self.num_agents = num_envs
        super().__init__(buf)

    def reset(self, seed=None, first_world=0, options=None):
        self.clock = first_world + np.arange(self.num_envs)
        self._show()
        return self.observations, []

    def step(self, actions):
        self.final_observations[:] = self.observations
        self.clock += 1
        self.rewards[:] = self.clock + np.asarray(actions)
        self.terminals[:] = self.clock % 10 == 5
        self.truncations[:] = self.clock % 10 == 0
        self._show()
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def _show(self):
        self.observations[:] = (self.clock % 250)[:, None, None]
        self.action_mask[:] = True
        self.action_mask[np.arange(self.num_envs), self.clock % 3] = False


def stored(make_trainer, **options):
    """Return what three rollouts leave behind, and how often array operations were needed for each half of a step."""
    with make_trainer(**options) as trainer:
        collector = trainer._rollout
        num_unusual = {name: counted(collector, name) for name in ("_take_outcome", "_store")}
        kept = []
        for _ in range(3):
            trainer.evaluate()
            experience = trainer.experience
            kept += [tensor.clone() for tensor in vars(experience).values() if isinstance(tensor, torch.Tensor)]
            kept += [part.clone() for part in experience.states]
            trainer.train()
        kept += [collector.state_dict(), trainer.agent_steps, trainer.weights(), trainer.mean_and_log()["agent_steps"]]
        return kept, {name: len(calls) for name, calls in num_unusual.items()}


def counted(owner, name):
    """Let a method be counted: return a list that gets longer with each call."""
    method, calls = getattr(owner, name), []
    setattr(owner, name, lambda *arguments: (calls.append(1), method(*arguments))[1])
    return calls


RUNS = {
    "synchronous": {},
    "two segments": {"batch_size": 128},
    "memory": {"memory": True},
    "asynchronous": {"vec_options": {"backend": "threads", "num_workers": 2, "batch_size": 4}},
    "first come": {"vec_options": {"batch_size": 2, "order": "first_come", "num_envs": 8}},
    "one agent": {"vec_options": {"num_envs": 1}},
    "masks of actions, rows of bytes": {"env": Masked},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_the_same_in_both_forms(name, make_trainer, equal, monkeypatch):
    by_loop, num_unusual = stored(make_trainer, **RUNS[name])
    monkeypatch.setattr(rollout, "usual_steps", lambda *_: None)
    by_arrays, num_steps = stored(make_trainer, **RUNS[name])

    assert equal(by_loop, by_arrays)
    assert all(num_unusual[half] < num_steps[half] / 2 for half in num_steps)


def test_rows_without_an_agent_are_left_to_array_operations(make_trainer, padded, equal, monkeypatch):
    by_loop, num_unusual = stored(make_trainer, env=padded)
    monkeypatch.setattr(rollout, "usual_steps", lambda *_: None)
    by_arrays, num_steps = stored(make_trainer, env=padded)

    assert equal(by_loop, by_arrays)
    assert num_unusual["_take_outcome"] == num_steps["_take_outcome"]


@pytest.mark.parametrize("memory", [False, True])
def test_in_synchronous_rollouts_only_the_first_steps_need_array_operations(make_trainer, memory):
    _, num_unusual = stored(make_trainer, memory=memory)

    assert num_unusual == {"_take_outcome": 1, "_store": 3}  # of the run, and of each rollout


def test_actions_of_another_kind_of_the_same_size_are_converted(make_trainer, monkeypatch):
    with make_trainer() as trainer:
        draw = trainer._rollout._sampler.draw

        def draw_floats(*arguments):
            actions, log_probs = draw(*arguments)
            return actions.float(), log_probs

        monkeypatch.setattr(trainer._rollout._sampler, "draw", draw_floats)
        monkeypatch.setattr(trainer._adapted.action_head, "env_actions", torch.Tensor.int)
        trainer.evaluate()

        assert trainer.experience.actions.max() < 3


@pytest.fixture
def pass_of():
    """A compiled pass over an experience of two segments for each of three agents, all of whom have acted once."""
    experience = Experience(
        num_agents=NUM_AGENTS,
        segments_per_agent=2,
        horizon=HORIZON,
        observation_shape=(2,),
        observation_dtype=torch.float32,
        action_shape=(),
        action_dtype=torch.int32,
    )
    rows = {name: np.ones(NUM_AGENTS, np.int64) for name in ("slots", "num_outcomes", "num_steps")}
    rows["acted"] = np.ones(NUM_AGENTS, np.bool_)
    return usual_steps(experience, rows), experience, rows


def outcome(**changes):
    """Return arguments of an outcome that is usual, but for changes."""
    given = {
        "ids": np.arange(NUM_AGENTS),
        "rewards": np.array([1.0, 2.0, 3.0], np.float32),
        "terminals": np.zeros(NUM_AGENTS, np.bool_),
        "truncations": np.zeros(NUM_AGENTS, np.bool_),
        "masks": np.ones(NUM_AGENTS, np.bool_),
        "invalid": np.zeros(NUM_AGENTS, np.bool_),
        "resets": np.zeros(NUM_AGENTS, np.bool_),
    }
    return tuple({**given, **changes}.values())


@pytest.mark.parametrize(
    "changes",
    [
        {"ids": np.array([0, 1, 3])},
        {"ids": np.array([-1, 0, 1])},
        {"rewards": np.array([0.0, np.nan, 0.0], np.float32)},
        {"rewards": np.array([0.0, 0.0, np.inf], np.float32)},
        {"rewards": np.zeros(2, np.float32)},
        {"terminals": np.zeros(2, np.bool_)},
        {"truncations": np.zeros((NUM_AGENTS, 2), np.bool_)[:, 0]},
        {"masks": np.array([True, True, False])},
        {"invalid": np.array([False, True, False])},
    ],
)
def test_an_unusual_outcome_writes_nothing(changes, pass_of):
    usual, experience, _ = pass_of
    experience.rewards.fill_(7.0)

    assert usual.take_outcome(*outcome(**changes)) is None
    assert experience.rewards.eq(7.0).all()


def test_an_agent_that_did_not_act_or_has_no_slot_left_makes_an_outcome_unusual(pass_of):
    usual, _, rows = pass_of
    assert usual.take_outcome(*outcome()) is False
    rows["acted"][2] = False
    assert usual.take_outcome(*outcome()) is None
    rows["acted"][2], rows["slots"][1] = True, NUM_SLOTS + 1
    assert usual.take_outcome(*outcome()) is None
    rows["slots"][1] = 0
    assert usual.take_outcome(*outcome()) is None


def test_an_outcome_tells_of_truncations_that_are_no_terminations(pass_of):
    usual, experience, _ = pass_of
    resets = np.zeros(NUM_AGENTS, np.bool_)
    both = {"terminals": np.array([True, False, True]), "truncations": np.array([True, False, False])}

    assert usual.take_outcome(*outcome(**both, resets=resets)) is False
    assert resets.tolist() == [True, False, True]
    assert usual.take_outcome(*outcome(truncations=np.array([False, True, False]), resets=resets)) is True
    assert resets.tolist() == [False, True, False]
    assert experience.truncations[:, 0].tolist() == [False, False, True, False, False, False]


def step(**changes):
    """Return arguments of a step to store that is usual, but for changes."""
    given = {
        "ids": np.arange(NUM_AGENTS),
        "values": torch.tensor([1.0, 2.0, 3.0]),
        "log_probs": torch.tensor([-1.0, -2.0, -3.0]),
        "masks": np.array([True, False, True]),
        "resets": np.array([False, True, False]),
        "payload": (torch.arange(6.0).view(3, 2), torch.arange(3, dtype=torch.int32)),
    }
    return tuple({**given, **changes}.values())


def test_a_step_inside_a_segment_is_stored_row_by_row(pass_of):
    usual, experience, rows = pass_of
    rows["slots"][:] = [1, 5, 6]

    assert usual.store(*step()) == 2
    places = ([0, 3, 5], [1, 1, 2])
    assert experience.observations[places].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert experience.actions[places].tolist() == [0, 1, 2]
    assert experience.values[places].tolist() == [1, 2, 3]
    assert experience.log_probs[places].tolist() == [-1, -2, -3]
    assert experience.valid[places].tolist() == [True, False, True]
    assert experience.resets[places].tolist() == [False, True, False]
    assert rows["slots"].tolist() == [2, 6, 7]
    assert rows["num_steps"].tolist() == [2, 2, 2]
    assert rows["acted"].tolist() == [True, False, True]


@pytest.mark.parametrize("slot", [0, HORIZON, NUM_SLOTS, NUM_SLOTS + 1])
def test_a_step_that_begins_or_ends_a_segment_is_unusual(slot, pass_of):
    usual, experience, rows = pass_of
    rows["slots"][1] = slot

    assert usual.store(*step()) is None
    assert not experience.observations.any()
    assert rows["num_steps"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {"ids": np.array([0, 1, NUM_AGENTS])},
        {"ids": np.array([0, 1, -1])},
        {"values": torch.zeros(3, dtype=torch.float64)},
        {"values": torch.zeros(3, 2)[:, 0]},
        {"log_probs": torch.zeros(2)},
        {"masks": np.ones(4, np.bool_)},
        {"payload": (torch.zeros(2, 3).t(), torch.zeros(3, dtype=torch.int32))},
        {"payload": (torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64))},
    ],
)
def test_arrays_that_do_not_fit_are_unusual(changes, pass_of):
    usual, experience, rows = pass_of

    assert usual.store(*step(**changes)) is None
    assert not experience.observations.any()
    assert rows["slots"].tolist() == [1, 1, 1]


def test_rows_of_no_bytes_have_no_compiled_pass():
    experience = Experience(
        num_agents=1,
        segments_per_agent=1,
        horizon=2,
        observation_shape=(0,),
        observation_dtype=torch.float32,
        action_shape=(),
        action_dtype=torch.int32,
    )

    assert usual_steps(experience, {}) is None
