"""What a Gymnasium environment must look like once it is a PufferEnv."""

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, RecordEpisodeStatistics, TimeLimit

from puffer_emulate import GymnasiumPufferEnv, emulate
from puffer_spaces import MissingAdapter, as_puffer_env, world_seed


class Counter(gymnasium.Env):
    """Counts its steps and ends after `length` of them; reuses one observation array and one info dict."""

    observation_space = spaces.Box(0, 100, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, length=3, truncates=False):
        self.length = length
        self.truncates = truncates
        self.observation = np.zeros(2, np.float32)
        self.info = {}
        self.calls = []
        self.num_closed = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.calls.append((seed, options))
        self.observation[:] = 0
        self.info.clear()
        return self.observation, self.info

    def step(self, action):
        self.observation += 1
        is_over = bool(self.observation[0] == self.length)
        if is_over:
            self.info["score"] = 7.0
            self.info["parts"] = [np.array([self.observation[0]])]
        return self.observation, 1.0, is_over and not self.truncates, is_over and self.truncates, self.info

    def close(self):
        self.num_closed += 1


class Constant(gymnasium.Env):
    """Returns what it is told to return."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, observation, reward=0.0, terminated=False, truncated=False):
        self.observation_space = space
        self.result = (observation, reward, terminated, truncated, {})

    def reset(self, *, seed=None, options=None):
        return self.result[0], {}

    def step(self, action):
        return self.result


class Walk(gymnasium.Env):
    """A random walk of its own generator."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.np_random.normal(size=1)
        return self.position, {}

    def step(self, action):
        self.position = self.position + self.np_random.normal(size=1)
        return self.position, 0.0, bool(self.np_random.random() < 0.2), False, {}


def zeros(env):
    return np.zeros_like(env.actions)


def test_the_step_that_ends_an_episode_holds_both_observations():
    env = emulate(Counter, 2)
    observations, infos = env.reset(seed=0)
    assert infos == []
    assert observations.tolist() == [[0, 0], [0, 0]]

    env.step(zeros(env))
    env.step(zeros(env))
    observations, rewards, terminals, truncations, infos = env.step(zeros(env))

    assert observations.tolist() == [[0, 0], [0, 0]]
    assert env.final_observations.tolist() == [[3, 3], [3, 3]]
    assert rewards.tolist() == [1, 1]
    assert terminals.tolist() == [True, True]
    assert truncations.tolist() == [False, False]
    assert env.masks.all()
    assert [info["agent_index"] for info in infos] == [0, 1]


def test_flags_last_for_one_step():
    env = emulate(Counter)
    env.reset(seed=0)
    flags = [env.step(zeros(env))[2].item() for _ in range(7)]

    assert flags == [False, False, True, False, False, True, False]


def test_an_env_that_reuses_its_info_loses_none():
    env = emulate(Counter)
    env.reset(seed=0)
    for _ in range(3):
        infos = env.step(zeros(env))[4]
    (info,) = infos
    env.step(zeros(env))

    assert info["score"] == 7.0
    assert info["parts"][0].tolist() == [3]
    assert env.env.info == {}


def test_every_episode_is_recorded_with_its_own_length():
    env = emulate(Counter, 2)
    env.reset(seed=0)
    for _ in range(15):
        env.step(zeros(env))

    records = env.episodes()
    assert records["episode_length"].tolist() == [3] * 10
    assert records["episode_return"].tolist() == [3] * 10
    assert records["score"].tolist() == [7] * 10
    assert records["step"].tolist() == [3, 3, 6, 6, 9, 9, 12, 12, 15, 15]
    assert records["world"].tolist() == [0, 1] * 5
    assert len(env.episodes()) == 0


def test_a_record_keeps_the_extras_that_are_asked_for():
    class Scored(Counter):
        def step(self, action):
            observation, reward, terminated, truncated, _info = super().step(action)
            return observation, reward, terminated, truncated, {"lives": np.int64(2), "perf": 0.5}

    env = emulate(Scored, episode_extras=("lives", "absent"))
    env.reset(seed=0)
    for _ in range(3):
        env.step(zeros(env))

    (record,) = env.episodes()
    assert (record["lives"], record["perf"], record["score"]) == (2, 0.5, 3)
    assert np.isnan(record["absent"])


