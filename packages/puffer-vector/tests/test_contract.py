"""What every backend promises beside equal results."""

import numpy as np
import pytest
from gymnasium import spaces

import puffer_vector
from puffer_spaces import PufferEnv, episode_dtype

BACKENDS = [("serial", None), ("threads", 2), ("processes", 2)]


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend[0])
def make(request):
    backend, workers = request.param

    def make_vector(env, num_envs, **kwargs):
        return puffer_vector.make(env, num_envs, backend, workers, **kwargs)

    return make_vector


def test_a_vector_env_knows_its_sizes_and_spaces(make, envs):
    with make(envs.Walk, 4, agents=3) as vector:
        assert (vector.num_envs, vector.batch_size, vector.num_agents, vector.agents_per_batch) == (4, 4, 12, 12)
        assert vector.single_action_space == spaces.MultiDiscrete([3, 4])
        assert vector.action_space.shape == (12, 2)
        assert vector.observation_space.shape == (12, 2)
        assert vector.original_observation_space == vector.single_observation_space
        assert vector.observation_layout.row_space == vector.single_observation_space
        assert vector.episode_extras == ("farthest",)
        assert vector.has_final_observations
        assert vector.has_state
        assert vector.action_mask is None
        assert vector.env_name == "Walk"
        assert vector.driver_env.single_observation_space == vector.single_observation_space
        assert not vector.emulated
        assert "Walk" in repr(vector)


def test_single_spaces_can_be_asked_for(make, envs):
    with make(envs.Walk, 2, joint_spaces=False) as vector:
        assert vector.observation_space == vector.single_observation_space
        assert vector.action_space == vector.single_action_space


def test_the_joint_action_space_is_seeded_and_differs_by_row(envs):
    with puffer_vector.make(envs.Walk, 8) as vector:
        vector.action_space.seed(7)
        first = [vector.action_space.sample() for _ in range(20)]
        vector.action_space.seed(7)
        second = [vector.action_space.sample() for _ in range(20)]

    assert np.array_equal(first, second)
    assert not np.array_equal(np.array(first)[:, 0], np.array(first)[:, 1])


def test_returned_arrays_are_the_same_views_each_time(make, envs):
    with make(lambda buf=None: envs.Counter(buf=buf), 2) as vector:
        observations, _ = vector.reset(seed=0)
        actions = np.array([5, 6])
        first = vector.step(actions)
        second = vector.step(actions)

        assert all(a is b for a, b in zip(first[:4], second[:4], strict=True))
        assert second[0] is observations
        assert observations[:, 1].tolist() == [2, 2]


def test_copies_stay_as_they_were(make, envs):
    with make(lambda buf=None: envs.Counter(buf=buf), 2, copy=True) as vector:
        kept = [vector.reset(seed=0)[0]]
        kept += [vector.step(np.array([5, 6]))[0] for _ in range(3)]

    assert [observations[:, 1].tolist() for observations in kept] == [[0, 0], [1, 1], [2, 2], [3, 3]]


def test_rows_do_not_overlap(make, envs):
    creators = [lambda number=number, buf=None: envs.Counter(number, agents=3, buf=buf) for number in range(4)]
    with make(creators, 4) as vector:
        observations, _ = vector.reset(seed=0)

        assert observations[:, 0].tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3


def test_worlds_with_fewer_agents_are_padded_and_masked(make, envs):
    creators = [lambda n=n, buf=None: envs.Counter(n, agents=n, buf=buf) for n in (1, 3, 2, 3)]
    with make(creators, 4) as vector:
        vector.async_reset(0)
        observations, *_, agent_ids, masks = vector.recv()

        assert agent_ids.tolist() == list(range(12))
        assert masks.tolist() == [True, False, False, True, True, True, True, True, False, True, True, True]
        assert observations[:, 0].tolist() == [1, 0, 0, 3, 3, 3, 2, 2, 0, 3, 3, 3]


