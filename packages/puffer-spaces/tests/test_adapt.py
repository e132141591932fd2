import functools
import pickle
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

import puffer_spaces.adapt
from puffer_spaces import (
    Buffers,
    EnvSpec,
    MissingAdapter,
    PufferEnv,
    SingleAgentEnv,
    as_puffer_env,
    reset_env,
    world_seed,
)
from puffer_spaces.copied import CopiedEnv

OBSERVATION = spaces.Box(0, 10, (2,), np.float32)
ACTION = spaces.Discrete(2)


class Captured(PufferEnv):
    """As 3.0's native envs do: takes its arrays in __init__, writes to these ever after, clears nothing."""

    episode_extras = ("wins",)

    def __init__(self, num_envs=3, buf=None, seed=0):
        self.single_observation_space = OBSERVATION
        self.single_action_space = ACTION
        self.num_agents = num_envs
        self.size = 8
        self.seed_given = seed
        super().__init__(buf)
        self.native = (self.observations, self.rewards, self.terminals, self.actions)

    def reset(self, seed=0):
        self.native[0][:] = 0
        self.seed_seen = seed
        return self.observations, []

    def step(self, actions):
        observations, rewards, terminals, native_actions = self.native
        self.actions[:] = actions
        observations += 1
        rewards[:] = native_actions
        terminals[1] = True
        return self.observations, self.rewards, self.terminals, self.truncations, [{"n": 1}]


def make_buffers(num_agents=3):
    return Buffers.allocate(OBSERVATION, ACTION, num_agents)


def test_an_env_is_returned_as_it_is():
    env = Captured()

    assert as_puffer_env(env) is env
    assert as_puffer_env(Captured).num_agents == 3


def test_a_creator_gets_only_what_its_signature_names():
    calls = []

    def both(buf, seed):
        calls.append(("both", buf is not None, seed))
        return Captured(buf=buf)

    def neither():
        return Captured()

    def anything(**kwargs):
        calls.append(("anything", kwargs))
        return Captured()

    buffers = make_buffers()
    assert as_puffer_env(both, buf=buffers, seed=3).observations is buffers.observations
    assert as_puffer_env(neither, seed=3).num_agents == 3
    as_puffer_env(anything, buf=buffers, seed=3)
    partial = as_puffer_env(functools.partial(Captured, 2), buf=make_buffers(2), seed=4)

    assert calls == [("both", True, 3), ("anything", {})]
    assert (partial.num_agents, partial.seed_given) == (2, 4)


def test_an_env_built_with_buf_writes_there_itself():
    buffers = make_buffers()
    env = as_puffer_env(Captured, buf=buffers)
    reset_env(env)
    env.step(env.actions)

    assert isinstance(env, Captured)
    assert buffers.observations.tolist() == [[1, 1]] * 3


def test_an_env_that_may_hold_pointers_is_copied_into_the_buffers():
    buffers = make_buffers()
    inner = Captured()
    env = as_puffer_env(inner, buf=buffers)

    assert isinstance(env, CopiedEnv)
    observations, infos = reset_env(env, 7, 2)
    assert observations is buffers.observations
    assert (infos, inner.seed_seen) == ([], world_seed(7, 2))
    buffers.actions[:] = [1, 0, 1]
    result = env.step(buffers.actions)
    assert result[0] is buffers.observations
    assert buffers.observations.tolist() == [[1, 1]] * 3
    assert buffers.rewards.tolist() == [1, 0, 1]
    assert buffers.terminals.tolist() == [False, True, False]
    assert result[4] == [{"n": 1}]
    assert env.step(np.array([0, 1, 0]))[1].tolist() == [0, 1, 0]


