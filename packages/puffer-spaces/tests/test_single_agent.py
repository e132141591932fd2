import copy
import pickle
import random

import numpy as np
import pytest
from gymnasium import spaces

from puffer_spaces import Buffers, PufferEnv, SingleAgentEnv, as_puffer_env, reset_env, world_seed


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


def run(env, num_steps, action=1):
    """Return copies of (observations, final observations, rewards, terminals, truncations, infos) of each step."""
    seen = []
    for _ in range(num_steps):
        env.actions[...] = action
        observations, rewards, terminals, truncations, infos = env.step(env.actions)
        arrays = (observations, env.final_observations, rewards, terminals, truncations)
        seen.append([array[0].tolist() for array in arrays] + [infos])
    return seen


def test_the_plain_form_keeps_the_full_contract():
    env = as_puffer_env(Count)

    assert isinstance(env, SingleAgentEnv)
    assert (env.num_agents, env.num_envs, env.has_final_observations, env.rebinds_buffers) == (1, 1, True, True)
    assert env.single_observation_space == spaces.Box(-np.inf, np.inf, (2,))
    assert env.single_action_space == spaces.Discrete(4)
    observations, infos = reset_env(env, 1)
    assert (observations.tolist(), infos) == ([[0, 0]], [])
    assert run(env, 4) == [
        [[1, 1], [0, 0], 1.0, False, False, []],
        [[2, 2], [0, 0], 1.0, False, False, []],
        [[0, 0], [9, 9], 1.0, True, False, [{"score": 7}]],
        [[1, 1], [9, 9], 1.0, False, False, []],
    ]
    assert env.masks.tolist() == [True]


def test_every_episode_has_its_own_length_return_and_score():
    env = as_puffer_env(Count())
    reset_env(env, 1)

    run(env, 15)

    records = env.episodes()
    assert records["step"].tolist() == [3, 6, 9, 12, 15]
    assert records["episode_length"].tolist() == [3] * 5
    assert records["episode_return"].tolist() == [3.0] * 5
    assert records["score"].tolist() == [7.0] * 5
    assert np.isnan(records["perf"]).all()
    assert len(env.episodes()) == 0


def test_actions_arrive_in_the_form_of_the_space():
    class Recorder(Count):
        def __init__(self, space):
            super().__init__()
            self.action_space = space

    cases = [
        (spaces.Discrete(5, start=-2), 4, np.int64(2)),
        (spaces.MultiDiscrete([3, 4], start=[1, 0]), [2, 3], np.array([3, 3])),
        (spaces.Box(-1, 1, (2,)), [0.5, -0.5], np.array([0.5, -0.5], np.float32)),
    ]
    for space, action, expected in cases:
        inner = Recorder(space)
        env = as_puffer_env(inner)
        env.reset()
        env.step(np.array([action], env.actions.dtype))
        seen = inner.actions_seen[-1]
        assert type(seen) is type(expected)
        assert (seen == expected).all()
        assert space.contains(seen)


