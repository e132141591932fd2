"""Environments and trainers that several files of tests use."""

import itertools
import pickle
from typing import ClassVar

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import puffer_vector
from puffer_policies import default_policy
from puffer_spaces import EnvSpec, Episodes, Parameter, PufferEnv, register, world_seed
from puffer_train.trainer import PuffeRL
from puffer_train.update import Update

SHORT, LONG = 2, 20


@pytest.fixture(autouse=True)
def one_thread():
    """Many small operations: threads would only wait for each other."""
    torch.set_num_threads(1)


class Walk(PufferEnv):
    """Each step with action 1 pays 1. An episode has 2 or 20 steps, by chance, known only to the environment.

    The observation is [share of the episode walked, width]. Every second world ends by truncation.
    """

    rebinds_buffers = True
    has_final_observations = True
    has_state = True
    episode_extras = ("width",)

    made: ClassVar[list["Walk"]] = []

    def __init__(self, num_envs=1, width=5, gait="steady", buf=None):
        if gait == "broken":
            raise ValueError("gait must not be broken; got broken.")
        self.single_observation_space = Box(-1.0, 100.0, (2,), np.float32)
        self.single_action_space = Discrete(2)
        self.num_envs = self.num_agents = num_envs
        self.width = width
        self.num_steps = 0
        self.records = Episodes(self.episode_extras)
        self.generators = [np.random.default_rng(world) for world in range(num_envs)]
        self.walked, self.paid, self.length = (np.zeros(num_envs, np.int64) for _ in range(3))
        Walk.made.append(self)
        super().__init__(buf)

    def reset(self, seed=None, first_world=0, options=None):
        if seed is not None:
            seeds = [world_seed(seed, first_world + world) for world in range(self.num_envs)]
            self.generators = [np.random.default_rng(world_seed) for world_seed in seeds]
            self.num_steps = 0
        for world in range(self.num_envs):
            self._begin(world)
        return self.observations, []

    def step(self, actions):
        self.num_steps += 1
        paid = np.asarray(actions).reshape(-1) == 1
        self.rewards[:] = paid
        self.paid += paid
        self.walked += 1
        self.observations[:, 0] = self.walked / self.length
        for world in np.flatnonzero(self.walked == self.length):
            self.final_observations[world] = self.observations[world]
            (self.truncations if world % 2 else self.terminals)[world] = True
            values = float(self.paid[world]), int(self.walked[world]), float(self.length[world]), 0.5, float(self.width)
            self.records.append(self.num_steps, world, 0, *values)
            self._begin(world)
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def episodes(self):
        return self.records.drain()

    def get_state(self):
        parts = (self.generators, self.walked, self.paid, self.length, self.num_steps, self.records.drain())
        return pickle.dumps(parts)

    def set_state(self, state):
        self.generators, self.walked, self.paid, self.length, self.num_steps, records = pickle.loads(state)
        self.records.extend(records)

    def _begin(self, world):
        self.length[world] = self.generators[world].choice([SHORT, LONG])
        self.walked[world] = self.paid[world] = 0
        self.observations[world] = (0.0, self.width)


@pytest.fixture
def walk_spec():
    """The spec of `test-walk`, registered."""
    Walk.made.clear()
    return register(
        EnvSpec(
            "test-walk",
            Walk,
            parameters=(
                Parameter("width", int, 5, low=1, high=9, doc="Cells in a row."),
                Parameter("gait", str, "steady", doc="How to walk."),
            ),
            batched=True,
            aliases=("puffer_walk",),
        )
    )


