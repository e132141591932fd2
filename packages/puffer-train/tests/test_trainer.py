"""The trainer as a whole: ratios, determinism, schedules, resume, masks, and learning where the answer is known."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

import puffer_vector
from puffer_policies import LSTMWrapper, default_policy
from puffer_spaces import PufferEnv, world_seed
from puffer_train.checkpoint import read_checkpoint
from puffer_train.config import ConfigError
from puffer_train.errors import NonFiniteError
from puffer_train.trainer import PuffeRL


@pytest.fixture(autouse=True)
def one_thread():
    """Many small operations: threads would only wait for each other."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


class Cells(PufferEnv):
    """Worlds of random length that show a number; action 1 pays it. Even worlds terminate, the others are cut."""

    rebinds_buffers = True
    has_final_observations = True
    has_state = True

    def __init__(self, num_envs=4, buf=None):
        self.single_observation_space = Box(-10, 10, (4,), np.float32)
        self.single_action_space = Discrete(3)
        self.num_envs = self.num_agents = num_envs
        super().__init__(buf)

    def reset(self, seed=None, first_world=0, options=None):
        if seed is not None:
            seeds = [world_seed(seed, first_world + world) for world in range(self.num_envs)]
            self.streams = np.array(seeds, np.uint64)
        self.first_world = first_world
        self.left = np.zeros(self.num_envs, np.int64)
        self._begin(np.ones(self.num_envs, bool))
        return self.observations, []

    def step(self, actions):
        self.rewards[:] = (np.asarray(actions).reshape(-1) == 1) * self.observations[:, 0]
        self.left -= 1
        ended = self.left == 0
        even = (self.first_world + np.arange(self.num_envs)) % 2 == 0
        self.terminals[:] = ended & even
        self.truncations[:] = ended & ~even
        self.observations[:, 1] = self.left
        self.final_observations[:] = self.observations
        self._begin(ended)
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def _draw(self):
        self.streams = self.streams * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        return (self.streams >> np.uint64(33)).astype(np.int64)

    def _begin(self, which):
        lengths, numbers = self._draw() % 9 + 1, self._draw() % 1000 / 500.0 - 1.0
        self.left[which] = lengths[which]
        self.observations[which, 0] = numbers[which]
        self.observations[which, 1] = self.left[which]
        self.observations[:, 2] = self.left % 2
        self.observations[:, 3] = 5.0

    def get_state(self):
        return b"".join(x.tobytes() for x in (self.streams, self.left, self.observations, np.int64([self.first_world])))

    def set_state(self, state):
        size = 8 * self.num_envs
        self.streams = np.frombuffer(state[:size], np.uint64).copy()
        self.left = np.frombuffer(state[size : 2 * size], np.int64).copy()
        self.observations[:] = np.frombuffer(state[2 * size : -8], np.float32).reshape(self.observations.shape)
        self.first_world = int(np.frombuffer(state[-8:], np.int64)[0])


def small_policy(vec, memory=False, seed=0, dropout=0.0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return default_policy(vec, hidden_size=16, **({"recurrent": "lstm"} if memory else {}))


def make_trainer(memory=False, env=Cells, vec_options=None, policy=None, **fields):
    vec = puffer_vector.make(env, seed=1, **{"num_envs": 8, **(vec_options or {})})
    given = {"update_epochs": 1.0, "horizon": 8, "learning_rate": 3e-3, "total_timesteps": 10_000, "seed": 5}
    return PuffeRL(vec, policy(vec) if policy else small_policy(vec, memory), **{**given, **fields})


def updates(trainer, count):
    for _ in range(count):
        trainer.evaluate()
        losses = trainer.train()
    return losses


def weights_of(trainer):
    return torch.cat([parameter.detach().flatten() for parameter in trainer.policy.parameters()]).clone()


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("segments", [1, 3])
def test_b5_the_first_minibatch_has_ratio_one_also_with_memory_and_resets_inside_segments(memory, segments):
    with make_trainer(memory, batch_size=64 * segments, minibatch_size=64 * segments) as trainer:
        for _ in range(3):
            trainer.evaluate()
            losses = trainer.train()

            assert losses["importance"] == pytest.approx(1.0, abs=1e-6)
            assert abs(losses["old_approx_kl"]) < 1e-6
            assert losses["clipfrac"] == 0.0
        assert trainer.normalizer.count > 0


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("update_epochs", [1.0, 2.5])
def test_same_seed_same_weights_bit_for_bit_and_another_seed_others(memory, update_epochs):
    def run(seed):
        with make_trainer(memory, seed=seed, update_epochs=update_epochs) as trainer:
            updates(trainer, 3)
            return weights_of(trainer)

    first = run(5)
    torch.manual_seed(123)  # nobody else's random state matters
    np.random.seed(123)

    assert torch.equal(run(5), first)
    assert not torch.equal(run(6), first)


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    vec = puffer_vector.make(Cells, num_envs=4, seed=1)
    with PuffeRL(vec, horizon=4) as trainer:
        updates(trainer, 2)

    assert torch.equal(torch.rand(3), expected)


def test_initial_weights_depend_on_the_seed_only():
    def run(seed):
        with PuffeRL(puffer_vector.make(Cells, num_envs=4, seed=1), seed=seed, horizon=4) as trainer:
            return weights_of(trainer)

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def with_dropout(vec):
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.3), nn.Tanh())

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.actor, self.critic = body, nn.Linear(16, 3), nn.Linear(16, 1)

        def forward(self, observations):
            hidden = self.body(observations)
            return self.actor(hidden), self.critic(hidden)

    return Policy()