@pytest.mark.parametrize(
    "wrap", [lambda env: TimeLimit(env, 2), lambda env: RecordEpisodeStatistics(TimeLimit(env, 2))]
)
def test_a_time_limit_truncates_and_counts_from_each_reset(wrap):
    env = emulate(lambda: wrap(Counter(length=100)))
    env.reset(seed=0)
    env.step(zeros(env))
    env.reset()
    flags = []
    for _ in range(4):
        _, _, terminals, truncations, _ = env.step(zeros(env))
        flags.append((terminals.item(), truncations.item()))

    assert flags == [(False, False), (False, True), (False, False), (False, True)]
    assert env.final_observations.tolist() == [[2, 2]]


def test_an_end_on_the_last_step_of_the_limit_sets_both_flags():
    env = emulate(lambda: TimeLimit(Counter(length=2), 2))
    env.reset(seed=0)
    env.step(zeros(env))
    _, _, terminals, truncations, _ = env.step(zeros(env))

    assert terminals.item()
    assert truncations.item()


def test_worlds_get_their_own_seeds_and_only_on_a_seeded_reset():
    env = emulate(Counter, 3)
    env.reset(seed=5, first_world=10)
    for _ in range(3):
        env.step(zeros(env))
    env.reset()

    expected = [[(world_seed(5, 10 + world), None), (None, None), (None, None)] for world in range(3)]
    assert [made.calls for made in env.envs] == expected


def test_the_same_seed_repeats_a_run_and_continues_the_random_sequence():
    def rollout(env, seed):
        rows = [env.reset(seed=seed)[0].copy()]
        rows.extend(env.step(zeros(env))[0].copy() for _ in range(30))
        return np.stack(rows)

    first = rollout(emulate(Walk, 4), 10)
    again = emulate(Walk, 4)
    rollout(again, 11)

    assert (rollout(again, 10) == first).all()
    assert len(np.unique(first[0])) == 4
    assert len(np.unique(first)) == first.size


def test_worlds_without_a_seed_differ():
    observations, _ = emulate(Walk, 4).reset()

    assert len(np.unique(observations)) == 4


def test_a_seed_of_the_constructor_counts_for_a_first_reset_without_one():
    first = GymnasiumPufferEnv(Walk, seed=3).reset()[0].item()
    second = GymnasiumPufferEnv(Walk, seed=4).reset(seed=3)[0].item()

    assert first == second


def test_options_reach_every_env_once():
    env = emulate(Counter, 2)
    env.reset(seed=1, options={"level": 3})
    for _ in range(3):
        env.step(zeros(env))

    assert [made.calls for made in env.envs] == [
        [(world_seed(1, world), {"level": 3}), (None, None)] for world in range(2)
    ]


@pytest.mark.parametrize("reward", [1, True, 1.5, np.float32(1.5), np.array(1.5), np.array([1.5]), np.int64(2)])
@pytest.mark.parametrize("flag", [True, 1, np.True_, np.array(True), np.array([True])])
def test_scalars_of_every_kind_are_taken(reward, flag):
    space = spaces.Box(0, 1, (1,), np.float32)
    env = emulate(lambda: Constant(space, np.zeros(1, np.float32), reward, flag))
    env.reset(seed=0)
    _, rewards, terminals, _, _ = env.step(zeros(env))

    assert rewards.item() == float(np.asarray(reward).item())
    assert rewards.dtype == np.float32
    assert terminals.item() is True


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ((np.zeros(1), np.zeros(2), False, False, {}), r"reward of Told, world 0, must be one number.*\(2,\)"),
        ((np.zeros(1), 0.0, np.zeros(2, bool), False, {}), "terminated and truncated of Told must be one bool"),
        ((np.zeros(1), 0.0, True, np.zeros(2, bool), {}), "truncated of Told, world 0, must be one"),
        ((np.zeros(1), 0.0, False, {}), "must return .* got a tuple of 4"),
        (None, "step of Told must return"),
        ((np.zeros(3), 0.0, False, False, {}), r"observation of Told, world 0: .*shape \(1,\).*\(3,\)"),
        ((np.zeros(3), 0.0, True, False, {}), r"observation of Told, world 0: .*shape \(1,\).*\(3,\)"),
    ],
)
def test_a_bad_result_names_the_env_and_the_fault(result, message):
    class Told(Constant):
        def step(self, action):
            return result

    env = emulate(lambda: Told(spaces.Box(0, 1, (1,)), np.zeros(1, np.float32)))
    env.reset(seed=0)

    with pytest.raises((TypeError, ValueError), match=message):
        env.step(zeros(env))


def test_an_old_reset_is_refused_with_what_it_must_return():
    class Old(Constant):
        def reset(self, *, seed=None, options=None):
            return np.zeros(1)

    env = emulate(lambda: Old(spaces.Box(0, 1, (1,)), np.zeros(1, np.float32)))

    with pytest.raises(TypeError, match=r"reset of Old must return \(observation, info\)"):
        env.reset(seed=0)


