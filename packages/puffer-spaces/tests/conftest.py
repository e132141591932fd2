"""Environments and spaces that several files of tests use."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import strategies as st

from puffer_spaces import PufferEnv, as_puffer_env, check_env


class Count(PufferEnv):
    """Three steps an episode, in the plainest form there is; its one observation array and its info are reused."""

    def __init__(self, buf=None):
        super().__init__(buf)
        self.observation_space = self.make_space((2,))
        self.action_space = self.make_discrete(4)
        self.observation = np.zeros(2, np.float32)
        self.info = {}
        self.actions_seen = []
        self.reset()

    def reset(self):
        self.tick = 0
        self.observation[:] = 0
        self.info.clear()
        return self.observation

    def step(self, action):
        self.actions_seen.append(action)
        self.tick += 1
        self.observation[:] = 9 if self.tick == 3 else self.tick
        if self.tick == 3:
            self.info["score"] = 7
        return self.observation, 1.0, self.tick == 3, self.info


@pytest.fixture
def count():
    """A class in the short form whose episodes have three steps."""
    return Count


@pytest.fixture
def make_count():
    """Makes an env of a `count` with other methods, named Made."""

    def make(**methods):
        return as_puffer_env(type("Made", (Count,), methods))

    return make


@pytest.fixture
def run():
    """Steps an env of one agent and returns what was seen."""

    def steps(env, num_steps, action=1):
        """Return copies of (observations, final observations, rewards, terminals, truncations, infos) of each step."""
        seen = []
        for _ in range(num_steps):
            env.actions[...] = action
            observations, rewards, terminals, truncations, infos = env.step(env.actions)
            arrays = (observations, env.final_observations, rewards, terminals, truncations)
            seen.append([array[0].tolist() for array in arrays] + [infos])
        return seen

    return steps


@pytest.fixture
def assert_diagnosed():
    """Asserts that `check_env` finds a fault of an env and says how to mend it."""

    def diagnosed(env, check, severity, words):
        findings = check_env(env, raise_errors=False, num_steps=80)

        found = [finding for finding in findings if finding.check == check and finding.severity == severity]
        assert found, findings
        assert words in f"{found[0].message} {found[0].fix}", found[0]

    return diagnosed


DTYPES = [np.bool_, np.uint8, np.int8, np.int16, np.uint16, np.int32, np.int64, np.float16, np.float32, np.float64]
KEYS = st.sampled_from(["a", "b", "c/d", "pos", "0"])


@st.composite
def boxes(draw):
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    if dtype.kind == "f":
        low, high = draw(st.sampled_from([(-1.0, 1.0), (-np.inf, np.inf), (0.0, np.inf)]))
    elif dtype.kind == "b":
        low, high = 0, 1
    else:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return spaces.Box(low, high, shape, dtype.type)


STARTS = st.integers(-5, 5)
LEAVES = st.one_of(
    boxes(),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), STARTS),
    st.lists(st.tuples(st.integers(1, 9), STARTS), min_size=1, max_size=20).map(
        lambda pairs: spaces.MultiDiscrete([n for n, _ in pairs], start=[start for _, start in pairs])
    ),
    st.lists(st.integers(1, 3), min_size=1, max_size=2).map(lambda shape: spaces.MultiBinary(tuple(shape))),
)
NESTED = st.recursive(
    LEAVES,
    lambda children: st.one_of(
        st.dictionaries(KEYS, children, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(children, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=8,
)
DISCRETE = st.recursive(
    LEAVES.filter(lambda space: not isinstance(space, spaces.Box)),
    lambda children: st.one_of(
        st.dictionaries(KEYS, children, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(children, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="session")
def nested_spaces():
    """A strategy for spaces of all kinds that have a layout, nested ones too."""
    return NESTED


@pytest.fixture(scope="session")
def discrete_spaces():
    """A strategy for spaces of choices alone, nested ones too."""
    return DISCRETE


def same(one, two):
    if isinstance(one, np.ndarray) and isinstance(two, np.generic):  # Gymnasium samples some 0-d Boxes as scalars
        two = np.asarray(two)
    assert type(one) is type(two)
    if isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            same(one[key], two[key])
    elif isinstance(one, tuple):
        assert len(one) == len(two)
        for left, right in zip(one, two, strict=True):
            same(left, right)
    else:
        one, two = np.asarray(one), np.asarray(two)
        assert (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())


@pytest.fixture(scope="session")
def assert_same():
    """Asserts that two values are equal bit for bit, and of the same types."""
    return same
