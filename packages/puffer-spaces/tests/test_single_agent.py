"""What a class in the short form must look like once it is a PufferEnv."""

import copy
import pickle

import numpy as np
import pytest
from gymnasium import spaces

from puffer_spaces import Buffers, PufferEnv, SingleAgentEnv, as_puffer_env, reset_env


def test_the_plain_form_keeps_the_full_contract(count, run):
    env = as_puffer_env(count)

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


def test_every_episode_has_its_own_length_return_and_score(count, run):
    env = as_puffer_env(count())
    reset_env(env, 1)

    run(env, 15)

    records = env.episodes()
    assert records["step"].tolist() == [3, 6, 9, 12, 15]
    assert records["episode_length"].tolist() == [3] * 5
    assert records["episode_return"].tolist() == [3.0] * 5
    assert records["score"].tolist() == [7.0] * 5
    assert np.isnan(records["perf"]).all()
    assert len(env.episodes()) == 0


def test_actions_arrive_in_the_form_of_the_space(count):
    class Recorder(count):
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
def test_ends_and_limits_are_told_apart(count, run, ending, terminal, truncation):
    class Ends(count):
        def step(self, action):
            return self.observation, 0.5, *ending

    env = as_puffer_env(Ends)
    env.reset()

    ((_, _, reward, *flags, _),) = run(env, 1)

    assert (reward, flags) == (0.5, [terminal, truncation])
    assert len(env.episodes()) == (terminal or truncation)


@pytest.mark.parametrize("reward", [2.0, np.float32(2), np.array(2.0), np.array([2.0]), 2])
@pytest.mark.parametrize("done", [True, np.True_, 1])
def test_rewards_and_flags_of_one_number_are_accepted_across_an_end(count, run, reward, done):
    class Scalars(count):
        def step(self, action):
            return self.observation, reward, done, {}

    env = as_puffer_env(Scalars)
    env.reset()
    run(env, 2)

    assert (env.rewards.dtype, env.terminals.dtype) == (np.float32, bool)
    assert (env.rewards.tolist(), env.terminals.tolist()) == ([2.0], [True])
    assert env.episodes()["episode_return"].tolist() == [2.0, 2.0]


def test_info_of_a_reset_is_kept(count, run):
    class Informs(count):
        episodes_begun = 0

        def reset(self, seed=None, options=None):
            self.episodes_begun += 1
            return super().reset(), {"level": options["level"] if options else 0, "episode": self.episodes_begun}

    env = as_puffer_env(Informs)

    assert reset_env(env, 1, options={"level": 3})[1] == [{"level": 3, "episode": 2}]
    infos = run(env, 3)[-1][-1]
    assert infos == [{"score": 7}, {"reset_info": {"level": 0, "episode": 3}}]
    with pytest.raises(TypeError, match="reset of Count must take options"):
        reset_env(as_puffer_env(count), 1, options={"level": 3})


def test_arrays_in_infos_are_copies(count, run):
    class Reuses(count):
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


def test_a_tuple_observation_that_ends_in_a_dict_is_no_info(count):
    class Tuples(count):
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


def test_rows_may_be_bound_before_or_later(count, run):
    buffers = Buffers.allocate(spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(4), 3)
    env = as_puffer_env(count, buf=buffers[1:2])
    reset_env(env, 0)
    run(env, 3)
    assert buffers.final_observations.tolist() == [[0, 0], [9, 9], [0, 0]]

    env.set_buffers(buffers[2:3])
    run(env, 3)
    assert buffers.final_observations.tolist() == [[0, 0], [9, 9], [9, 9]]


def test_extras_score_and_perf_come_from_the_last_info(count, run):
    class Extras(count):
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


def test_snapshots_parameters_rendering_and_closing_are_passed_on(count, run):
    class Rich(count):
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
        as_puffer_env(count).set_parameters(speed=2)


def test_spaces_may_be_class_attributes(count):
    class Static(count):
        observation_space = spaces.Box(0, 9, (2,))
        action_space = spaces.Discrete(2)

        def __init__(self):
            PufferEnv.__init__(self)
            self.observation = np.zeros(2, np.float32)
            self.info = {}

    assert as_puffer_env(Static).single_observation_space == spaces.Box(0, 9, (2,))


def test_episodes_of_one_step_end_on_every_step(run, make_count):
    env = make_count(step=lambda self, action: (np.full(2, 9), 1.0, True, {}))
    env.reset()

    assert [step[:4] for step in run(env, 3)] == [[[0, 0], [9, 9], 1, True]] * 3
    assert env.episodes()["episode_length"].tolist() == [1, 1, 1]


def test_a_second_reset_starts_anew(count, run):
    env = as_puffer_env(count)
    env.reset()
    run(env, 2)
    env.reset()
    run(env, 3)

    assert env.episodes()["episode_length"].tolist() == [3]


def test_a_discrete_space_may_be_observed(count):
    class Places(count):
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
def test_a_copy_of_an_env_steps_on_its_own_rows(count, copy_of):
    env = as_puffer_env(count)
    env.reset(seed=3)
    twin = copy_of(env)
    twin.step([1])

    assert twin.observations.tolist() == twin.buffers.observations.tolist() == [[1, 1]]
    assert env.observations.tolist() == [[0, 0]]
    assert (len(env.env.actions_seen), len(twin.env.actions_seen)) == (0, 1)
