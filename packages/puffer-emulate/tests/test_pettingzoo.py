"""What a multi-agent environment must look like once it is a PufferEnv."""

import copy

import numpy as np
import pytest
from gymnasium import spaces

from puffer_emulate import PettingZooPufferEnv, creator_of, emulate
from puffer_spaces import as_puffer_env, world_seed


def test_rows_belong_to_agents_whatever_the_order_of_the_dicts(scripted):
    env = emulate(lambda: scripted(shuffle=True), 2)
    observations, _ = env.reset(seed=0)
    for step in range(20):
        assert observations[:, 0].tolist() == [0, 1, 2, 0, 1, 2]
        assert observations[:, 1].tolist() == [step] * 6
        observations, rewards, *_ = env.step(np.array([10, 11, 12, 13, 14, 15]))
        assert rewards.tolist() == [1] * 6

    assert env.envs[0].received[-1] == {"a": 10, "b": 11, "c": 12}
    assert env.envs[1].received[-1] == {"a": 13, "b": 14, "c": 15}


def test_a_plain_box_keeps_its_dtype_and_shape(scripted):
    class Wide(scripted):
        def observation_space(self, agent):
            return spaces.Box(0, 1, (1014,), np.float32)

        def observe(self, agent):
            return np.full(1014, 0.25, np.float32)

    env = emulate(lambda: Wide("ab"))
    observations, _ = env.reset(seed=0)

    assert observations.shape == (2, 1014)
    assert observations.dtype == np.float32
    assert (observations == 0.25).all()


def test_agents_that_end_at_different_times(scripted, zeros):
    env = emulate(lambda: scripted("abcd", ends={"a": 2, "b": 2, "c": 4, "d": 4}))
    env.reset(seed=0)
    flags, masks, rewards, seen = [], [], [], []
    for _ in range(4):
        observations, reward, terminals, truncations, _ = env.step(zeros(env))
        flags.append(terminals.tolist())
        masks.append(env.masks.tolist())
        rewards.append(reward.tolist())
        seen.append(observations[:, 1].tolist())
        assert not truncations.any()

    assert flags == [[False] * 4, [True, True, False, False], [False] * 4, [False, False, True, True]]
    assert masks == [[True] * 4, [False, False, True, True], [False, False, True, True], [True] * 4]
    assert rewards == [[1] * 4, [1] * 4, [0, 0, 1, 1], [0, 0, 1, 1]]
    assert seen == [[1] * 4, [0, 0, 2, 2], [0, 0, 3, 3], [0] * 4]
    assert env.final_observations[:, 1].tolist() == [2, 2, 4, 4]
    assert [sorted(actions) for actions in env.env.received] == [["a", "b", "c", "d"]] * 2 + [["c", "d"]] * 2
    assert len(env.env.resets) == 2

    records = env.episodes()
    assert records["agent"].tolist() == [0, 1, 2, 3]
    assert records["episode_length"].tolist() == [2, 2, 4, 4]
    assert records["episode_return"].tolist() == [2, 2, 4, 4]
    assert records["score"].tolist() == [5] * 4


def test_agents_that_come_leave_and_return(scripted, zeros):
    def script(step):
        return ["a", *(["b"] if step >= 5 else []), *([] if 7 <= step < 9 else ["c"])]

    env = emulate(lambda: scripted(script=script))
    observations, infos = env.reset(seed=0)
    assert env.masks.tolist() == [True, False, True]
    assert [info["agent_index"] for info in infos] == [0, 2]
    masks, truncations = [], []
    for step in range(1, 11):
        observations, _, terminals, cut, _ = env.step(zeros(env))
        masks.append(env.masks.tolist())
        truncations.append(cut.tolist())
        assert not terminals.any()
        assert observations[:, 1].tolist() == [step * present for present in env.masks]

    assert masks == [[True, step >= 5, not 7 <= step < 9] for step in range(1, 11)]
    assert truncations == [[False, False, step == 7] for step in range(1, 11)]
    assert env.final_observations[2].tolist() == [2, 6]

    (record,) = env.episodes()
    assert (record["agent"], record["episode_length"], record["step"]) == (2, 7, 7)


def test_a_returned_agent_starts_an_episode_of_its_own(scripted, zeros):
    env = emulate(lambda: scripted("ab", script=lambda step: ["a"] if step == 3 else ["a", "b"], length=6))
    env.reset(seed=0)
    for _ in range(6):
        env.step(zeros(env))

    records = env.episodes()
    assert records[["agent", "episode_length"]].tolist() == [(1, 3), (0, 6), (1, 2)]