def test_a_bad_leaf_is_named():
    space = spaces.Dict(counts=spaces.MultiDiscrete([4, 11]), image=spaces.Box(0, 255, (2, 2), np.uint8))
    image = np.zeros((2, 2), np.uint8)
    good = emulate(lambda: Constant(space, {"counts": [1, 3], "image": image}))
    bad = emulate(lambda: Constant(space, {"counts": [1, 3, 0], "image": image}))
    missing = emulate(lambda: Constant(space, {"image": image}))

    observations, _ = good.reset(seed=0)
    assert good.observation_layout.unflatten(observations[0])["counts"].tolist() == [1, 3]
    with pytest.raises(ValueError, match=r"observation of Constant, world 0: leaf 'counts' must have shape \(2,\)"):
        bad.reset(seed=0)
    with pytest.raises(KeyError, match="leaf 'counts' must be given"):
        missing.reset(seed=0)


def test_an_error_of_the_env_keeps_its_type_and_names_the_world():
    class Failing(Counter):
        def step(self, action):
            raise ArithmeticError("boom")

    env = emulate(Failing, 2)
    env.reset(seed=0)

    with pytest.raises(ArithmeticError, match="boom") as caught:
        env.step(zeros(env))
    assert caught.value.__notes__ == ["raised by step of world 0 of Failing"]


def test_an_env_may_keep_the_actions_it_got():
    class Remembering(Counter):
        action_space = spaces.Box(-1, 1, (2,), np.float32)

        def step(self, action):
            self.history = [*getattr(self, "history", []), action]
            return super().step(action)

    env = emulate(Remembering)
    env.reset(seed=0)
    for value in (0.25, 0.5):
        env.actions[:] = value
        env.step(env.actions)

    assert [action.tolist() for action in env.env.history] == [[0.25, 0.25], [0.5, 0.5]]


def test_buffers_can_be_bound_again():
    env = emulate(Counter, 2)
    env.reset(seed=0)
    old = env.buffers
    env.set_buffers(type(old).allocate(env.single_observation_space, env.single_action_space, 2))
    observations, rewards, *_ = env.step(zeros(env))

    assert observations.tolist() == [[1, 1], [1, 1]]
    assert rewards is env.buffers.rewards
    assert old.observations.tolist() == [[0, 0], [0, 0]]


def test_step_needs_a_reset_and_an_open_env():
    env = emulate(Counter)
    with pytest.raises(RuntimeError, match="must be reset before step"):
        env.step(zeros(env))
    env.reset(seed=0)
    env.close()
    env.close()

    assert env.env.num_closed == 1
    with pytest.raises(RuntimeError, match="must be open"):
        env.reset(seed=0)


def test_close_reaches_every_env_although_one_fails():
    class Stuck(Counter):
        def close(self):
            super().close()
            raise OSError("stuck")

    env = emulate(Stuck, 2)

    with pytest.raises(OSError, match="stuck"):
        env.close()
    assert [made.num_closed for made in env.envs] == [1, 1]


def test_an_object_is_made_again_from_its_spec():
    original = gymnasium.make("CartPole-v1", max_episode_steps=7)
    env = emulate(FlattenObservation(original), 3)
    env.reset(seed=0)

    assert env.num_envs == 3
    assert len({id(made.unwrapped) for made in env.envs}) == 3
    assert [made.spec.max_episode_steps for made in env.envs] == [7, 7, 7]


def test_an_object_without_a_spec_cannot_be_more_than_one_world():
    with pytest.raises(ValueError, match="must have a spec to be made again; Counter has none"):
        emulate(Counter(), 2)

    assert emulate(Counter()).num_envs == 1


def test_a_creator_that_returns_one_object_is_refused():
    cached = Counter()

    with pytest.raises(ValueError, match="got one Counter for worlds 0 and 1"):
        emulate(lambda: cached, 2)


def test_worlds_with_other_spaces_are_refused():
    sizes = iter([1, 1, 2])

    with pytest.raises(ValueError, match=r"one observation_space; got .* in world 2"):
        emulate(lambda: Constant(spaces.Box(0, 1, (next(sizes),)), None), 3)