@pytest.fixture
def own_folder(tmp_path, monkeypatch, walk_spec):
    """A working directory for the files of one test, and `test-walk` to run there."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def at_step(walk_spec, monkeypatch):
    """Has something happen to a `test-walk` after steps of some numbers, counted in each object."""

    def at(*numbers, happens):
        step = walk_spec.entry_point.step

        def step_and_happen(env, actions):
            result = step(env, actions)
            if env.num_steps in numbers:
                happens(env)
            return result

        monkeypatch.setattr(walk_spec.entry_point, "step", step_and_happen)

    return at


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


@pytest.fixture
def cells():
    """An environment class whose exact state can be taken."""
    return Cells


@pytest.fixture
def padded():
    """`cells` with rows that hold no agent."""
    return Padded


class Probed(PuffeRL):
    """A trainer with what tests ask of it."""

    def updates(self, count):
        """Run rollouts and updates, and return what the last one reported."""
        for _ in range(count):
            self.evaluate()
            losses = self.train()
        return losses

    def weights(self):
        """Return a copy of all weights in one vector."""
        return torch.cat([parameter.detach().flatten() for parameter in self.policy.parameters()]).clone()


def small_policy(vec, memory):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return default_policy(vec, hidden_size=16, **({"recurrent": "lstm"} if memory else {}))


@pytest.fixture
def make_trainer():
    """Makes a trainer of small settings, by default of eight `cells` and a policy of 16 units."""

    def make(memory=False, env=Cells, vec_options=None, policy=None, **fields):
        vec = puffer_vector.make(env, seed=1, **{"num_envs": 8, **(vec_options or {})})
        given = {"update_epochs": 1.0, "horizon": 8, "learning_rate": 3e-3, "total_timesteps": 10_000, "seed": 5}
        try:
            return Probed(vec, policy(vec) if policy else small_policy(vec, memory), **{**given, **fields})
        except BaseException:
            vec.close()
            raise

    return make


@pytest.fixture(scope="session")
def plain():
    """Settings under which an update is its bare mathematics and moves no weight. The discount is 0.9."""
    settings = {"normalize_observations": False, "normalize_returns": False, "normalize_advantages": "none"}
    return {**settings, "gamma": 0.9, "learning_rate": 0.0, "ent_coef": 0.0}


@pytest.fixture
def make_update():
    """Makes the update that `PuffeRL.train` would run, for a look inside."""

    def make(trainer, update_class=Update, **settings):
        given = {"rewards": trainer.experience.rewards, "ent_coef": 0.0, "progress": 0.0, "epoch": 0}
        return update_class(trainer._learner, trainer.experience, trainer.config, **{**given, **settings})

    return make


@pytest.fixture
def equal():
    """Whether two nested states are equal, tensors bit for bit."""

    def are_equal(one, other):
        if isinstance(one, torch.Tensor):
            return torch.equal(one, other)
        if isinstance(one, dict):
            return one.keys() == other.keys() and all(are_equal(one[key], other[key]) for key in one)
        if isinstance(one, list | tuple):
            return len(one) == len(other) and all(map(are_equal, one, other))
        return one == other

    return are_equal


@pytest.fixture(scope="session")
def advantages_by_sums():
    """The definition of advantages and targets."""

    def by_sums(rewards, values, final_values, terminals, truncations, valid, ratios, gamma, lam, rho_clip, c_clip):
        """The definition as explicit sums over k: no recursion, float64."""
        num_segments, horizon = rewards.shape
        advantages, targets = np.zeros((num_segments, horizon)), np.zeros((num_segments, horizon))
        for s, t in itertools.product(range(num_segments), range(horizon)):
            advantage = target = 0.0
            weight_a = weight_d = 1.0
            for k in range(t, horizon):
                if not valid[s, k]:
                    break
                following = final_values[s, k] if truncations[s, k] else values[s, k + 1]
                delta = rewards[s, k] + (0.0 if terminals[s, k] else gamma * following) - values[s, k]
                rho, c = min(ratios[s, k], rho_clip), min(ratios[s, k], c_clip)
                advantage += weight_a * (1.0 if k == t else rho) * delta
                target += weight_d * rho * delta
                weight_a *= gamma * lam * (1.0 if k == t else c)
                weight_d *= gamma * lam * c
                if terminals[s, k] or truncations[s, k]:
                    break
            advantages[s, t], targets[s, t] = advantage, values[s, t] + target
        return advantages, targets

    return by_sums