def equal(one, other):
    """Whether two nested states are equal, tensors bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


RUNS = {
    "mlp": {},
    "memory": {"memory": True},
    "muon": {"optimizer": "muon", "update_epochs": 1.5},
    "puffer3": {"preset": "puffer3", "horizon": 8},
    "dropout": {"policy": with_dropout},
    "asynchronous": {"memory": True, "vec_options": {"batch_size": 4, "backend": "threads", "num_workers": 2}},
}


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_b16_r086_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(options, tmp_path):
    with make_trainer(**options) as trainer:
        updates(trainer, 3)
        path = trainer.save_checkpoint(tmp_path / "half.pt")
        updates(trainer, 3)
        expected = trainer.state_dict()
        row = trainer.mean_and_log()

    with make_trainer(**options, **({} if "seed" in options else {"seed": 5})) as trainer:
        trainer.load_checkpoint(path)
        updates(trainer, 3)
        state = trainer.state_dict()
        resumed_row = trainer.mean_and_log()

    for name in expected:
        assert equal(state[name], expected[name]), name
    for name, value in row.items():
        if name not in ("SPS", "uptime") and not name.startswith("performance/"):
            assert resumed_row[name] == value, name


def test_state_holds_tensors_and_plain_values_only(tmp_path):
    with make_trainer(True) as trainer:
        updates(trainer, 1)
        path = trainer.save_checkpoint(tmp_path / "checkpoint.pt", {"score": 3.0})
        state, metadata = read_checkpoint(path)

        assert equal(dict(state["policy"]), dict(trainer.policy.state_dict()))
        assert (metadata["update"], metadata["agent_steps"], metadata["score"]) == (1, 64, 3.0)
        assert metadata["config"]["train"]["horizon"] == 8


def test_r088_counters_go_on_after_a_resume(tmp_path):
    with make_trainer(total_timesteps=640) as trainer:
        updates(trainer, 5)
        path = trainer.save_checkpoint(tmp_path / "half.pt")
    with make_trainer(total_timesteps=640) as trainer:
        trainer.load_checkpoint(path)
        epochs = []
        while not trainer.done:
            updates(trainer, 1)
            epochs.append(trainer.epoch)
            assert trainer.agent_steps > 320

        assert trainer.agent_steps == 640
        assert epochs == [6, 7, 8, 9, 10]


def test_a_run_may_go_on_with_another_number_of_envs(tmp_path):
    with make_trainer() as trainer:
        updates(trainer, 2)
        path = trainer.save_checkpoint(tmp_path / "half.pt")
    with make_trainer(vec_options={"num_envs": 4}) as trainer:
        trainer.load_checkpoint(path)
        updates(trainer, 1)

        assert trainer.epoch == 3


def test_r089_a_compiled_or_distributed_policys_names_load(tmp_path):
    with make_trainer() as trainer:
        updates(trainer, 1)
        state = trainer.state_dict()
        expected = weights_of(trainer)
    for prefix in ("_orig_mod.", "module."):
        renamed = {**state, "policy": {prefix + name: value for name, value in state["policy"].items()}}
        with make_trainer() as trainer:
            trainer.load_state_dict(copy.deepcopy(renamed))

            assert torch.equal(weights_of(trainer), expected)


def test_stop_after_updates_keeps_the_schedules_of_the_whole_run():
    with make_trainer(total_timesteps=640, stop_after_updates=2) as trainer:
        rates = []
        while not trainer.done:
            updates(trainer, 1)
            rates.append(trainer.learning_rate)

        assert rates == pytest.approx([3e-3, 3e-3 * 0.9])
        assert trainer.total_agent_steps == 640


@pytest.mark.parametrize("anneal_lr", [True, False])
@pytest.mark.parametrize("ent_coef_final", [None, 0.0])
def test_r082_schedules_follow_their_curves_and_what_is_logged_is_what_is_applied(anneal_lr, ent_coef_final):
    with make_trainer(
        num_iterations=10, anneal_lr=anneal_lr, min_lr_ratio=0.5, ent_coef=0.1, ent_coef_final=ent_coef_final
    ) as trainer:
        for index in range(10):
            updates(trainer, 1)
            expected = 3e-3 * (1 - 0.5 * index / 10 if anneal_lr else 1.0)
            assert trainer.learning_rate == pytest.approx(expected)
            assert trainer.mean_and_log()["learning_rate"] == trainer.learning_rate
        assert trainer.done


def test_learning_rate_and_other_fields_change_between_updates():
    with make_trainer(num_iterations=10) as trainer:
        updates(trainer, 5)
        trainer.learning_rate = 1e-4
        assert trainer.learning_rate == 1e-4
        updates(trainer, 1)
        assert trainer.learning_rate == pytest.approx(1e-4)
        updates(trainer, 1)
        assert trainer.learning_rate == pytest.approx(0.8e-4)
        trainer.change(clip_coef=0.1, gamma=0.9)
        assert (trainer.config.clip_coef, trainer.config.gamma) == (0.1, 0.9)
        with pytest.raises(ConfigError, match="gamma must be between"):
            trainer.change(gamma=2.0)
        with pytest.raises(ConfigError, match="got horizon"):
            trainer.change(horizon=4)
        state = trainer.state_dict()
    with make_trainer(num_iterations=10) as trainer:
        trainer.load_state_dict(state)
        assert trainer.config.clip_coef == 0.1


def test_num_iterations_ends_the_run_instead_of_total_timesteps():
    with make_trainer(total_timesteps=10**9, num_iterations=2) as trainer:
        assert trainer.total_agent_steps == 128
        while not trainer.done:
            updates(trainer, 1)

        assert trainer.epoch == 2


class Padded(Cells):
    """Cells with as many rows of padding, which hold rubbish."""

    def __init__(self, num_envs=4, buf=None):
        super().__init__(num_envs, None)
        self.inner = Cells(num_envs)
        self.num_agents = 2 * num_envs
        PufferEnv.__init__(self, buf)

    def reset(self, seed=None, first_world=0, options=None):
        self.inner.reset(seed, first_world)
        return self._copy()

    def step(self, actions):
        self.inner.step(np.asarray(actions)[::2])
        self._copy()
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def _copy(self):
        for name in ("observations", "rewards", "terminals", "truncations", "final_observations"):
            rows = getattr(self, name)
            rows[1::2] = {"observations": np.nan, "rewards": 1e30}.get(name, True)
            rows[::2] = getattr(self.inner, name)
        self.masks[::2], self.masks[1::2] = True, False
        return self.observations, []


@pytest.mark.parametrize("normalize_advantages", ["batch", "minibatch"])
def test_r085_padding_changes_nothing(normalize_advantages):
    """The actions of both runs are fixed by a policy without a choice, since noise is keyed by row."""

    def run(env):
        fields = {"normalize_advantages": normalize_advantages, "minibatch_size": None}
        with make_trainer(env=env, policy=greedy, vec_options={"num_envs": 4}, num_iterations=3, **fields) as trainer:
            trainer.change()
            trainer.config = dataclasses.replace(trainer.config, minibatch_size=trainer.config.batch_size)
            losses = updates(trainer, 1)
            return (
                losses,
                weights_of(trainer),
                trainer.agent_steps,
                trainer.normalizer.mean.clone(),
                trainer.return_scale.scale,
            )

    plain, padded = run(Cells), run(Padded)

    assert padded[0] == pytest.approx(plain[0], rel=1e-4, abs=1e-6)
    torch.testing.assert_close(padded[1], plain[1], atol=1e-6, rtol=1e-4)
    assert padded[2] == plain[2] == 32
    torch.testing.assert_close(padded[3], plain[3])
    assert padded[4] == pytest.approx(plain[4])


def greedy(vec):
    policy = with_dropout(vec)
    policy.body[1].p = 0.0
    with torch.no_grad():
        policy.actor.weight.mul_(0.01)
        policy.actor.bias.copy_(torch.tensor([-60.0, 60.0, -60.0]))
    return policy


@pytest.mark.parametrize(
    "fields", [{"minibatch_size": 8, "horizon": 8}, {"minibatch_unit": "transition", "minibatch_size": 1, "horizon": 2}]
)
def test_r071_minibatches_of_one_sample_stay_finite(fields):
    for normalize_advantages in ("batch", "minibatch"):
        with make_trainer(vec_options={"num_envs": 2}, normalize_advantages=normalize_advantages, **fields) as trainer:
            losses = updates(trainer, 2)

            assert all(np.isfinite(value) for value in losses.values())
            assert torch.isfinite(weights_of(trainer)).all()


@pytest.mark.parametrize("memory", [False, True])
def test_b13_microbatches_change_no_result(memory):
    def run(microbatch_size):
        with make_trainer(memory, microbatch_size=microbatch_size, minibatch_size=32, update_epochs=2) as trainer:
            losses = updates(trainer, 2)
            return losses, weights_of(trainer)

    whole, parts = run(None), run(8)

    torch.testing.assert_close(parts[1], whole[1], atol=2e-5, rtol=0)
    assert parts[0] == pytest.approx(whole[0], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(("update_epochs", "expected"), [(1.0, 4), (0.5, 2), (2.75, 11), (0.01, 1)])
def test_update_epochs_is_a_replay_ratio(update_epochs, expected):
    with make_trainer(update_epochs=update_epochs, minibatch_size=16) as trainer:
        assert updates(trainer, 1)["num_minibatches"] == expected


def test_b11_each_pass_uses_every_segment_once_with_equal_weight():
    from puffer_train.update import Update

    with make_trainer(minibatch_size=16, normalize_advantages="none") as trainer:
        trainer.evaluate()
        update = Update(
            trainer._learner,
            trainer.experience,
            trainer.config,
            rewards=trainer.experience.rewards,
            ent_coef=0.0,
            progress=0.0,
            epoch=0,
        )
        orders = []
        for pass_index in range(3):
            update._begin_pass(pass_index)
            assert sorted(update._order.tolist()) == list(range(8))
            assert (update._ordered_weights == 1 / 16).all()
            orders.append(tuple(update._order.tolist()))

        assert len(set(orders)) == 3


def test_segment_blocks_share_equally_in_each_minibatch():
    from puffer_train.update import Update

    with make_trainer(minibatch_size=32, segment_blocks=2) as trainer:
        trainer.evaluate()
        update = Update(
            trainer._learner,
            trainer.experience,
            trainer.config,
            rewards=trainer.experience.rewards,
            ent_coef=0.0,
            progress=0.0,
            epoch=0,
        )
        update._begin_pass(0)

        for minibatch in update._order.view(2, 4):
            assert [int((minibatch < 4).sum()), int((minibatch >= 4).sum())] == [2, 2]


def test_target_kl_stops_before_the_step_that_goes_too_far():
    with make_trainer(update_epochs=20, learning_rate=0.1, target_kl=1e-3, anneal_lr=False) as trainer:
        stopped = updates(trainer, 1)
    with make_trainer(update_epochs=20, learning_rate=0.1, anneal_lr=False) as trainer:
        free = updates(trainer, 1)

    assert 1 <= stopped["num_minibatches"] < free["num_minibatches"] == 80
    assert stopped["approx_kl"] <= 1e-3


def test_later_passes_use_current_values_and_ratios():
    with make_trainer(update_epochs=2, minibatch_size=64, learning_rate=0.01) as trainer:
        from puffer_train.update import Update

        trainer.evaluate()
        update = Update(
            trainer._learner,
            trainer.experience,
            trainer.config,
            rewards=trainer.experience.rewards,
            ent_coef=0.0,
            progress=0.0,
            epoch=0,
        )
        values, ratios = update._current_values_and_ratios()
        torch.testing.assert_close(values, trainer.experience.values, atol=1e-6, rtol=0)
        torch.testing.assert_close(ratios, torch.ones_like(ratios), atol=1e-6, rtol=0)
        update._begin_pass(0)
        first = update.targets.clone()
        update._step(0)
        update._begin_pass(1)

        assert not torch.equal(update.targets, first)


@pytest.mark.parametrize("memory", [False, True])
def test_b9_bfloat16_ends_with_the_forward_pass(memory):
    with make_trainer(memory, precision="bfloat16") as trainer:
        losses = updates(trainer, 2)

        assert not torch.is_autocast_enabled("cpu")
        assert all(parameter.dtype == torch.float32 for parameter in trainer.policy.parameters())
        assert trainer.experience.values.dtype == torch.float32
        assert trainer._learner.optimizer.parts[0].state_dict()["state"][0]["exp_avg"].dtype == torch.float32
        # bf16 has 8 bits; the ratio is that of two roundings.
        assert losses["importance"] == pytest.approx(1.0, abs=0.02)


class Payer(PufferEnv):
    """One constant observation, a constant reward, cut or ended every 5 steps."""

    rebinds_buffers = True
    has_final_observations = True
    single_observation_space = Box(-1, 1, (1,), np.float32)
    single_action_space = Discrete(2)
    num_agents = 4
    num_envs = 4

    def __init__(self, num_envs=4, cut=True, reward=1.0, buf=None):
        self.num_agents = self.num_envs = num_envs
        self.cut, self.reward = cut, reward
        super().__init__(buf)

    def reset(self, seed=None, first_world=0, options=None):
        self.age = (first_world + np.arange(self.num_envs)) % 5
        self.observations[:] = 1.0
        return self.observations, []

    def step(self, actions):
        self.age += 1
        ended = self.age == 5
        (self.truncations if self.cut else self.terminals)[:] = ended
        self.age[ended] = 0
        self.final_observations[:] = 1.0
        self.observations[:] = 1.0
        self.rewards[:] = self.reward
        return self.observations, self.rewards, self.terminals, self.truncations, []


class Value(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.zeros(1))

    def forward(self, observations):
        return torch.zeros(len(observations), 2) + 0 * self.value, self.value.expand(len(observations), 1)


@pytest.mark.parametrize(("cut", "low", "high"), [(True, 8.0, 11.0), (False, 2.0, 4.1)])
@pytest.mark.parametrize("normalize_returns", [False, True])
def test_r067_b3_truncations_bootstrap_and_terminations_do_not(cut, low, high, normalize_returns):
    """Discount 0.9: for ever 1 is worth 10; five steps at most are worth 4.1 at most."""
    fields = {"gamma": 0.9, "horizon": 8, "learning_rate": 0.1, "normalize_observations": False, "update_epochs": 4}
    vec = puffer_vector.make(Payer, num_envs=8, seed=0, cut=cut)
    with PuffeRL(vec, Value(), normalize_returns=normalize_returns, anneal_lr=False, **fields) as trainer:
        updates(trainer, 60)

        assert low < trainer.policy.value.item() * (trainer.return_scale.scale if normalize_returns else 1.0) < high


def test_b10_rewards_are_not_clamped_unless_asked():
    def targets(**fields):
        vec = puffer_vector.make(Payer, num_envs=4, seed=0, reward=1000.0)
        with PuffeRL(
            vec, Value(), gamma=0.0, horizon=4, learning_rate=0.0, normalize_returns=False, **fields
        ) as trainer:
            trainer.evaluate()
            assert (trainer.experience.rewards == 1000.0).all()
            return trainer.train()["value_loss"]

    assert targets() == pytest.approx(0.5 * 1000.0**2)
    assert targets(reward_clip=1.0) == pytest.approx(0.5)


def test_b18_a_loss_that_is_not_finite_ends_the_run():
    with make_trainer(learning_rate=1e30, anneal_lr=False, update_epochs=4) as trainer:
        trainer.evaluate()
        with pytest.raises(NonFiniteError, match=r"losses and gradients must be finite.*update 1"):
            trainer.train()


def test_b17_logged_losses_are_those_of_the_interval():
    with make_trainer() as trainer:
        updates(trainer, 1)
        trainer.mean_and_log()
        reports = []
        for _ in range(2):
            trainer.evaluate()
            reports.append(trainer.train())
        row = trainer.mean_and_log()

        for name in reports[0]:
            assert row[f"losses/{name}"] == pytest.approx((reports[0][name] + reports[1][name]) / 2)
        assert row["epoch"] == 3
        assert row["agent_steps"] == 192
        assert row["SPS"] > 0


def test_losses_before_the_first_update_of_an_interval_are_left_out():
    with make_trainer() as trainer:
        assert not any(name.startswith("losses/") for name in trainer.mean_and_log())


def test_a_logger_gets_every_row():
    rows = []

    class Kept:
        def log(self, row):
            rows.append(row)

        def close(self):
            pass

    vec = puffer_vector.make(Cells, num_envs=4, seed=1)
    with PuffeRL(vec, horizon=4, logger=Kept()) as trainer:
        updates(trainer, 1)
        row = trainer.mean_and_log()

    assert rows == [row]


def test_envs_may_be_given_as_creators_and_are_closed_after_a_config_error():
    with PuffeRL(Cells, horizon=4, total_timesteps=100) as trainer:
        updates(trainer, 1)
        vec = trainer.vec
    assert vec.is_closed

    given = puffer_vector.make(Cells, num_envs=4, seed=1)
    with pytest.raises(ConfigError, match="batch_size must be at least minibatch_size"):
        PuffeRL(given, horizon=4, minibatch_size=64)
    assert not given.is_closed
    given.close()


def test_memory_needs_whole_segments():
    vec = puffer_vector.make(Cells, num_envs=4, seed=1)
    with vec, pytest.raises(ConfigError, match="minibatch_unit must be segment"):
        PuffeRL(vec, small_policy(vec, memory=True), preset="cleanrl", horizon=4)


def test_r076_segments_do_not_see_each_other():
    with make_trainer(True) as trainer:
        trainer.evaluate()
        experience, policy = trainer.experience, trainer.policy
        arguments = (experience.states, experience.resets[:, :-1])
        _, before = policy.forward_sequence(experience.observations, *arguments)
        experience.observations[0] = 9.0
        _, after = policy.forward_sequence(experience.observations, *arguments)

        assert torch.equal(before[1:], after[1:])
        assert not torch.equal(before[0], after[0])


def test_pufferlibs_wrapper_trains():
    with make_trainer(policy=lambda vec: LSTMWrapper(vec, default_policy(vec, hidden_size=16), 16, 16)) as trainer:
        assert updates(trainer, 2)["clipfrac"] <= 1.0


def test_b14_the_trainer_leaves_the_weights_of_a_wrapped_policy_as_they_are():
    def wrapped(vec):
        torch.manual_seed(0)
        return LSTMWrapper(vec, default_policy(vec, hidden_size=16), 16, 16)

    with make_trainer(policy=wrapped) as trainer:
        expected = wrapped(trainer.vec).state_dict()
        trainer.evaluate()

        assert equal(dict(trainer.policy.state_dict()), dict(expected))
        # A small gain of the action head: the first policy is close to uniform.
        losses = trainer.train()
        assert losses["entropy"] == pytest.approx(np.log(3), abs=0.05)


@pytest.mark.parametrize("vec_options", [{"backend": "threads", "num_workers": 2}, {"env_kwargs": {"num_envs": 1}}])
def test_b7_a_run_is_the_same_for_any_backend_and_split(vec_options):
    def run(options):
        with make_trainer(True, vec_options=options) as trainer:
            updates(trainer, 2)
            return weights_of(trainer)

    assert torch.equal(run(vec_options), run({}))


def test_compile_traces_the_forward_pass_and_gives_the_same_run(monkeypatch):
    def run(**fields):
        with make_trainer(num_iterations=2, **fields) as trainer:
            updates(trainer, 1)
            return weights_of(trainer)

    plain = run()
    compiled, compile_ = [], torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda function: compiled.append(function) or compile_(function, backend="eager")
    )

    torch.testing.assert_close(run(compile=True), plain, atol=1e-5, rtol=0)
    assert len(compiled) == 1


def test_unknown_devices_are_named():
    vec = puffer_vector.make(Cells, num_envs=4, seed=1)
    with vec:
        with pytest.raises(ConfigError, match="device must be auto"):
            PuffeRL(vec, device="gpu0", horizon=4)
        if not torch.cuda.is_available():
            with pytest.raises(ConfigError, match="one that this machine has; got cuda"):
                PuffeRL(vec, device="cuda", horizon=4)