def test_episode_records_have_global_worlds_and_the_fields_of_all_envs(make, envs):
    with make(envs.Walk, 4, agents=2) as vector:
        vector.reset(seed=0)
        for _ in range(30):
            vector.step(np.ones((8, 2), np.int32))
        records = vector.episodes()

        assert records.dtype == episode_dtype(("farthest",))
        assert len(records) > 4
        assert set(records["world"]) == {0, 1, 2, 3}
        order = np.lexsort((records["agent"], records["world"], records["step"]))
        assert (order == np.arange(len(records))).all()
        assert len(vector.episodes()) == 0


def test_every_episode_of_a_fixed_length_is_logged_with_it(make, envs):
    class Three(envs.Walk):
        def step(self, actions):
            self.num_steps += 1
            self.rewards[:] = 1
            if self.num_steps % 3 == 0:
                self.terminals[:] = True
                self.records.append(self.num_steps, 0, 0, 3.0, 3, None, np.nan, 0.0)
            return self.observations, self.rewards, self.terminals, self.truncations, []

    with make(lambda buf=None: Three(buf=buf), 2) as vector:
        vector.reset(seed=0)
        flags = [vector.step(np.ones((2, 2), int))[2].copy() for _ in range(15)]
        records = vector.episodes()

    assert [flag.tolist() for flag in flags] == [[t % 3 == 0] * 2 for t in range(1, 16)]
    assert len(records) == 10
    assert (records["episode_length"] == 3).all()
    assert (records["episode_return"] == 3).all()


def test_first_worlds_of_several_vector_envs_are_one_numbering(make, envs):
    with make(envs.Walk, 4) as whole, make(envs.Walk, 2, first_world=2) as half:
        expected = whole.reset(seed=3)[0][2:].copy()
        found = half.reset(seed=3)[0]

        assert np.array_equal(found, expected)
        for _ in range(20):
            half.step(np.ones((2, 2), int))
        assert half.world_ids.tolist() == [2, 3]
        assert set(half.episodes()["world"]) <= {2, 3}


def test_options_reach_every_env_once(make, envs):
    with make(envs.Walk, 4) as vector:
        _, infos = vector.reset(seed=0, options={"level": 3})

        assert [info["options"] for info in infos] == [{"level": 3}] * 4
        assert [info["agent_index"] for info in infos] == [0, 1, 2, 3]


def test_infos_are_kept_from_an_env_that_goes_on_writing_them(make, envs):
    class Reusing(envs.Counter):
        def step(self, actions):
            result = super().step(actions)
            self.info = getattr(self, "info", {"seen": np.zeros(1), "nested": {}})
            self.info["seen"][0] = self.info["nested"]["count"] = self.count
            return (*result[:4], [self.info])

    with make(lambda buf=None: Reusing(buf=buf), 2) as vector:
        vector.reset(seed=0)
        kept = [vector.step(np.zeros(2, int))[4] for _ in range(3)]

    assert [[info["seen"][0] for info in infos] for infos in kept] == [[1, 1], [2, 2], [3, 3]]
    assert [infos[1]["nested"] for infos in kept] == [{"count": 1}, {"count": 2}, {"count": 3}]
    assert [info["agent_index"] for info in kept[0]] == [0, 1]


class Short(PufferEnv):
    """The short form, all of it in the same array and the same info each time; it ends after three steps."""

    def __init__(self, fails_at_reset=None, buf=None):
        super().__init__(buf)
        self.observation_space = self.make_space(spaces.Box(0, 9, (1,), np.float32))
        self.action_space = self.make_discrete(2)
        self.seen, self.info, self.num_resets, self.fails_at_reset = np.zeros(1, np.float32), {}, 0, fails_at_reset

    def reset(self, seed=None):
        self.num_resets += 1
        if self.num_resets == self.fails_at_reset:
            raise LookupError("boom in a later reset")
        self.seen[0] = self.info["score"] = 0
        return self.seen, self.info

    def step(self, action):
        self.seen[0] += 3
        self.info["score"] = float(self.seen[0]) - 2
        return self.seen, np.ones(1), self.seen[0] == 9, self.info


