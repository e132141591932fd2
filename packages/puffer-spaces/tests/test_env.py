import functools
import pickle

import numpy as np
import pytest
from gymnasium import spaces

from puffer_spaces import ActionLayout, Buffers, Layout, PufferEnv

OBSERVATION = spaces.Box(0, 10, (2,), np.float32)


class Counter(PufferEnv):
    """Written for PufferLib 3.0: spaces first, then super().__init__(buf); clears nothing itself."""

    def __init__(self, num_envs=3, buf=None):
        self.single_observation_space = OBSERVATION
        self.single_action_space = spaces.Discrete(2)
        self.num_agents = num_envs
        super().__init__(buf)

    def reset(self, seed=None):
        self.tick = 0
        self.observations[:] = 0
        return self.observations, []

    def step(self, actions):
        self.tick += 1
        self.observations[:] = self.tick
        if self.tick % 3 == 0:
            self.rewards[0] = 1
            self.terminals[0] = True
        if self.tick % 5 == 0:
            self.truncations[1] = True
        return self.observations, self.rewards, self.terminals, self.truncations, [{"tick": self.tick}]


def test_the_base_class_binds_seven_arrays_and_joint_spaces():
    env = Counter()

    assert env.observations.shape == (3, 2)
    assert env.actions.dtype == np.int32
    assert env.masks.tolist() == [True] * 3
    assert env.agent_ids.tolist() == [0, 1, 2]
    assert env.observation_space == spaces.Box(0, 10, (3, 2), np.float32)
    assert env.action_space == spaces.MultiDiscrete([2, 2, 2], dtype=np.int32)
    assert env.final_observations.shape == (3, 2)
    assert env.action_mask is None
    assert env.buffers.rewards is env.rewards


def test_defaults_of_the_contract():
    env = Counter()

    assert (env.num_envs, env.has_final_observations, env.rebinds_buffers, env.has_state) == (1, False, False, False)
    assert (env.action_mask_size, env.episode_extras, env.render_mode) == (0, (), None)
    assert env.finish_step() == []
    assert len(env.episodes()) == 0
    assert env.episodes().dtype.names[0] == "step"
    assert env.step_capsule() is None
    assert env.driver_env is env
    assert not env.emulated
    assert env.observation_layout == Layout(OBSERVATION)
    assert env.action_layout == ActionLayout(spaces.Discrete(2))
    assert env.original_action_space is env.single_action_space
    for call in (env.get_state, env.render, lambda: env.set_state(b""), lambda: env.set_parameters(speed=2)):
        with pytest.raises(NotImplementedError, match="Counter must define"):
            call()
    env.set_parameters()
    env.close()
    env.close()
    with env as same:
        assert same is env


def test_rewards_and_flags_are_cleared_before_each_step():
    env = Counter()
    env.reset()

    seen = [[array.copy().tolist() for array in env.step(env.actions)[1:4]] for _ in range(6)]

    none, first, second = [False] * 3, [True, False, False], [False, True, False]
    assert seen == [
        [[0, 0, 0], none, none],
        [[0, 0, 0], none, none],
        [[1, 0, 0], first, none],
        [[0, 0, 0], none, none],
        [[0, 0, 0], none, second],
        [[1, 0, 0], first, none],
    ]


def test_a_class_that_clears_itself_or_has_a_capsule_is_left_alone():
    class Own(PufferEnv):
        clears_flags = True

        def step(self, actions):
            return "untouched"

    class Native(PufferEnv):
        def step_capsule(self):
            return object()

        def step(self, actions):
            return "untouched"

    class Child(Native):
        def step(self, actions):
            return "untouched"

    assert not any(hasattr(cls.step, "__wrapped__") for cls in (Own, Native, Child))


def test_a_step_from_a_mixin_is_cleared_before_and_only_once():
    class Steps:
        def step(self, actions):
            return self.rewards.tolist()

    class Mixed(Steps, Counter):
        pass

    class Child(Mixed):
        pass

    env = Child()
    env.rewards[:] = 7

    assert env.step(env.actions) == [0, 0, 0]
    assert Child.step is Mixed.step
    assert not hasattr(Steps.step, "__wrapped__")


def test_step_keeps_its_name_and_docstring():
    class Documented(Counter):
        def step(self, actions):
            """Do it."""
            return super().step(actions)

    assert Documented.step.__name__ == "step"
    assert Documented.step.__doc__ == "Do it."
    assert isinstance(Documented.step.__wrapped__, type(lambda: 0))


def test_buffers_may_be_given_as_such_or_as_a_dict():
    buffers = Buffers.allocate(OBSERVATION, spaces.Discrete(2), 6)
    names = ("observations", "actions", "rewards", "terminals", "truncations", "masks")

    one = Counter(buf=buffers[:3])
    two = Counter(buf={name: buffers[name][3:] for name in names})
    one.reset()
    two.reset()
    two.step(two.actions)

    assert buffers.observations.tolist() == [[0, 0]] * 3 + [[1, 1]] * 3


