"""What a multi-agent environment must look like once it is a PufferEnv."""

import copy

import numpy as np
import pytest
from gymnasium import spaces

from puffer_emulate import PettingZooPufferEnv, creator_of, emulate
from puffer_spaces import as_puffer_env, check_env, world_seed


class Scripted:
    """A parallel env whose agents are present as a script says; observations are (agent's number, step)."""

    metadata = {"name": "scripted"}  # noqa: RUF012
    render_mode = None

    def __init__(self, agents="abc", script=None, length=100, ends=None, shuffle=False, low=0):
        self.possible_agents = list(agents)
        self.script = script
        self.length = length
        self.ends = ends or {}
        self.shuffle = np.random.default_rng(0) if shuffle else None
        self.low = low
        self.received = []
        self.resets = []
        self.buffers = {agent: np.zeros(2, np.float32) for agent in self.possible_agents}
        self.agents = []

    def observation_space(self, agent):
        return spaces.Box(-1, 1000, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(20, start=self.low)

    def reset(self, seed=None, options=None):
        self.resets.append((seed, options))
        self.step_count = 0
        self.dead = set()
        self.agents = self.present()
        return self.ordered(self.agents, self.observe), {agent: {"id": agent, "seed": seed} for agent in self.agents}

    def observe(self, agent):
        self.buffers[agent][:] = (self.possible_agents.index(agent), self.step_count)
        return self.buffers[agent]

    def present(self):
        agents = self.possible_agents if self.script is None else self.script(self.step_count)
        return [agent for agent in agents if agent not in self.dead]

    def ordered(self, agents, value_of):
        agents = list(agents)
        if self.shuffle is not None:
            self.shuffle.shuffle(agents)
        return {agent: value_of(agent) for agent in agents}

    def step(self, actions):
        assert set(actions) == set(self.agents), (actions, self.agents)
        self.received.append(dict(actions))
        self.step_count += 1
        ended = {agent for agent in self.agents if self.ends.get(agent) == self.step_count}
        cut = set(self.agents) if self.step_count == self.length else set()
        self.dead |= ended
        present = self.present()
        seen = [*present, *ended]
        result = (
            self.ordered(seen, self.observe),
            self.ordered(seen, lambda agent: 1.0),
            self.ordered(seen, lambda agent: agent in ended),
            self.ordered(seen, lambda agent: agent in cut),
            self.ordered(seen, lambda agent: {"score": 5.0} if agent in ended else {}),
        )
        self.agents = [] if cut else present
        return result

    def close(self): ...


def errors(env):
    return [finding for finding in check_env(env) if finding.severity == "error"]


def zeros(env):
    return np.zeros_like(env.actions)


def test_rows_belong_to_agents_whatever_the_order_of_the_dicts():
    env = emulate(lambda: Scripted(shuffle=True), 2)
    observations, _ = env.reset(seed=0)
    for step in range(20):
        assert observations[:, 0].tolist() == [0, 1, 2, 0, 1, 2]
        assert observations[:, 1].tolist() == [step] * 6
        observations, rewards, *_ = env.step(np.array([10, 11, 12, 13, 14, 15]))
        assert rewards.tolist() == [1] * 6

    assert env.envs[0].received[-1] == {"a": 10, "b": 11, "c": 12}
    assert env.envs[1].received[-1] == {"a": 13, "b": 14, "c": 15}


def test_a_plain_box_keeps_its_dtype_and_shape():
    class Wide(Scripted):
        def observation_space(self, agent):
            return spaces.Box(0, 1, (1014,), np.float32)

        def observe(self, agent):
            return np.full(1014, 0.25, np.float32)

    env = emulate(lambda: Wide("ab"))
    observations, _ = env.reset(seed=0)

    assert observations.shape == (2, 1014)
    assert observations.dtype == np.float32
    assert (observations == 0.25).all()


def test_agents_that_end_at_different_times():
    env = emulate(lambda: Scripted("abcd", ends={"a": 2, "b": 2, "c": 4, "d": 4}))
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


def test_agents_that_come_leave_and_return():
    def script(step):
        return ["a", *(["b"] if step >= 5 else []), *([] if 7 <= step < 9 else ["c"])]

    env = emulate(lambda: Scripted(script=script))
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


def test_a_returned_agent_starts_an_episode_of_its_own():
    env = emulate(lambda: Scripted("ab", script=lambda step: ["a"] if step == 3 else ["a", "b"], length=6))
    env.reset(seed=0)
    for _ in range(6):
        env.step(zeros(env))

    records = env.episodes()
    assert records[["agent", "episode_length"]].tolist() == [(1, 3), (0, 6), (1, 2)]


def test_a_world_cut_by_a_limit_starts_anew_in_the_same_step():
    env = emulate(lambda: Scripted(length=3), 2)
    env.reset(seed=0)
    for _ in range(3):
        observations, _, terminals, truncations, _ = env.step(zeros(env))

    assert truncations.all()
    assert not terminals.any()
    assert env.masks.all()
    assert (observations[:, 1] == 0).all()
    assert (env.final_observations[:, 1] == 3).all()
    assert not env.step(zeros(env))[3].any()


def test_infos_seeds_and_options_arrive():
    env = emulate(Scripted, 2)
    _, infos = env.reset(seed=3, first_world=4, options={"level": 1})

    assert [made.resets for made in env.envs] == [[(world_seed(3, 4 + world), {"level": 1})] for world in range(2)]
    assert [(info["id"], info["agent_index"]) for info in infos] == [
        (agent, index) for index, agent in enumerate("abcabc")
    ]


def test_infos_that_belong_to_no_agent_are_not_lost():
    class Common(Scripted):
        def step(self, actions):
            result = super().step(actions)
            return (*result[:4], {"all": {"weather": 3}})

    env = emulate(Common)
    env.reset(seed=0)

    assert env.step(zeros(env))[4] == [{"all": {"weather": 3}, "agent_index": 0}]


def test_an_agent_that_stays_listed_after_its_end_is_not_stepped():
    class Listed(Scripted):
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


def test_rows_and_masks_survive_new_buffers():
    env = emulate(lambda: Scripted(ends={"b": 1}))
    env.reset(seed=0)
    env.step(zeros(env))
    env.set_buffers(type(env.buffers).allocate(env.single_observation_space, env.single_action_space, 3))

    assert env.masks.tolist() == [True, False, True]
    assert env.step(zeros(env))[1].tolist() == [1, 0, 1]


def test_agents_with_other_spaces_are_refused_by_name():
    class Different(Scripted):
        def observation_space(self, agent):
            return spaces.Box(0, 1, (3 if agent == "a" else 5,))

    with pytest.raises(
        TypeError, match=r"all agents of scripted must have one observation_space; got .*\(3,\).*'a'.*'b'"
    ):
        emulate(Different)


def test_bad_results_name_the_world_and_the_agent():
    class Short(Scripted):
        def step(self, actions):
            return {}, {}, {}, {}

    class Misshapen(Scripted):
        def observe(self, agent):
            return np.zeros(3 if agent == "b" and self.step_count else 2, np.float32)

    class Vanished(Scripted):
        def reset(self, seed=None, options=None):
            return {}, {}

    def first_step(kind):
        env = emulate(kind)
        env.reset(seed=0)
        env.step(zeros(env))

    with pytest.raises(TypeError, match=r"step of scripted must return five dicts .* got a tuple of 4"):
        first_step(Short)
    with pytest.raises(ValueError, match=r"observation of scripted, world 0, agent 'b': .*shape \(2,\)"):
        first_step(Misshapen)
    with pytest.raises(ValueError, match=r"reset of scripted must leave an agent in the world"):
        first_step(Vanished)


def test_an_object_is_one_world_and_a_creator_many():
    assert emulate(Scripted()).num_agents == 3
    assert creator_of(Scripted)(num_envs=2).num_agents == 6
    assert isinstance(as_puffer_env(Scripted()), PettingZooPufferEnv)
    for call in (lambda: emulate(Scripted(), 2), lambda: creator_of(Scripted())):
        with pytest.raises(ValueError, match="an env object can be one world"):
            call()


def test_a_snapshot_holds_the_agents_that_are_there():
    def create():
        return Scripted(ends={"b": 3}, length=9)

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


def test_the_contract_holds_for_agents_that_die():
    assert errors(emulate(lambda: Scripted(ends={"b": 4}, length=9), 2)) == []


class Nim:
    """An AEC game: take 1 or 2 of 5; who takes the last wins. One buffer for all observations."""

    metadata = {"name": "nim"}  # noqa: RUF012
    render_mode = None
    possible_agents = ["first", "second"]  # noqa: RUF012

    def __init__(self):
        self.buffer = np.zeros(2, np.int8)
        self.moves = []

    def observation_space(self, agent):
        return spaces.Dict(observation=spaces.Box(0, 5, (2,), np.int8), action_mask=spaces.Box(0, 1, (2,), np.int8))

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.left = 5
        self.agents = list(self.possible_agents)
        self.agent_selection = "first"
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.infos = {agent: {} for agent in self.agents}

    def observe(self, agent):
        self.buffer[:] = (self.left, self.possible_agents.index(agent))
        return {"observation": self.buffer, "action_mask": np.array([1, self.left > 1], np.int8)}

    def agent_iter(self): ...

    def last(self): ...

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            assert action is None
            self.agents.remove(agent)
            for values in (self.terminations, self.truncations, self.rewards, self._cumulative_rewards, self.infos):
                del values[agent]
            self.agent_selection = self.agents[0] if self.agents else None
            return
        self.moves.append((agent, int(action)))
        self._cumulative_rewards[agent] = 0
        other = next(name for name in self.agents if name != agent)
        self.left -= int(action) + 1
        self.rewards = dict.fromkeys(self.agents, 0)
        if self.left == 0:
            self.rewards = {agent: 1, other: -1}
            self.terminations = dict.fromkeys(self.agents, True)
        for name, reward in self.rewards.items():
            self._cumulative_rewards[name] += reward
        self.agent_selection = other

    def close(self): ...


def test_turns_are_taken_one_a_step_and_both_players_learn_the_end():
    env = emulate(Nim)
    observations, _ = env.reset(seed=0)
    assert env.single_observation_space == spaces.Box(0, 5, (2,), np.int8)
    assert observations.tolist() == [[5, 0], [5, 1]]
    assert env.action_mask.tolist() == [[True, True], [True, False]]

    env.step(np.array([1, 0]))
    assert env.observations.tolist() == [[3, 0], [3, 1]]
    assert env.action_mask.tolist() == [[True, False], [True, True]]
    assert env.masks.all()

    env.step(np.array([0, 1]))
    assert env.action_mask.tolist() == [[True, False], [True, False]]
    _, rewards, terminals, _, _ = env.step(np.array([0, 0]))

    assert env.env.moves == [("first", 1), ("second", 1), ("first", 0)]
    assert rewards.tolist() == [1, -1]
    assert terminals.all()
    assert env.final_observations.tolist() == [[0, 0], [0, 1]]
    assert env.observations.tolist() == [[5, 0], [5, 1]]
    assert env.masks.all()
    assert env.episodes()["episode_return"].tolist() == [1, -1]


def test_the_contract_holds_for_turns():
    assert errors(emulate(Nim, 2)) == []


def test_real_environments_keep_the_contract():
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


class Returns(Scripted):
    """Steps as a function of the right result says."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def step(self, actions):
        return self.change(self, *super().step(actions))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda env, o, *rest: (None, *rest), TypeError, "must return five dicts"),
        (lambda env, o, *rest: (np.zeros((3, 2)), *rest), TypeError, "must return five dicts"),
        (lambda env, o, r, *rest: (o, [1.0] * 3, *rest), TypeError, "must return five dicts"),
        (lambda env, o, r, te, tr, i: (o, r, False, False, i), TypeError, "must return five dicts"),
        (lambda env, o, r, te, tr, i: (o, r, te, tr, None), TypeError, "must return five dicts"),
        (lambda env, *values: delattr(env, "agents") or values, TypeError, "must return five dicts .* keep env.agents"),
        (lambda env, o, r, te, tr, i: (o, r, {"a": np.ones(2)}, tr, i), ValueError, "termination of .* agent 'a'"),
        (lambda env, o, r, te, tr, i: (o, r, te, {"b": np.nan}, i), ValueError, "truncation of .* agent 'b'.* got nan"),
        (lambda env, o, r, te, tr, i: (o, r, te, tr, {"b": [1]}), TypeError, "info of .* agent 'b'.* must be a dict"),
        (lambda env, o, *rest: ({**o, "c": None}, *rest), TypeError, "agent 'c': the value must hold numbers"),
    ],
)
def test_what_a_step_may_not_return_is_named(change, error, words):
    env = emulate(lambda: Returns(change))
    env.reset()

    with pytest.raises(error, match=words):
        env.step([0, 0, 0])


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        ((None, {}), TypeError, "reset of scripted must return a dict of observations by agent"),
        ((np.zeros((3, 2)), {}), TypeError, "reset of scripted must return a dict of observations by agent"),
        (({}, {}), ValueError, "reset of scripted must leave an agent in the world"),
    ],
)
def test_what_a_reset_may_not_return_is_named(result, error, words):
    class Empty(Scripted):
        def reset(self, seed=None, options=None):
            return result

    with pytest.raises(error, match=words):
        emulate(Empty).reset()


@pytest.mark.parametrize("agents", [[], ["a", "a"], None])
def test_possible_agents_are_named_once(agents):
    class Named(Scripted):
        def __init__(self):
            super().__init__()
            self.possible_agents = agents

    with pytest.raises(TypeError, match=r"possible_agents of scripted must name every agent that may come, once; got"):
        PettingZooPufferEnv(Named)


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (np.zeros(2), "it must be a dict with 'action_mask'.* got ndarray"),
        ({"observation": np.zeros(2)}, r"it must be a dict with 'action_mask'.* got keys \['observation'\]"),
        ({"action_mask": [1, 1, 1]}, r"it must be a dict with 'action_mask'.* got keys \['action_mask'\]"),
        ({"observation": np.zeros(2), "action_mask": [1, 1]}, r"action_mask must be 3 numbers.* got \[1, 1\]"),
        ({"observation": np.zeros(2), "action_mask": None}, "action_mask must be 3 numbers"),
        ({"observation": np.zeros(2), "action_mask": [np.nan, 1, 1]}, "action_mask must be 3 numbers"),
    ],
)
def test_action_masks_that_do_not_fit_are_refused(observation, words):
    class Masked(Scripted):
        def observation_space(self, agent):
            space = {"observation": spaces.Box(-1, 1, (2,)), "action_mask": spaces.Box(0, 1, (3,), np.int8)}
            return spaces.Dict(space)

        def action_space(self, agent):
            return spaces.Discrete(3)

        def observe(self, agent):
            return observation

    with pytest.raises((TypeError, ValueError), match=rf"observation of scripted, world 0, agent 'a': {words}"):
        emulate(Masked).reset()


def test_a_copy_of_an_env_steps_agents_and_rows_of_its_own():
    env = PettingZooPufferEnv(Scripted, num_envs=2)
    env.reset(seed=1)
    twin = copy.deepcopy(env)
    twin.step([0] * 6)

    assert twin.observations[:, 1].tolist() == [1] * 6
    assert env.observations[:, 1].tolist() == [0] * 6
    assert [len(world.received) for world in (*twin.envs, *env.envs)] == [1, 1, 0, 0]