def test_the_last_observation_and_info_of_an_episode_survive_the_next_reset(make):
    with make(lambda buf=None: Short(buf=buf), 2) as vector:
        vector.reset(seed=0)
        for _ in range(5):
            for last in (False, False, True):
                observations, rewards, terminals, truncations, infos = vector.step(np.zeros(2, int))
                assert (rewards.tolist(), terminals.tolist(), truncations.any()) == ([1, 1], [last, last], False)
            assert observations.tolist() == [[0], [0]]
            assert vector.final_observations.tolist() == [[9], [9]]
            assert [info["score"] for info in infos if "score" in info] == [7, 7]
        records = vector.episodes()

    assert [tuple(record) for record in records[["episode_return", "episode_length", "score"]]] == [(3, 3, 7)] * 10


def test_an_exception_in_the_reset_between_two_episodes_is_one_of_the_step_that_ended_the_first(make):
    creators = [lambda buf=None, last=last: Short(last, buf) for last in (None, None, None, 2)]
    with make(creators, 4) as vector:
        vector.reset(seed=0)
        for _ in range(2):
            vector.step(np.zeros(4, int))
        with pytest.raises(puffer_vector.WorkerError, match="LookupError: boom in a later reset") as caught:
            vector.step(np.zeros(4, int))

    assert (caught.value.world, caught.value.step) == (3, 3)
    assert "in reset" in caught.value.remote_traceback


def test_parameters_apply_at_the_next_reset(make, envs):
    with make(envs.Walk, 4) as vector:
        vector.reset(seed=0)
        vector.set_parameters(level=7)
        assert (vector.reset()[0][:, 1] == 7).all()
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            vector.set_parameters(colour=1)
        vector.step(np.ones((4, 2), int))


def test_a_world_is_rendered_where_it_lives(make, envs):
    with make(
        lambda level, buf=None: envs.Walk(level=level, buf=buf), 4, env_kwargs=[{"level": n} for n in range(4)]
    ) as v:
        v.reset(seed=0)
        assert [int(v.render(world)[0, 0, 0]) for world in range(4)] == [0, 1, 2, 3]
        with pytest.raises(ValueError, match=r"world must be in \[0, 4\)"):
            v.render(4)


def test_a_reset_without_a_seed_goes_on_with_the_sequence(make, envs):
    with make(envs.Walk, 2) as vector:
        first = vector.reset(seed=0)[0].copy()
        second = vector.reset()[0].copy()
        again = vector.reset(seed=0)[0].copy()

    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)


def test_copies_without_a_seed_go_ways_of_their_own(make, envs):
    with make(lambda buf=None: envs.Walk(buf=buf), 4) as vector:
        starts = vector.reset()[0][:, 0].copy()
        vector.step(np.ones((4, 2), int))

    assert len(set(starts.tolist())) == 4


def test_the_seed_of_make_is_that_of_the_first_reset(make, envs):
    with make(envs.Walk, 2, seed=4) as vector:
        first = vector.reset()[0].copy()
        assert np.array_equal(vector.reset(seed=4)[0], first)


def test_a_snapshot_is_exact_whatever_waits(make, envs):
    def steps(vector, count):
        seen = []
        for _ in range(count):
            observations, rewards, *_ = vector.recv()
            seen.append((observations.copy(), rewards.copy()))
            vector.send(np.ones((vector.agents_per_batch, 2), int))
        return seen

    with make(envs.Walk, 4, batch_size=2, agents=2) as vector, make(envs.Walk, 4, batch_size=2, agents=2) as other:
        vector.async_reset(1)
        steps(vector, 7)
        state = vector.get_state()
        expected = steps(vector, 9)
        records = vector.episodes()
        other.set_state(state)
        found = steps(other, 9)

        for mine, its in zip(expected, found, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(mine, its, strict=True))
        assert other.episodes().tobytes() == records.tobytes()
        vector.set_state(state)
        assert np.array_equal(steps(vector, 9)[-1][0], expected[-1][0])


