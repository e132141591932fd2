"""Vector envs in the forms of other libraries."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

import puffer_vector
from puffer_spaces import PufferEnv
from puffer_vector.adapters import SAME_STEP

NESTED = spaces.Dict({"place": spaces.Box(-1, 1, (2,), np.float32), "key": spaces.Discrete(3)})
MOVES = spaces.Dict({"turn": spaces.Discrete(3), "jump": spaces.MultiBinary(2)})


class Short(PufferEnv):
    """Nested spaces in the short form; it ends after three steps with the last action in its observation."""

    def __init__(self, buf=None):
        super().__init__(buf)
        self.observation_space, self.action_space = NESTED, MOVES

    def reset(self, seed=None):
        self.count = 0
        return {"place": np.zeros(2, np.float32), "key": 0}

    def step(self, action):
        self.count += 1
        place = np.array([self.count / 10, sum(action["jump"]) / 10], np.float32)
        return {"place": place, "key": int(action["turn"])}, 1.0, False, self.count == 3, {"count": self.count}


class Team(PufferEnv):
    """Three agents, of which agent 1 leaves at step 2; the episode ends at step 4."""

    rebinds_buffers = True
    has_final_observations = True

    def __init__(self, buf=None):
        self.single_observation_space = spaces.Box(-9, 99, (1,), np.float32)
        self.single_action_space = spaces.Discrete(3)
        self.num_agents = 3
        super().__init__(buf)

    def reset(self, seed=None):
        self.count = 0
        self.observations[:, 0] = [0, 10, 20]
        self.masks[:] = True
        return self.observations, []

    def step(self, actions):
        self.count += 1
        self.rewards[:] = actions
        self.observations[:, 0] += 1
        infos = [{}, {}, {"last": int(actions[2])}]
        if self.count == 2:
            self.terminals[1] = True
            self.final_observations[1] = self.observations[1]
            self.masks[1] = False
        if self.count >= 2:
            self.observations[1] = 0
        if self.count == 4:
            self.truncations[[0, 2]] = True
            self.final_observations[:] = self.observations
            self.reset()
        return self.observations, self.rewards, self.terminals, self.truncations, infos


def test_a_gymnasium_vector_env_keeps_nested_spaces_and_final_observations():
    with puffer_vector.make(lambda buf=None: Short(buf), 3) as vector:
        env = puffer_vector.as_gymnasium(vector)
        assert isinstance(env, GymnasiumVectorEnv)
        assert env.metadata["autoreset_mode"] is SAME_STEP
        assert env.single_observation_space == NESTED
        observations, infos = env.reset(seed=1)
        assert env.observation_space.contains(observations)
        assert infos == {}
        env.action_space.seed(0)
        for step in range(1, 7):
            action = env.action_space.sample()
            observations, rewards, terminations, truncations, infos = env.step(action)
            assert env.observation_space.contains(observations)
            assert rewards.tolist() == [1, 1, 1]
            assert not terminations.any()
            assert truncations.all() == (step % 3 == 0)
            assert infos["count"].tolist() == [(step - 1) % 3 + 1] * 3
            assert ("final_obs" in infos) == bool(truncations.all())
            assert infos.get("_final_obs", truncations).tolist() == truncations.tolist()
            assert ("final_info" in infos) == bool(truncations.all())
        assert infos["final_obs"][1]["key"] == action["turn"][1]
        assert infos["final_info"]["count"].tolist() == [3, 3, 3]
        assert observations["key"].tolist() == [0, 0, 0]
        with pytest.raises(ValueError, match="seed must be one int"):
            env.reset(seed=[1, 2, 3])
        env.close()
        assert vector.is_closed


@pytest.mark.skipif(SAME_STEP == "SameStep", reason="the wrappers of Gymnasium 1.0 know no such mode")
def test_gymnasium_wrappers_work_on_it(envs):
    from gymnasium.wrappers.vector import RecordEpisodeStatistics

    with puffer_vector.make(envs.Walk, 4) as vector:
        env = RecordEpisodeStatistics(puffer_vector.as_gymnasium(vector))
        env.reset(seed=0)
        returns = []
        for _ in range(60):
            infos = env.step(env.action_space.sample())[4]
            if "episode" in infos:
                returns += infos["episode"]["r"][infos["_episode"]].tolist()
        records = vector.episodes()

    assert np.allclose(sorted(returns), sorted(records["episode_return"]), atol=1e-4)


def test_arrays_of_the_gymnasium_form_are_the_callers_own(envs):
    with puffer_vector.make(lambda buf=None: envs.Counter(buf=buf), 2) as vector:
        env = puffer_vector.as_gymnasium(vector)
        first, _ = env.reset()
        second = env.step(np.array([1, 2]))[0]

    assert first[:, 1].tolist() == [0, 0]
    assert second[:, 1].tolist() == [1, 1]


def test_dicts_by_agent_follow_the_masks():
    with puffer_vector.make(lambda buf=None: Team(buf), 2) as vector:
        view = puffer_vector.as_dicts(vector)
        observations, infos = view.reset(seed=0)
        assert list(observations[1]) == ["agent_0", "agent_1", "agent_2"]
        assert view.observation_space("agent_0") == vector.single_observation_space
        seen = []
        for _ in range(4):
            actions = [{name: int(name[-1]) for name in names} for names in view.agents]
            observations, rewards, terminations, truncations, infos = view.step(actions)
            seen.append([list(part[0].values()) for part in (rewards, terminations, truncations)])
            assert infos[1]["agent_2"] == {"last": 2}
            assert len(observations[0]) == len(seen[-1][0])
            if len(seen) == 2:
                assert observations[0]["agent_1"].tolist() == [12]
                assert view.agents == [["agent_0", "agent_2"]] * 2
                with pytest.raises(ValueError, match=r"world 0 must get actions for \['agent_0', 'agent_2'\]"):
                    view.step(actions)
        view.close()

    assert seen[0] == [[0, 1, 2], [False] * 3, [False] * 3]
    assert seen[1] == [[0, 1, 2], [False, True, False], [False] * 3]
    assert seen[2] == [[0, 2], [False] * 2, [False] * 2]
    assert seen[3] == [[0, 0, 2], [False] * 3, [True, False, True]]


def test_an_asynchronous_env_has_no_such_forms(envs):
    with puffer_vector.make(envs.Walk, 4, batch_size=2) as vector:
        for adapter in (puffer_vector.as_gymnasium, puffer_vector.as_dicts, puffer_vector.as_sb3):
            with pytest.raises(ValueError, match="needs every env in each batch"):
                adapter(vector)


def test_sb3_gets_terminal_observations_and_episodes(envs):
    pytest.importorskip("stable_baselines3")
    with puffer_vector.make(lambda buf=None: Short(buf), 2) as vector:
        env = puffer_vector.as_sb3(vector)
        env.seed(3)
        assert env.reset()["key"].tolist() == [0, 0]
        actions = {"turn": np.array([1, 2]), "jump": np.ones((2, 2), np.int8)}
        for _ in range(3):
            observations, rewards, dones, infos = env.step(actions)
        assert dones.tolist() == [True, True]
        assert infos[1]["terminal_observation"]["key"] == 2
        assert infos[1]["TimeLimit.truncated"]
        assert infos[0]["episode"] == {"r": 3.0, "l": 3}
        assert observations["key"].tolist() == [0, 0]
        assert rewards.tolist() == [1, 1]
        assert env.get_attr("render_mode") == [None, None]
        env.close()


def test_without_sb3_the_install_line_is_named(envs, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env.base_vec_env", None)
    monkeypatch.delitem(sys.modules, "puffer_vector.sb3", raising=False)
    with (
        puffer_vector.make(envs.Walk, 2) as vector,
        pytest.raises(ImportError, match="pip install stable-baselines3"),
    ):
        puffer_vector.as_sb3(vector)
