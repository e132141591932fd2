"""What a rollout stores, row by row, against environments and policies whose every number is known."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

import puffer_vector
from puffer_policies import adapt_policy
from puffer_spaces import PufferEnv
from puffer_train.errors import NonFiniteError
from puffer_train.native import steps
from puffer_train.trainer import PuffeRL


@pytest.fixture(autouse=True, params=["compiled steps", "array operations"])
def form(request, monkeypatch):
    if request.param == "array operations":
        monkeypatch.setattr("puffer_train.rollout.usual_steps", lambda *_: None)
    elif steps() is None:
        pytest.skip("needs the compiled steps")


class Clock(PufferEnv):
    """World w shows [w, step of the episode, step of the world]; step t of a world pays t and leads to t + 1.

    Episodes of world w have lengths[w] steps and end by termination, or by truncation where `cut` has w.
    """

    rebinds_buffers = True
    has_final_observations = True

    def __init__(self, num_envs=2, lengths=(1000, 1000), cut=(), tell_final=True, buf=None):
        self.single_observation_space = Box(-1e6, 1e6, (3,), np.float32)
        self.single_action_space = Discrete(4)
        self.num_envs = self.num_agents = num_envs
        self.lengths = np.array(lengths)
        self.cut = list(cut)
        self.has_final_observations = tell_final
        super().__init__(buf)

    def reset(self, seed=None, first_world=0, options=None):
        self.worlds = first_world + np.arange(self.num_envs)
        self.age = np.zeros(self.num_envs, np.int64)
        self.total = np.zeros(self.num_envs, np.int64)
        self.history = []
        self._show(self.observations)
        return self.observations, []

    def step(self, actions):
        self.history.append(np.array(actions).reshape(-1).copy())
        self.rewards[:] = self.total
        self.age += 1
        self.total += 1
        ended = self.age == self.lengths[self.worlds]
        cut = np.isin(self.worlds, self.cut)
        self.terminals[:] = ended & ~cut
        self.truncations[:] = ended & cut
        self._show(self.final_observations)
        self.age[ended] = 0
        self._show(self.observations)
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def _show(self, rows):
        rows[:, 0], rows[:, 1], rows[:, 2] = self.worlds, self.age, self.total


class Reader(nn.Module):
    """Uniform actions; the value is the step of the world (column 2)."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, observations):
        return torch.zeros(len(observations), 4) * self.weight, observations[:, 2:] * self.weight


class Counter(nn.Module):
    """A memory that counts its steps; the value is the count after this step, plus 1000 times the world."""

    is_recurrent = True

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.action_head = adapt_policy(Reader(), Box(-1, 1, (3,), np.float32), Discrete(4)).action_head

    def initial_state(self, num_rows, device=None):
        return (torch.zeros(num_rows, 1),)

    def forward_eval(self, observations, state):
        count = state[0] + 1
        return (*self._outputs(observations, count), (count,))

    def forward_sequence(self, observations, state, resets):
        count, values = state[0], []
        for t in range(observations.shape[1]):
            count = torch.where(resets[:, t, None], 0.0, count) + 1
            values.append(self._outputs(observations[:, t], count)[1])
        values = torch.stack(values, 1)
        return torch.zeros(values.numel(), 4) * self.weight, values

    def _outputs(self, observations, count):
        return torch.zeros(len(observations), 4) * self.weight, (count[:, 0] + 1000 * observations[:, 0]) * self.weight


def make_trainer(env=Clock, policy=None, vec=None, vec_options=None, **fields):
    given = {
        "update_epochs": 1.0,
        "horizon": 4,
        "normalize_observations": False,
        "normalize_returns": False,
        "learning_rate": 0.0,
    }
    vec = vec or puffer_vector.make(env, seed=0, **{"num_envs": 2, **(vec_options or {})})
    return PuffeRL(vec, policy or Reader(), **{**given, **fields})