def test_envs_made_before_a_failure_are_closed():
    made = []

    def create():
        if len(made) == 2:
            raise RuntimeError("no third")
        made.append(Counter())
        return made[-1]

    with pytest.raises(RuntimeError, match="no third"):
        emulate(create, 3)
    assert [env.num_closed for env in made] == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "got neither"),
        ({"env": Counter(), "env_creator": Counter}, "got both"),
        ({"env_creator": Counter, "num_envs": 0}, "num_envs must be an integer of at least 1; got 0"),
        ({"env_creator": "CartPole-v1"}, "env_creator must be a class or function"),
        ({"env": Counter(), "env_kwargs": {"length": 2}}, "go to a creator"),
        ({"env_creator": lambda: 3}, "must be a gymnasium.Env; got builtins.int"),
        ({"env_creator": lambda: gymnasium.make_vec("CartPole-v1", 2)}, "got the vector env"),
        ({"env_creator": gymnasium.Env}, "observation_space of Env must be a gymnasium.spaces space; got None"),
    ],
)
def test_a_bad_argument_gives_one_clear_sentence(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        GymnasiumPufferEnv(**arguments)


def test_the_constructor_takes_pufferlibs_arguments_by_position():
    env = GymnasiumPufferEnv(None, Counter, (), {"length": 2}, None, 0)
    env.reset()
    env.step(zeros(env))

    assert env.step(zeros(env))[2].item()


def test_as_puffer_env_takes_objects_classes_and_functions():
    for thing in (Counter(), Counter, lambda: Counter()):
        env = as_puffer_env(thing)
        assert isinstance(env, GymnasiumPufferEnv)
        assert env.emulated

    class NoEnv:
        def reset(self): ...
        def step(self, action): ...

    with pytest.raises(MissingAdapter):
        as_puffer_env(NoEnv())


def test_the_wrappers_of_make_are_stepped_around_and_rendering_works():
    env = GymnasiumPufferEnv(gymnasium.make("FrozenLake-v1", render_mode="ansi"))
    env.reset(seed=0)
    drawn = env.render()
    env.close()

    assert env.render_mode == "ansi"
    assert drawn.count("H") == 4


def test_the_joint_spaces_are_seeded_and_differ_by_row():
    env = emulate(Counter, 4)
    env.action_space.seed(7)
    first = [env.action_space.sample() for _ in range(20)]
    env.action_space.seed(7)
    second = [env.action_space.sample() for _ in range(20)]

    assert np.array_equal(first, second)
    assert len({tuple(column) for column in np.array(first).T}) == 4


@pytest.mark.parametrize("info", [[1], "score", 5])
@pytest.mark.parametrize("is_over", [False, True])
def test_infos_that_are_no_dicts_are_refused(info, is_over):
    env = GymnasiumPufferEnv(Constant(spaces.Box(0, 1, (1,)), np.zeros(1, np.float32)))
    env.reset()
    env.env.result = (np.zeros(1, np.float32), 1.0, is_over, False, info)

    with pytest.raises(TypeError, match=r"info of Constant, world 0, must be a dict; got"):
        env.step([0])


def test_a_flag_of_nan_and_a_reward_beyond_floats_are_refused():
    for reward, flag, words in ((0.0, np.nan, "terminated of .* got nan"), (10**400, False, "reward of .* must fit")):
        env = GymnasiumPufferEnv(Constant(spaces.Box(0, 1, (1,)), np.zeros(1, np.float32), reward, flag))
        env.reset()
        with pytest.raises(ValueError, match=words):
            env.step([0])


@pytest.mark.parametrize("copy_of", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_of_an_env_steps_worlds_and_rows_of_its_own(copy_of):
    env = GymnasiumPufferEnv(env_creator=Counter, num_envs=2)
    env.reset(seed=1)
    twin = copy_of(env)
    twin.step([0, 1])

    assert twin.observations.tolist() == twin.buffers.observations.tolist() == [[1, 1], [1, 1]]
    assert env.observations.tolist() == [[0, 0], [0, 0]]
    assert [world.observation[0] for world in (*twin.envs, *env.envs)] == [1, 1, 0, 0]


def test_a_closed_env_says_so():
    env = GymnasiumPufferEnv(Counter)
    env.reset()
    env.close()

    for call in (env.reset, lambda: env.step([0])):
        with pytest.raises(RuntimeError, match=r"Counter must be open; close\(\) was called"):
            call()


@pytest.mark.parametrize("world", [-1, 1])
def test_a_world_that_is_not_there_is_not_drawn(world):
    with pytest.raises(ValueError, match=rf"world must be in \[0, 0\]; got {world}"):
        GymnasiumPufferEnv(Counter).render(world)


def test_extras_in_one_string_are_refused():
    with pytest.raises(TypeError, match="episode extras must be a sequence of names; got 'wins'"):
        GymnasiumPufferEnv(Counter, episode_extras="wins")