def test_a_world_cut_by_a_limit_starts_anew_in_the_same_step(scripted, zeros):
    env = emulate(lambda: scripted(length=3), 2)
    env.reset(seed=0)
    for _ in range(3):
        observations, _, terminals, truncations, _ = env.step(zeros(env))

    assert truncations.all()
    assert not terminals.any()
    assert env.masks.all()
    assert (observations[:, 1] == 0).all()
    assert (env.final_observations[:, 1] == 3).all()
    assert not env.step(zeros(env))[3].any()


def test_infos_seeds_and_options_arrive(scripted):
    env = emulate(scripted, 2)
    _, infos = env.reset(seed=3, first_world=4, options={"level": 1})

    assert [made.resets for made in env.envs] == [[(world_seed(3, 4 + world), {"level": 1})] for world in range(2)]
    assert [(info["id"], info["agent_index"]) for info in infos] == [
        (agent, index) for index, agent in enumerate("abcabc")
    ]


def test_infos_that_belong_to_no_agent_are_not_lost(scripted, zeros):
    class Common(scripted):
        def step(self, actions):
            result = super().step(actions)
            return (*result[:4], {"all": {"weather": 3}})

    env = emulate(Common)
    env.reset(seed=0)

    assert env.step(zeros(env))[4] == [{"all": {"weather": 3}, "agent_index": 0}]


def test_an_agent_that_stays_listed_after_its_end_is_not_stepped(scripted, zeros):
    class Listed(scripted):
        def step(self, actions):
            assert not set(actions) & self.dead
            result = super().step(dict.fromkeys(self.agents, 0) | actions)
            self.agents = list(self.possible_agents)
            for agent in self.dead:
                result[2][agent] = True
            return result

    env = emulate(lambda: Listed("ab", ends={"a": 2, "b": 3}))
    env.reset(seed=0)
    flags = [env.step(zeros(env))[2].tolist() for _ in range(3)]

    assert flags == [[False, False], [True, False], [False, True]]
    assert len(env.env.resets) == 2


def test_rows_and_masks_survive_new_buffers(scripted, zeros):
    env = emulate(lambda: scripted(ends={"b": 1}))
    env.reset(seed=0)
    env.step(zeros(env))
    env.set_buffers(type(env.buffers).allocate(env.single_observation_space, env.single_action_space, 3))

    assert env.masks.tolist() == [True, False, True]
    assert env.step(zeros(env))[1].tolist() == [1, 0, 1]


def test_an_object_is_one_world_and_a_creator_many(scripted):
    assert emulate(scripted()).num_agents == 3
    assert creator_of(scripted)(num_envs=2).num_agents == 6
    assert isinstance(as_puffer_env(scripted()), PettingZooPufferEnv)
    for call in (lambda: emulate(scripted(), 2), lambda: creator_of(scripted())):
        with pytest.raises(ValueError, match="an env object can be one world"):
            call()


def test_a_snapshot_holds_the_agents_that_are_there(scripted, zeros):
    def create():
        return scripted(ends={"b": 3}, length=9)

    env = emulate(create, 2)
    env.reset(seed=0)
    for _ in range(4):
        env.step(zeros(env))
    state, observations, masks = env.get_state(), env.observations.copy(), env.masks.copy()

    other = emulate(create, 2)
    other.set_state(state)
    other.observations[...], other.masks[...] = observations, masks
    for _ in range(20):
        for result, expected in zip(other.step(zeros(other))[:4], env.step(zeros(env))[:4], strict=True):
            assert np.array_equal(result, expected)
        assert np.array_equal(other.masks, env.masks)
    assert other.episodes().tobytes() == env.episodes().tobytes()


def test_the_contract_holds_for_agents_that_die(scripted, errors):
    assert errors(emulate(lambda: scripted(ends={"b": 4}, length=9), 2)) == []


def test_real_environments_keep_the_contract(errors):
    pytest.importorskip("pettingzoo")
    rps = pytest.importorskip("pettingzoo.classic.rps.rps")
    tictactoe = pytest.importorskip("pettingzoo.classic.tictactoe.tictactoe")
    assert errors(emulate(lambda: rps.parallel_env(max_cycles=5), 2)) == []

    turns = emulate(tictactoe.env, 3)
    turns.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(200):
        actions = [rng.choice(np.flatnonzero(mask)) for mask in turns.action_mask]
        turns.step(np.array(actions, np.int32))
    records = turns.episodes()
    assert len(records) > 20
    assert set(records["episode_return"]) <= {-1, 0, 1}
    assert records["episode_return"].sum() == 0


def test_a_copy_of_an_env_steps_agents_and_rows_of_its_own(scripted):
    env = PettingZooPufferEnv(scripted, num_envs=2)
    env.reset(seed=1)
    twin = copy.deepcopy(env)
    twin.step([0] * 6)

    assert twin.observations[:, 1].tolist() == [1] * 6
    assert env.observations[:, 1].tolist() == [0] * 6
    assert [len(world.received) for world in (*twin.envs, *env.envs)] == [1, 1, 0, 0]