def by_world(experience):
    """Return stored observations ordered by world: (num_worlds, num_slots, 3)."""
    observations = experience.agent_steps("observations")
    return observations[observations[:, 0, 0].argsort()]


VEC_OPTIONS = {
    "serial": {},
    "one object a world": {"env_kwargs": {"num_envs": 1}},
    "threads": {"backend": "threads", "num_workers": 2},
    "asynchronous": {"backend": "threads", "num_workers": 2, "batch_size": 1},
}


@pytest.mark.parametrize("vec_options", VEC_OPTIONS.values(), ids=VEC_OPTIONS)
def test_row_t_holds_observation_t_its_action_and_its_reward(vec_options):
    with make_trainer(vec_options=vec_options) as trainer:
        for rollout in range(3):
            trainer.evaluate()
            experience = trainer.experience
            steps = 4.0 * rollout + torch.arange(4.0)
            for world in (0, 1):
                assert experience.observations[world, :, 0].tolist() == [world] * 4
                assert torch.equal(experience.observations[world, :, 2], steps)
                assert torch.equal(experience.rewards[world], steps)
            assert experience.valid.all()
            trainer.train()


def test_stored_actions_are_those_that_the_environment_got():
    vec = puffer_vector.make(Clock, num_envs=2, seed=0)
    with make_trainer(vec=vec) as trainer:
        trainer.evaluate()
        stored = trainer.experience.actions.T.reshape(4, 2).tolist()

        assert [actions.tolist() for actions in vec.driver_env.history] == stored


@pytest.mark.parametrize("vec_options", VEC_OPTIONS.values(), ids=VEC_OPTIONS)
def test_each_segment_has_one_value_more_than_transitions(vec_options):
    with make_trainer(vec_options=vec_options, batch_size=16) as trainer:
        trainer.evaluate()
        experience = trainer.experience

        # Two segments an agent, one after the other.
        for segment, first in enumerate([0, 4, 0, 4]):
            assert experience.values[segment].tolist() == [first + t for t in range(5)]
            assert experience.next_observations[segment, 2].item() == first + 4


def test_flags_are_kept_apart_and_the_final_value_is_that_of_the_final_observation():
    env = {"env_kwargs": {"lengths": (2, 3), "cut": (1,)}}
    with make_trainer(vec_options=env, horizon=7) as trainer:
        trainer.evaluate()
        experience = trainer.experience

        assert torch.nonzero(experience.terminals[0]).flatten().tolist() == [1, 3, 5]
        assert not experience.truncations[0].any()
        assert torch.nonzero(experience.truncations[1]).flatten().tolist() == [2, 5]
        assert not experience.terminals[1].any()
        # The observation in which step 2 ended is 3 steps old.
        assert experience.final_values[1].tolist() == [0, 0, 3, 0, 0, 6, 0]
        assert (experience.final_values[0] == 0).all()
        assert by_world(experience)[1, :, 1].tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_without_final_observations_a_truncated_step_is_left_out_with_one_warning():
    env = {"env_kwargs": {"lengths": (2, 3), "cut": (0, 1), "tell_final": False}}
    with make_trainer(vec_options=env, horizon=6) as trainer:
        with pytest.warns(RuntimeWarning, match="without final observations") as warned:
            trainer.evaluate()
        trainer.train()
        stats = trainer.evaluate()

        assert len(warned) == 1
        assert trainer.experience.valid.tolist() == [[True, False] * 3, [True, True, False] * 2]
        assert trainer.agent_steps == 24
        # Step t pays t: world 0 keeps 6, 8 and 10, world 1 keeps 6, 7, 9 and 10.
        assert stats["mean_reward"] == pytest.approx((24 + 32) / 7)