def test_nested_spaces_pass_through_rows():
    class Nested(PufferEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Dict(
                test=spaces.Box(-1, 1, (8, 10), np.float32), idx=spaces.Discrete(5), pair=spaces.MultiDiscrete([4, 11])
            )
            self.action_space = spaces.Dict(move=spaces.Discrete(3, start=1), aim=spaces.Box(-1, 1, (2,)))
            self.seen = []

        def reset(self, seed=None):
            return {"test": np.full((8, 10), 0.25), "idx": 4, "pair": [1, 3]}, {}

        def step(self, action):
            self.seen.append(action)
            return self.reset()[0], 0.0, False, False, {}

    inner = Nested()
    env = as_puffer_env(inner)
    reset_env(env, 0)
    row = env.action_layout.flatten({"move": 2, "aim": [0.5, 1.0]})
    env.step(row[None])

    value = env.observation_layout.unflatten(env.observations[0])
    assert (value["test"] == 0.25).all()
    assert (value["idx"], value["pair"].tolist()) == (4, [1, 3])
    assert (inner.seen[0]["move"], inner.seen[0]["aim"].tolist()) == (2, [0.5, 1.0])
    assert env.original_observation_space is inner.observation_space


@pytest.mark.parametrize(
    ("ending", "terminal", "truncation"),
    [
        ((True, {}), True, False),
        ((True, {"TimeLimit.truncated": True}), False, True),
        ((True, {"TimeLimit.truncated": False}), True, False),
        ((1, {"TimeLimit.truncated": np.True_}), False, True),
        ((False, {"TimeLimit.truncated": True}), False, False),
        ((True, False, {}), True, False),
        ((False, True, {}), False, True),
        ((True, True, {}), True, True),
        ((np.True_, np.array([0]), None), True, False),
        ((False, False, {"TimeLimit.truncated": True}), False, True),
    ],
)
def test_ends_and_limits_are_told_apart(ending, terminal, truncation):
    class Ends(Count):
        def step(self, action):
            return self.observation, 0.5, *ending

    env = as_puffer_env(Ends)
    env.reset()

    ((_, _, reward, *flags, _),) = run(env, 1)

    assert (reward, flags) == (0.5, [terminal, truncation])
    assert len(env.episodes()) == (terminal or truncation)


@pytest.mark.parametrize("reward", [2.0, np.float32(2), np.array(2.0), np.array([2.0]), 2])
@pytest.mark.parametrize("done", [True, np.True_, 1])
def test_rewards_and_flags_of_one_number_are_accepted_across_an_end(reward, done):
    class Scalars(Count):
        def step(self, action):
            return self.observation, reward, done, {}

    env = as_puffer_env(Scalars)
    env.reset()
    run(env, 2)

    assert (env.rewards.dtype, env.terminals.dtype) == (np.float32, bool)
    assert (env.rewards.tolist(), env.terminals.tolist()) == ([2.0], [True])
    assert env.episodes()["episode_return"].tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (
            (np.zeros(2), np.zeros(2), False, {}),
            ValueError,
            r"reward of Wrong must be one number; got an array of shape \(2,\)",
        ),
        ((np.zeros(2), 0.0, np.zeros(2, bool), {}), ValueError, r"done must be one number"),
        ((np.zeros(3), 0.0, False, {}), ValueError, r"must have shape \(2,\); got shape \(3,\)"),
        ((np.zeros(2), 0.0), TypeError, r"step of Wrong must return .*got tuple of length 2"),
        (None, TypeError, r"step of Wrong must return"),
    ],
)
def test_what_a_step_may_not_return_is_named(result, error, words):
    class Wrong(Count):
        def step(self, action):
            return result

    env = as_puffer_env(Wrong)
    env.reset()

    with pytest.raises(error, match=words):
        env.step(env.actions)


def test_info_of_a_reset_is_kept():
    class Informs(Count):
        episodes_begun = 0

        def reset(self, seed=None, options=None):
            self.episodes_begun += 1
            return super().reset(), {"level": options["level"] if options else 0, "episode": self.episodes_begun}

    env = as_puffer_env(Informs)

    assert reset_env(env, 1, options={"level": 3})[1] == [{"level": 3, "episode": 2}]
    infos = run(env, 3)[-1][-1]
    assert infos == [{"score": 7}, {"reset_info": {"level": 0, "episode": 3}}]
    with pytest.raises(TypeError, match="reset of Count must take options"):
        reset_env(as_puffer_env(Count), 1, options={"level": 3})


def test_arrays_in_infos_are_copies():
    class Reuses(Count):
        def __init__(self):
            self.grid = np.zeros(2)
            super().__init__()

        def step(self, action):
            self.grid += 1
            return self.observation, 0.0, False, {"grid": self.grid}

    env = as_puffer_env(Reuses)
    env.reset()
    infos = [step[-1][0] for step in run(env, 3)]

    assert [info["grid"].tolist() for info in infos] == [[1, 1], [2, 2], [3, 3]]


def test_a_tuple_observation_that_ends_in_a_dict_is_no_info():
    class Tuples(Count):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Tuple([spaces.Discrete(3), spaces.Dict(x=spaces.Discrete(2))])

        def reset(self):
            return 2, {"x": 1}

    class WithInfo(Tuples):
        def reset(self):
            return (2, {"x": 1}), {"level": 1}

    assert as_puffer_env(Tuples).reset()[0].tolist() == [[2, 1]]
    assert as_puffer_env(WithInfo).reset()[1] == [{"level": 1}]