def test_a_snapshot_of_another_env_is_refused(make, envs):
    with make(envs.Walk, 4) as vector, make(envs.Walk, 2) as other:
        vector.reset(seed=0)
        with pytest.raises(ValueError, match="same envs and sizes"):
            other.set_state(vector.get_state())
        with pytest.raises(ValueError, match="must be what get_state returned"):
            vector.set_state(b"nothing")


def test_an_env_without_snapshots_says_so(make, envs):
    with make(envs.Counter, 2) as vector:
        vector.reset(seed=0)
        assert not vector.has_state
        with pytest.raises(NotImplementedError, match="Define get_state"):
            vector.get_state()
        vector.step(np.zeros(2, int))


def test_shared_and_unfit_envs_are_refused(make, envs):
    shared = envs.Counter()
    with pytest.raises(ValueError, match="must be a creator for more than one env"):
        make(shared, 4)

    class Wide(envs.Counter):
        def __init__(self, buf=None):
            self.single_observation_space = spaces.Box(-1, 1, (9,))
            self.single_action_space = spaces.Discrete(2)
            self.num_agents = 1
            PufferEnv.__init__(self, buf)

    with pytest.raises(ValueError, match="same single_observation_space"):
        make([envs.Counter, Wide], 2)


def test_a_creator_that_hands_out_one_object_is_refused(envs):
    shared = envs.Counter()
    for backend in ("serial", "threads"):
        with pytest.raises(ValueError, match="new env each time"):
            puffer_vector.make(lambda: shared, 3, backend)
    with pytest.raises(ValueError, match="must be a creator for more than one env"):
        puffer_vector.make(shared, 3)
    with pytest.raises(ValueError, match="since workers build their own"):
        puffer_vector.make(shared, 1, "processes")


def test_one_env_object_can_be_stepped_as_it_is(envs):
    env = envs.Counter(number=4)
    with puffer_vector.make(env) as vector:
        assert vector.reset(seed=0)[0].tolist() == [[4, 0, -1]]
        assert vector.driver_env is env
        assert np.shares_memory(vector.step(np.array([9]))[0], env.observations)


class Legacy(PufferEnv):
    """A batch in the style of PufferLib 3.0: it takes num_envs and knows only its number of rows."""

    def __init__(self, num_envs=1, buf=None, seed=0):
        self.single_observation_space = spaces.Box(0, 2**31, (1,), np.float64)
        self.single_action_space = spaces.Discrete(2)
        self.num_agents = num_envs
        super().__init__(buf)

    def reset(self, seed=0):
        self.observations[:, 0] = seed
        return self.observations, []

    def step(self, actions):
        self.actions[:] = actions
        return self.observations, self.rewards, self.terminals, self.truncations, [{"mean": 1.0}]


def test_a_batch_env_of_pufferlib_is_made_of_worlds(make):
    from puffer_spaces import world_seed

    def create(num_envs, buf=None, seed=0):
        return Legacy(num_envs, buf, seed)

    workers_of = {"one creator": (create, 4, {}), "objects": (create, 2, {"env_kwargs": {"num_envs": 2}})}
    for env, num_envs, kwargs in workers_of.values():
        with make(env, num_envs, **kwargs) as vector:
            assert (vector.num_envs, vector.num_agents, vector.batch_size) == (4, 4, 4)
            observations, _ = vector.reset(seed=3)
            firsts = {0, 2} if vector.num_workers == 2 or kwargs else {0}
            assert {int(seed) for seed in observations[:, 0]} == {world_seed(3, world) for world in firsts}
            infos = vector.step(np.ones(4, int))[4]
            assert [info["agent_index"] for info in infos] == sorted(firsts)