def test_b5_memory_is_zeroed_where_an_episode_ends_and_nowhere_else():
    env = {"env_kwargs": {"lengths": (3, 1000)}}
    with make_trainer(policy=Counter(), vec_options=env, horizon=6) as trainer:
        trainer.evaluate()
        values = trainer.experience.values

        assert values[0].tolist() == [1, 2, 3, 1, 2, 3, 1]
        assert (values[1] - 1000).tolist() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("vec_options", VEC_OPTIONS.values(), ids=VEC_OPTIONS)
def test_b5_memory_is_carried_from_rollout_to_rollout_and_stored_as_used(vec_options):
    env = {"env_kwargs": {"lengths": (5, 1000)}} if "env_kwargs" not in vec_options else {}
    with make_trainer(policy=Counter(), vec_options={**env, **vec_options}, batch_size=16) as trainer:
        for rollout in range(3):
            trainer.evaluate()
            experience = trainer.experience
            with torch.no_grad():
                _, replayed = trainer.policy.forward_sequence(
                    torch.cat([experience.observations, experience.next_observations[:, None]], 1),
                    experience.states,
                    experience.resets,
                )

            assert torch.equal(replayed, experience.values)
            assert experience.values[2, 0].item() == 1000 + 8 * rollout + 1
            trainer.train()


def test_the_final_value_uses_memory_from_before_its_reset():
    env = {"env_kwargs": {"lengths": (3, 1000), "cut": (0,)}}
    with make_trainer(policy=Counter(), vec_options=env, horizon=6) as trainer:
        trainer.evaluate()

        # The fourth step of a memory that has counted three.
        assert trainer.experience.final_values[0].tolist() == [0, 0, 4, 0, 0, 4]


def actions_of(vec_options, num_rollouts=3, **fields):
    with make_trainer(
        vec_options={"num_envs": 8, "env_kwargs": {"lengths": (1000,) * 8}, **vec_options}, **fields
    ) as trainer:
        collected = []
        for _ in range(num_rollouts):
            trainer.evaluate()
            collected.append(trainer.experience.agent_steps("actions").clone())
        return torch.cat(collected, 1)


@pytest.mark.parametrize(
    "vec_options",
    [
        {"backend": "threads", "num_workers": 2},
        {"backend": "threads", "num_workers": 4, "batch_size": 4},
        {"backend": "threads", "num_workers": 4, "batch_size": 2},
    ],
)
def test_action_noise_does_not_depend_on_batches(vec_options):
    assert torch.equal(actions_of(vec_options), actions_of({}))


def test_action_noise_depends_on_the_seed():
    assert not torch.equal(actions_of({}, seed=1), actions_of({}, seed=2))


def test_first_come_batches_fill_every_segment_with_consecutive_steps():
    options = {"num_envs": 8, "backend": "threads", "num_workers": 4, "batch_size": 4, "order": "first_come"}
    options["env_kwargs"] = {"lengths": (1000,) * 8}
    with make_trainer(vec_options=options, horizon=5) as trainer:
        for _ in range(4):
            trainer.evaluate()
            steps = trainer.experience.observations[:, :, 2]
            assert (steps[:, 1:] - steps[:, :-1] == 1).all()
            assert torch.equal(trainer.experience.rewards, steps)
            trainer.train()


class Crowd(PufferEnv):
    """Two agents; agent 1 dies at step 2 of each episode of 5, and its rows then hold rubbish."""

    rebinds_buffers = True
    has_final_observations = True
    single_observation_space = Box(-1e6, 1e6, (3,), np.float32)
    single_action_space = Discrete(4)
    num_agents = 2

    def reset(self, seed=None, first_world=0, options=None):
        self.age = 0
        self.observations[:] = 0.0
        self.masks[:] = True
        return self.observations, []

    def step(self, actions):
        self.age += 1
        self.observations[:] = self.age
        self.rewards[:] = 1.0
        self.terminals[1] = self.age == 2
        self.masks[1] = self.age < 2
        if self.age >= 2:
            self.observations[1] = np.nan
            self.rewards[1] = 5.0 if self.age == 2 else np.nan
        if self.age == 5:
            self.terminals[0] = True
            self.terminals[1] = False
            self.reset()
        return self.observations, self.rewards, self.terminals, self.truncations, []