class Draws(Count):
    def reset(self, seed=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
            self.seed_seen = seed
        super().reset()
        return self.rng.normal(size=2).astype(np.float32) if hasattr(self, "rng") else self.observation


def test_the_seed_of_a_world_reaches_the_env_once():
    env = as_puffer_env(Draws)

    first = reset_env(env, 5, first_world=3)[0].tolist()
    assert env.env.seed_seen == world_seed(5, 3)
    run(env, 3)
    later = env.observations.tolist()
    assert later != first
    assert reset_env(env, 5, first_world=3)[0].tolist() == first
    run(env, 3)
    assert env.observations.tolist() == later
    assert reset_env(env, None)[0].tolist() not in (first, later)


def test_an_env_without_a_seed_argument_is_seeded_through_its_generator():
    class Draws(Count):
        def reset(self):
            super().reset()
            self.observation[0] = self.np_random.normal()
            return self.observation

    one, two = as_puffer_env(Draws), as_puffer_env(Draws)
    assert one.reset()[0].tolist() != two.reset()[0].tolist()
    starts = [reset_env(env, 4, world)[0].tolist() for env in (one, two) for world in (0, 1)]

    assert starts[:2] == starts[2:]
    assert starts[0] != starts[1]


def test_an_old_env_is_seeded_through_its_seed_method():
    class Old(Count):
        seeds = ()

        def seed(self, seed=None):
            self.seeds = (*self.seeds, seed)

    env = as_puffer_env(Old)
    reset_env(env, 4, 2)
    reset_env(env, None)

    assert env.env.seeds == (world_seed(4, 2),)


def test_a_generator_of_another_kind_is_left_alone():
    class OwnGenerator(Count):
        def __init__(self):
            self.np_random = np.random.RandomState(0)
            super().__init__()

    env = as_puffer_env(OwnGenerator)
    reset_env(env, 4)

    assert isinstance(env.env.np_random, np.random.RandomState)


def test_global_random_state_is_not_touched():
    before = np.random.get_state()[1].tolist(), random.getstate()

    for env in (as_puffer_env(Count), as_puffer_env(Draws)):
        reset_env(env, 4)
        run(env, 10)

    assert (np.random.get_state()[1].tolist(), random.getstate()) == before


def test_the_seed_of_construction_serves_the_first_reset():
    one = SingleAgentEnv(Draws(), seed=9)
    two = as_puffer_env(Draws, seed=9)

    assert one.reset()[0].tolist() == two.reset()[0].tolist()
    assert one.env.seed_seen == world_seed(9, 0)
    assert one.reset()[0].tolist() == two.reset()[0].tolist() != two.reset()[0].tolist()


def test_a_seeded_reset_restarts_the_count_of_steps():
    env = as_puffer_env(Count)
    reset_env(env, 1)
    run(env, 4)
    reset_env(env, 1)
    run(env, 3)

    assert env.episodes()["step"].tolist() == [3]
    reset_env(env, None)
    run(env, 3)
    assert env.episodes()["step"].tolist() == [6]


def test_a_step_before_the_first_reset_is_refused():
    env = as_puffer_env(Count)

    with pytest.raises(RuntimeError, match="Count must be reset before its first step"):
        env.step(env.actions)


def test_float_actions_for_choices_are_refused():
    env = as_puffer_env(Count)
    env.reset()

    with pytest.raises(TypeError, match="float64"):
        env.step(np.array([0.7]))
    assert env.step([2])[0].tolist() == [[1, 1]]
    with pytest.raises(ValueError, match=r"must be in \[0, 3\]; got 4"):
        env.step(np.array([4]))


def test_rows_may_be_bound_before_or_later():
    buffers = Buffers.allocate(spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(4), 3)
    env = as_puffer_env(Count, buf=buffers[1:2])
    reset_env(env, 0)
    run(env, 3)
    assert buffers.final_observations.tolist() == [[0, 0], [9, 9], [0, 0]]

    env.set_buffers(buffers[2:3])
    run(env, 3)
    assert buffers.final_observations.tolist() == [[0, 0], [9, 9], [9, 9]]


def test_extras_score_and_perf_come_from_the_last_info():
    class Extras(Count):
        episode_extras = ("wins", "losses")

        def step(self, action):
            observation, reward, done, _ = super().step(action)
            return observation, reward, done, {"wins": self.tick, "perf": np.float32(0.5)}

    env = as_puffer_env(Extras)
    reset_env(env, 0)
    run(env, 3)

    (record,) = env.episodes()
    assert (record["wins"], record["perf"], record["score"]) == (3, 0.5, 3.0)
    assert np.isnan(record["losses"])
    assert env.episode_extras == ("wins", "losses")


def test_snapshots_parameters_rendering_and_closing_are_passed_on():
    class Rich(Count):
        has_state = True
        render_mode = "ansi"
        closed = 0

        def get_state(self):
            return bytes([self.tick])

        def set_state(self, state):
            self.tick = state[0]

        def set_parameters(self, **parameters):
            self.parameters = parameters

        def render(self):
            return "picture"

        def close(self):
            self.closed += 1

    env = as_puffer_env(Rich)
    reset_env(env, 0)
    run(env, 4)
    env.episodes()
    state = env.get_state()
    expected = run(env, 5), env.episodes().tolist()
    env.set_state(state)
    env.set_parameters(speed=2)

    assert repr((run(env, 5), env.episodes().tolist())) == repr(expected)
    assert env.env.parameters == {"speed": 2}
    assert (env.has_state, env.render_mode, env.render()) == (True, "ansi", "picture")
    env.close()
    env.close()
    assert env.closed == env.driver_env.closed == 1
    with pytest.raises(NotImplementedError, match="Count must define set_parameters"):
        as_puffer_env(Count).set_parameters(speed=2)


def test_an_incomplete_short_form_is_explained():
    class NoAction(PufferEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = self.make_space(3)

    class Several(Count):
        num_agents = 3

    class Late(Count):
        def __init__(self):
            PufferEnv.__init__(self)
            self.single_observation_space = self.make_space(3)
            self.single_action_space = self.make_discrete(2)

    with pytest.raises(TypeError, match=r"NoAction must assign action_space after super\(\).__init__\(buf\)"):
        as_puffer_env(NoAction)
    with pytest.raises(TypeError, match="Several must have one agent in the short form; got num_agents=3"):
        as_puffer_env(Several)
    assert as_puffer_env(Late).single_action_space == spaces.Discrete(2)


def test_spaces_may_be_class_attributes():
    class Static(Count):
        observation_space = spaces.Box(0, 9, (2,))
        action_space = spaces.Discrete(2)

        def __init__(self):
            PufferEnv.__init__(self)
            self.observation = np.zeros(2, np.float32)
            self.info = {}

    assert as_puffer_env(Static).single_observation_space == spaces.Box(0, 9, (2,))


def make(cls=Count, **methods):
    return as_puffer_env(type("Made", (cls,), methods))


@pytest.mark.parametrize(
    ("observation", "error", "words"),
    [
        (None, TypeError, "observation of Made: the value must hold numbers; got NoneType"),
        (np.zeros(3), ValueError, r"observation of Made: the value must have shape \(2,\); got shape \(3,\)"),
        ((np.zeros(2), None), ValueError, "observation of Made: the value must be an array of shape"),
    ],
)
def test_what_an_env_may_not_observe_is_named(observation, error, words):
    broken = []
    env = make(reset=lambda self: observation if broken else np.zeros(2))
    broken.append(True)

    with pytest.raises(error, match=words):
        env.reset()


@pytest.mark.parametrize("info", [[], [1], 3, "score", True])
def test_infos_that_are_no_dicts_are_refused(info):
    env = make(step=lambda self, action: (np.zeros(2), 1.0, False, info))
    env.reset()

    with pytest.raises(TypeError, match="info of Made must be a dict; got"):
        env.step([0])


def test_values_in_the_wrong_order_are_refused():
    env = make(step=lambda self, action: (np.zeros(2), 1.0, {}, False, True))
    env.reset()

    with pytest.raises(TypeError, match="info of Made must be a dict; got True"):
        env.step([0])


@pytest.mark.parametrize(
    ("actions", "error", "words"),
    [
        ([4], ValueError, r"action of Count: the value must be in \[0, 3\]; got 4"),
        ([-1], ValueError, r"action of Count: the value must be in \[0, 3\]; got -1"),
        ([2**40], ValueError, "actions of Count must fit int32"),
        ([0, 1], ValueError, r"actions of Count must have shape \(1,\); got \(2,\)"),
        (None, ValueError, r"actions of Count must have shape \(1,\); got \(\)"),
    ],
)
def test_actions_that_the_env_does_not_have_are_refused(actions, error, words):
    env = as_puffer_env(Count)
    env.reset()

    with pytest.raises(error, match=words):
        env.step(actions)
    assert env.env.actions_seen == []


def test_a_closed_env_is_neither_reset_nor_stepped():
    env = as_puffer_env(Count)
    env.reset()
    env.close()
    env.close()

    for call in (env.reset, lambda: env.step([0])):
        with pytest.raises(RuntimeError, match=r"Count must be open; close\(\) was called. Make a new one"):
            call()


def test_what_an_env_raises_comes_through():
    def fail(self, *arguments):
        raise RuntimeError("boom")

    for name, call in (("step", lambda env: env.step([0])), ("close", lambda env: env.close())):
        env = make(**{name: fail})
        env.reset()
        with pytest.raises(RuntimeError, match="boom"):
            call(env)


def test_episodes_of_one_step_end_on_every_step():
    env = make(step=lambda self, action: (np.full(2, 9), 1.0, True, {}))
    env.reset()

    assert [step[:4] for step in run(env, 3)] == [[[0, 0], [9, 9], 1, True]] * 3
    assert env.episodes()["episode_length"].tolist() == [1, 1, 1]


def test_a_second_reset_starts_anew():
    env = as_puffer_env(Count)
    env.reset()
    run(env, 2)
    env.reset()
    run(env, 3)

    assert env.episodes()["episode_length"].tolist() == [3]


@pytest.mark.parametrize("seed", [0, 2**70, np.int64(3), np.uint64(2**64 - 1), np.array(3)])
def test_any_integer_is_a_seed(seed):
    assert as_puffer_env(Count).reset(seed=seed)[0].tolist() == [[0, 0]]


@pytest.mark.parametrize(("seed", "error"), [(-1, ValueError), (1.5, TypeError), ("a", TypeError), ([3], TypeError)])
def test_other_seeds_are_refused(seed, error):
    with pytest.raises(error, match=r"seed must be .*; got"):
        as_puffer_env(Count).reset(seed=seed)


class Several(PufferEnv):
    """Dicts per agent, with spaces assigned after super().__init__()."""

    def __init__(self, buf=None):
        super().__init__(buf)
        self.single_observation_space = spaces.Box(0, 1, (2,))
        self.single_action_space = spaces.Discrete(2)
        self.num_agents = 2

    def reset(self):
        return {"a": np.zeros(2), "b": np.zeros(2)}


class Uncounted(Several):
    def __init__(self, buf=None):
        super().__init__(buf)
        del self.num_agents


class Rewarded(Uncounted):
    def reset(self):
        return np.zeros(2)

    def step(self, action):
        return self.reset(), {"a": 1.0, "b": 1.0}, {"a": False, "b": False}, {}


@pytest.mark.parametrize(
    ("cls", "got"), [(Several, "num_agents=2"), (Uncounted, "a dict of observations"), (Rewarded, "a dict of rewards")]
)
def test_the_short_form_is_for_one_agent(cls, got):
    def play():
        env = as_puffer_env(cls)
        env.reset()
        env.step([0])

    with pytest.raises(TypeError, match=f"{cls.__name__} must have one agent in the short form; got {got}. For more"):
        play()


def test_a_missing_call_of_the_base_constructor_is_explained():
    class Forgot(Count):
        def __init__(self):
            self.single_observation_space = spaces.Box(0, 1, (2,))
            self.single_action_space = spaces.Discrete(2)

    with pytest.raises(TypeError, match=r"Forgot must call super\(\).__init__\(buf\)"):
        as_puffer_env(Forgot)


def test_a_discrete_space_may_be_observed():
    class Places(Count):
        def __init__(self, buf=None):
            super().__init__(buf)
            self.observation_space = self.make_discrete(5)

        def reset(self):
            return 4

        def step(self, action):
            return 3, 1.0, True, {}

    env = as_puffer_env(Places)

    assert env.reset()[0].tolist() == [[4]]
    assert env.step([0])[0].tolist() == [[4]]
    assert env.final_observations.tolist() == [[3]]


@pytest.mark.parametrize("copy_of", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_of_an_env_steps_on_its_own_rows(copy_of):
    env = as_puffer_env(Count)
    env.reset(seed=3)
    twin = copy_of(env)
    twin.step([1])

    assert twin.observations.tolist() == twin.buffers.observations.tolist() == [[1, 1]]
    assert env.observations.tolist() == [[0, 0]]
    assert (len(env.env.actions_seen), len(twin.env.actions_seen)) == (0, 1)