def test_set_buffers_binds_to_other_arrays_with_masks_true():
    env = Counter()
    buffers = Buffers.allocate(OBSERVATION, spaces.Discrete(2), 3)
    buffers.masks[:] = False

    env.set_buffers(buffers)
    env.reset()
    env.step(env.actions)

    assert buffers.observations.tolist() == [[1, 1]] * 3
    assert buffers.masks.all()


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("observations", np.zeros((3, 2)), r"observations of Counter must be float32 \(3, 2\); got float64 \(3, 2\)"),
        ("actions", np.zeros(3, np.int64), r"actions of Counter must be int32 \(3,\); got int64 \(3,\)"),
        ("rewards", np.zeros(4, np.float32), r"rewards of Counter must be float32 \(3,\); got float32 \(4,\)"),
        ("terminals", np.zeros(3, np.uint8), r"terminals of Counter must be bool"),
        ("masks", None, "masks of Counter must be bool .* got NoneType"),
        ("final_observations", np.zeros((2, 3), np.float32).T, "C-contiguous"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name, array, words):
    buffers = Buffers.allocate(OBSERVATION, spaces.Discrete(2), 3)
    setattr(buffers, name, array)

    with pytest.raises(ValueError, match=words):
        Counter(buf=buffers)


def test_an_action_mask_is_bound_where_the_class_declares_one():
    class Masked(Counter):
        action_mask_size = 2

    assert Masked().action_mask.tolist() == [[True, True]] * 3
    with pytest.raises(ValueError, match=r"action_mask of Masked must be bool \(3, 2\); got NoneType"):
        Masked(buf=Buffers.allocate(OBSERVATION, spaces.Discrete(2), 3))


def make(**attributes):
    class Made(PufferEnv):
        def __init__(self):
            for name, value in attributes.items():
                setattr(self, name, value)
            super().__init__()

    return Made


@pytest.mark.parametrize(
    ("attributes", "error", "words"),
    [
        ({"single_observation_space": OBSERVATION}, TypeError, "no single_action_space and no num_agents"),
        (
            {"single_observation_space": OBSERVATION, "single_action_space": spaces.Discrete(2)},
            TypeError,
            "got no num_agents",
        ),
        (
            {
                "single_observation_space": spaces.Discrete(2),
                "single_action_space": spaces.Discrete(2),
                "num_agents": 1,
            },
            TypeError,
            r"single_observation_space must be a gymnasium Box; got Discrete\(2\)",
        ),
        (
            {"single_observation_space": OBSERVATION, "single_action_space": spaces.Text(2), "num_agents": 1},
            TypeError,
            "single_action_space must be a gymnasium Discrete",
        ),
        (
            {
                "single_observation_space": OBSERVATION,
                "single_action_space": spaces.Discrete(2, start=1),
                "num_agents": 1,
            },
            ValueError,
            "single_action_space must start at 0",
        ),
        (
            {"single_observation_space": OBSERVATION, "single_action_space": spaces.Discrete(2), "num_agents": 0},
            ValueError,
            "num_agents must be an integer of at least 1; got 0",
        ),
        (
            {
                "single_observation_space": OBSERVATION,
                "single_action_space": spaces.Discrete(2),
                "num_agents": 3,
                "num_envs": 2,
            },
            ValueError,
            "got num_agents=3, num_envs=2",
        ),
        (
            {
                "single_observation_space": OBSERVATION,
                "single_action_space": spaces.Discrete(2),
                "num_agents": 1,
                "action_space": spaces.Discrete(2),
            },
            TypeError,
            "must set single_action_space, not action_space",
        ),
    ],
)
def test_constructors_are_checked_at_the_door(attributes, error, words):
    with pytest.raises(error, match=words):
        make(**attributes)()


def test_methods_that_a_subclass_must_define_say_so():
    env = make(single_observation_space=OBSERVATION, single_action_space=spaces.Discrete(2), num_agents=1)()

    with pytest.raises(NotImplementedError, match="Made must define reset"):
        env.reset()
    with pytest.raises(NotImplementedError, match="Made must define step"):
        env.step(env.actions)


def test_the_asynchronous_pair_of_3_0():
    env = Counter()
    env.async_reset(seed=3)

    observations, rewards, _, _, infos, agent_ids, masks = env.recv()
    assert (observations.tolist(), rewards.tolist(), infos) == ([[0, 0]] * 3, [0, 0, 0], [])
    env.send(env.actions)
    observations, _, _, _, infos, agent_ids, masks = env.recv()
    assert (observations[0].tolist(), infos) == ([1, 1], [{"tick": 1}])
    assert (agent_ids.tolist(), masks.tolist()) == ([0, 1, 2], [True] * 3)