def test_b6_dead_agents_are_not_valid_and_their_rubbish_does_not_arrive():
    with make_trainer(env=Crowd, vec_options={"num_envs": 1}, horizon=7) as trainer:
        stats = trainer.evaluate()
        experience = trainer.experience

        assert experience.valid.tolist() == [[True] * 7, [True, True, False, False, False, True, True]]
        assert experience.rewards[1].tolist() == [1, 5, 0, 0, 0, 1, 5]
        assert experience.terminals[1].tolist() == [False, True, False, False, False, False, True]
        assert (experience.observations[1, 2:5] == 0).all()
        assert torch.isfinite(experience.observations).all()
        assert trainer.agent_steps == stats["agent_steps"] == 11
        assert stats["mean_reward"] == pytest.approx(19 / 11)


class Deserted(Crowd):
    """A crowd whose agent 1 leaves without a flag, from an observation that nobody knows."""

    def step(self, actions):
        result = super().step(actions)
        self.terminals[1] = False
        return result


def test_a_step_after_which_an_agent_left_without_a_flag_is_left_out():
    with make_trainer(env=Deserted, policy=Counter(), vec_options={"num_envs": 1}, horizon=7) as trainer:
        stats = trainer.evaluate()
        experience = trainer.experience

        assert experience.valid[1].tolist() == [True, False, False, False, False, True, False]
        assert experience.rewards[1].tolist() == [1, 0, 0, 0, 0, 1, 0]
        assert stats["mean_reward"] == pytest.approx(1.0)
        assert [experience.values[1, t].item() % 1000 for t in (0, 1, 5, 6)] == [1, 2, 1, 2]


def test_memory_of_a_dead_agent_starts_anew_when_it_returns():
    with make_trainer(env=Crowd, policy=Counter(), vec_options={"num_envs": 1}, horizon=7) as trainer:
        trainer.evaluate()

        counts = trainer.experience.values[1] % 1000
        assert [counts[t].item() for t in (0, 1, 5, 6)] == [1, 2, 1, 2]


class Crashing(Clock):
    def step(self, actions):
        if self.worlds[0] == 1 and self.total[0] == 2:
            raise OSError("lost")
        return super().step(actions)


def test_the_transition_that_led_to_a_replaced_environment_is_left_out():
    options = {"env_kwargs": {"num_envs": 1}, "restart_failed": True}
    with make_trainer(env=Crashing, policy=Counter(), vec_options=options, horizon=6) as trainer:
        trainer.evaluate()
        experience = trainer.experience

        assert experience.valid.tolist() == [[True] * 6, [True, True, False, True, True, False]]
        assert (experience.values[1] - 1000).tolist() == [1, 2, 3, 1, 2, 3, 1]


class Faulty(Clock):
    def step(self, actions):
        result = super().step(actions)
        if self.total[0] == 3:
            getattr(self, self.fault)[1] = np.nan
        return result


@pytest.mark.parametrize(("fault", "name"), [("rewards", "rewards"), ("observations", "observations")])
def test_b18_what_is_not_finite_is_named_with_env_and_step(fault, name):
    class Broken(Faulty):
        pass

    Broken.fault = fault
    with (
        make_trainer(env=Broken, horizon=8) as trainer,
        pytest.raises(NonFiniteError, match=f"{name} must be finite.*env 1.*step 3"),
    ):
        trainer.evaluate()


def test_b18_a_policy_that_diverged_is_told_from_a_bad_observation():
    policy = Reader()
    with make_trainer(policy=policy) as trainer:
        with torch.no_grad():
            policy.weight.fill_(float("nan"))

        with pytest.raises(NonFiniteError, match="policy's outputs must be finite"):
            trainer.evaluate()