def test_a_copied_env_shows_the_face_of_its_env():
    class Rich(Captured):
        metadata = MappingProxyType({"render_modes": ["ansi"]})
        render_mode = "ansi"
        has_state = True
        closed = 0

        def get_state(self):
            return b"state"

        def set_state(self, state):
            self.state = state

        def set_parameters(self, **parameters):
            self.parameters = parameters

        def render(self):
            return "picture"

        def close(self):
            self.closed += 1

    inner = Rich()
    env = as_puffer_env(inner, buf=make_buffers())

    assert (env.size, env.driver_env, env.emulated, env.episode_extras) == (8, inner, False, ("wins",))
    assert (env.metadata, env.render_mode, env.has_state) == ({"render_modes": ["ansi"]}, "ansi", True)
    assert env.episodes().dtype.names[-1] == "wins"
    assert (env.get_state(), env.render()) == (b"state", "picture")
    env.set_state(b"other")
    env.set_parameters(speed=1)
    env.close()
    assert (inner.state, inner.parameters, inner.closed) == (b"other", {"speed": 1}, 1)
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = env.no_such_thing
    env.set_buffers(make_buffers())
    assert reset_env(env)[0].tolist() == [[0, 0]] * 3


def test_an_env_that_rebinds_is_bound_instead_of_copied():
    class Rebinds(Captured):
        rebinds_buffers = True

    buffers = make_buffers()
    env = Rebinds()

    assert as_puffer_env(env, buf=buffers) is env
    assert env.observations is buffers.observations


def test_a_dict_of_buffers_keeps_its_final_observations_across_the_door():
    buffers = make_buffers()
    six = {name: buffers[name] for name in ("observations", "actions", "rewards", "terminals", "truncations", "masks")}

    env = as_puffer_env(Captured, buf=six)

    assert env.observations is buffers.observations
    assert env.buffers.final_observations is env.final_observations


def test_ids_and_specs_are_creators_too():
    env = as_puffer_env(EnvSpec("test-captured", Captured, kwargs={"num_envs": 5}))

    assert env.num_agents == 5


def test_the_short_form_is_wrapped():
    class Short(PufferEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = OBSERVATION
            self.action_space = ACTION

    assert isinstance(as_puffer_env(Short), SingleAgentEnv)
    assert isinstance(as_puffer_env(Short()), SingleAgentEnv)


class Foreign:
    def reset(self):
        return 0

    def step(self, action):
        return 0


def test_other_envs_need_an_adapter(monkeypatch):
    monkeypatch.setattr(puffer_spaces.adapt, "adapters", tuple)

    for env in (Foreign(), Foreign):
        with pytest.raises(MissingAdapter, match=r"got .*Foreign\. .*pip install \./packages/puffer-emulate"):
            as_puffer_env(env)


def test_the_first_adapter_that_matches_is_used(monkeypatch):
    adapted = []

    def adapter(name, matches):
        return SimpleNamespace(
            matches=lambda env: matches,
            adapt=lambda env, buf=None: adapted.append((name, env, buf)) or Captured(buf=buf),
        )

    monkeypatch.setattr(
        puffer_spaces.adapt, "adapters", lambda: (adapter("a", False), adapter("b", True), adapter("c", True))
    )
    env, buffers = Foreign(), make_buffers()

    assert as_puffer_env(env, buf=buffers).observations is buffers.observations
    assert adapted == [("b", env, buffers)]


def test_adapters_are_read_from_the_entry_points_in_the_order_of_their_names(monkeypatch):
    entries = [SimpleNamespace(name=name, load=lambda name=name: f"adapter {name}") for name in ("zoo", "gym")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entries if group == "puffer.adapters" else [])
    puffer_spaces.adapt._loaded_adapters.cache_clear()
    try:
        assert puffer_spaces.adapters() == ("adapter gym", "adapter zoo")
    finally:
        puffer_spaces.adapt._loaded_adapters.cache_clear()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (3, "env must be an environment, a creator or a registered id; got 3"),
        (lambda: None, "a creator must return an environment, which has reset and step; got None"),
        (lambda: Captured, "a creator must return an environment"),
    ],
)
def test_what_is_no_env_is_refused(env, words):
    with pytest.raises(TypeError, match=words):
        as_puffer_env(env)


def test_actions_of_a_copied_env_are_never_wrapped_around():
    env = as_puffer_env(Captured(), buf=make_buffers())
    reset_env(env)

    with pytest.raises(ValueError, match="actions of Captured must fit int32"):
        env.step(np.array([2**40, 0, 0]))


def test_a_copied_env_pickles():
    env = as_puffer_env(Captured(), buf=make_buffers())

    assert pickle.loads(pickle.dumps(env)).metadata == dict(Captured.metadata)