def test_an_env_may_set_the_attributes_that_have_defaults():
    class Emulated(Counter):
        def __init__(self):
            super().__init__()
            self.original_observation_space = spaces.Dict(x=OBSERVATION)
            self.observation_layout = Layout(self.original_observation_space)

    env = Emulated()

    assert env.observation_layout.leaves[0].name == "x"
    assert env.original_action_space == spaces.Discrete(2)


def test_spaces_are_made_from_shapes():
    env = Counter()

    assert env.make_space(4) == spaces.Box(-np.inf, np.inf, (4,), np.float32)
    assert env.make_space((2, 3), low=0, high=1, dtype=np.float64) == spaces.Box(0, 1, (2, 3), np.float64)
    assert env.make_space((8, 8, 3), dtype=np.uint8) == spaces.Box(0, 255, (8, 8, 3), np.uint8)
    assert env.make_space((2,), dtype=bool) == spaces.Box(0, 1, (2,), np.bool_)
    assert env.make_space({"a": (2,), "b": {"c": 1}, "d": spaces.Discrete(2)}) == spaces.Dict(
        a=spaces.Box(-np.inf, np.inf, (2,)), b=spaces.Dict(c=spaces.Box(-np.inf, np.inf, (1,))), d=spaces.Discrete(2)
    )
    assert env.make_discrete(3) == spaces.Discrete(3)
    assert env.make_multi_discrete([3, 4]) == spaces.MultiDiscrete([3, 4])


def test_shapes_of_three_sizes_are_images_unless_bounds_or_a_dtype_are_given():
    env = Counter()

    assert env.make_space({"image": (84, 84, 3), "vector": (10,), "deep": {"scalar": ()}}) == spaces.Dict(
        image=spaces.Box(0, 255, (84, 84, 3), np.uint8),
        vector=spaces.Box(-np.inf, np.inf, (10,)),
        deep=spaces.Dict(scalar=spaces.Box(-np.inf, np.inf, ())),
    )
    assert env.make_space((2, 2, 2), low=-1, high=1) == spaces.Box(-1, 1, (2, 2, 2), np.float32)
    assert env.make_space((2, 2, 2), dtype=np.float32).dtype == np.float32
    assert env.make_space(np.int64(3)).shape == (3,)


@pytest.mark.parametrize("shape", [None, 1.5, "84", (2.0,), [(3,), (2,)], spaces.Discrete])
def test_what_is_no_shape_is_refused(shape):
    with pytest.raises(TypeError, match="shape must be an integer or a sequence of integers; got"):
        Counter().make_space(shape)
    with pytest.raises(TypeError, match="num_choices must be an integer or a sequence of integers; got"):
        Counter().make_multi_discrete(shape)


@pytest.mark.parametrize("shape", [0, -1, (3, 0), (2, -1)])
def test_shapes_without_elements_are_refused(shape):
    with pytest.raises(ValueError, match="shape must have sizes of at least 1; got"):
        Counter().make_space(shape)


FULL = {"single_observation_space": OBSERVATION, "single_action_space": spaces.Discrete(2), "num_agents": 2}


@pytest.mark.parametrize("name", ["num_agents", "num_envs"])
@pytest.mark.parametrize("count", [0, -1, 1.5, 2.0, "2", None, True])
def test_counts_that_are_no_positive_integers_are_refused(name, count):
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1; got"):
        make(**{**FULL, name: count})()


@pytest.mark.parametrize("space", [spaces.Discrete(2**40), spaces.MultiDiscrete([3, 2**31 + 1])])
def test_choices_beyond_int32_are_refused(space):
    with pytest.raises(ValueError, match="must have values that fit int32"):
        make(**{**FULL, "single_action_space": space})()


def test_a_dict_of_arrays_may_be_bound_later():
    env = Counter()
    buffers = Buffers.allocate(env.single_observation_space, env.single_action_space, env.num_agents)
    env.set_buffers(dict(**buffers))

    assert env.observations is buffers.observations
    with pytest.raises(TypeError, match="buf must be Buffers or a dict of arrays; got list"):
        env.set_buffers([buffers.observations])


def test_arrays_with_gaps_and_read_only_ones_are_told_apart():
    env = Counter()
    twice = Buffers.allocate(env.single_observation_space, env.single_action_space, 2 * env.num_agents)
    with pytest.raises(ValueError, match="must be a writable, C-contiguous array; got one with gaps between its rows"):
        env.set_buffers(twice[::2])
    fixed = twice[: env.num_agents]
    fixed.rewards.setflags(write=False)
    with pytest.raises(ValueError, match=r"rewards of Counter must be .*; got a read-only one"):
        env.set_buffers(fixed)


def test_a_copy_of_an_env_writes_to_rows_of_its_own():
    env = Counter()
    env.reset()
    twin = pickle.loads(pickle.dumps(env))
    twin.observations[:] = 5

    assert twin.buffers.observations is twin.observations
    assert not (env.observations == 5).any()


def test_joint_spaces_are_made_on_demand():
    assert isinstance(PufferEnv.__dict__["observation_space"], functools.cached_property)
    assert "observation_space" not in vars(Counter())
