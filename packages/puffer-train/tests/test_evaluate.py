import json

import numpy as np
import pytest
import torch

import puffer_vector
from puffer_train.evaluate import evaluate_policy

SHORT, LONG = 2, 20  # lengths of the episodes of test-walk


class Head:
    """Takes action 1 with the probability that is its parameter."""

    num_noise = 1

    def sample(self, parameters, noise, action_mask=None):
        return (noise[:, 0] < parameters[:, 0]).to(torch.int32)

    def mode(self, parameters, action_mask=None):
        return (parameters[:, 0] > 0.5).to(torch.int32)


class Policy(torch.nn.Module):
    """An adapted policy; its memory counts its steps, and each call is written down."""

    is_recurrent = True
    action_head = Head()

    def __init__(self, probability=1.0):
        super().__init__()
        self.probability = probability
        self.calls = []

    def initial_state(self, num_rows, device):
        return (torch.zeros(num_rows, 1, device=device),)

    def forward_eval(self, observations, state):
        assert not self.training
        self.calls.append((observations.clone(), state[0].clone()))
        return torch.full((len(observations), 1), self.probability), torch.zeros(len(observations)), (state[0] + 1,)


def test_short_episodes_are_not_counted_more_often(walk_spec):
    evaluation = evaluate_policy(Policy(), walk_spec, num_episodes=400, num_envs=50)

    lengths = evaluation.episode_lengths
    assert evaluation.num_episodes == 400
    assert set(lengths) == {SHORT, LONG}
    # The first 400 episodes that end would be 10 short ones to one long one.
    assert abs((lengths == LONG).mean() - 0.5) < 4 * 0.5 / np.sqrt(400)


@pytest.mark.parametrize(("num_episodes", "num_envs"), [(1, 1), (5, 2), (3, 8), (8, 8)])
def test_b24_exactly_so_many_episodes_are_counted(walk_spec, num_episodes, num_envs):
    evaluation = evaluate_policy(Policy(), walk_spec, num_episodes=num_episodes, num_envs=num_envs)

    assert evaluation.num_episodes == num_episodes
    assert np.array_equal(evaluation.scores, evaluation.episode_lengths)
    assert np.array_equal(evaluation.episode_returns, evaluation.episode_lengths)


def test_b24_there_are_as_many_worlds_as_episodes(walk_spec):
    evaluate_policy(Policy(), walk_spec, num_episodes=6)

    assert [env.num_envs for env in walk_spec.entry_point.made] == [6]


def test_the_printed_object_has_means_and_standard_deviations(walk_spec):
    evaluation = evaluate_policy(Policy(), walk_spec, num_episodes=6)
    printed = json.loads(json.dumps(evaluation.to_dict()))

    assert list(printed) == ["env", "episodes", "score", "episode_return", "episode_length"]
    assert (printed["env"], printed["episodes"]) == ("test-walk", 6)
    for name, values in (("score", evaluation.scores), ("episode_length", evaluation.episode_lengths)):
        assert printed[name] == {"mean": values.mean(), "std": values.std()}


def test_the_same_seed_gives_the_same_episodes(walk_spec):
    one, other, third = (
        evaluate_policy(Policy(0.5), walk_spec, num_episodes=20, seed=seed).episode_returns for seed in (3, 3, 4)
    )

    assert np.array_equal(one, other)
    assert not np.array_equal(one, third)


def test_deterministic_takes_the_most_probable_action(walk_spec):
    evaluation = evaluate_policy(Policy(0.6), walk_spec, num_episodes=10, deterministic=True)

    assert np.array_equal(evaluation.episode_returns, evaluation.episode_lengths)


def test_b5_memory_flows_through_an_episode_and_is_zero_at_its_start(walk_spec):
    policy = Policy()
    evaluate_policy(policy, walk_spec, num_episodes=40, num_envs=4)

    starts = 0
    for (observations, state), (_, state_before) in zip(policy.calls[1:], policy.calls, strict=False):
        fresh = observations[:, 0] == 0
        starts += int(fresh.sum())
        assert torch.equal(state[:, 0], torch.where(fresh, 0.0, state_before[:, 0] + 1))
    assert starts > 30


def test_the_normalizer_sees_what_the_policy_would(walk_spec):
    policy = Policy()
    evaluate_policy(policy, walk_spec, num_episodes=2, normalizer=lambda observations: observations + 100)

    assert all(bool((observations >= 100).all()) for observations, _ in policy.calls)


def test_a_vector_env_of_the_callers_stays_open(walk_spec):
    with puffer_vector.make(walk_spec, num_envs=4) as vec:
        first = evaluate_policy(Policy(), vec, num_episodes=8)
        second = evaluate_policy(Policy(), vec, num_episodes=8)

        assert not vec.is_closed
    assert np.array_equal(first.scores, second.scores)


def test_the_policy_keeps_its_mode(walk_spec):
    policy = Policy()
    policy.train()
    evaluate_policy(policy, walk_spec, num_episodes=1)

    assert policy.training


def test_episodes_that_do_not_end_end_the_evaluation_with_a_warning(walk_spec):
    with pytest.warns(
        RuntimeWarning, match=r"only \d+ of 8 episodes ended within max_steps=3; long episodes are missing"
    ):
        evaluation = evaluate_policy(Policy(), walk_spec, num_episodes=8, max_steps=3)

    assert 0 < evaluation.num_episodes < 8
    with pytest.raises(RuntimeError, match="an episode must end within max_steps=1; none did"):
        evaluate_policy(Policy(), walk_spec, num_episodes=8, max_steps=1)


def test_progress_is_told(walk_spec):
    told = []
    evaluate_policy(Policy(), walk_spec, num_episodes=8, on_progress=told.append)

    assert told == sorted(set(told))
    assert told[-1] == 8


def test_bad_arguments_are_named(walk_spec):
    with pytest.raises(ValueError, match="num_episodes must be at least 1; got 0"):
        evaluate_policy(Policy(), walk_spec, num_episodes=0)
    with (
        puffer_vector.make(walk_spec, num_envs=4, batch_size=2) as vec,
        pytest.raises(ValueError, match="all worlds in one batch; got batch_size=2, num_envs=4"),
    ):
        evaluate_policy(Policy(), vec)


def test_without_records_the_rewards_are_counted(walk_spec, monkeypatch):
    monkeypatch.setattr(walk_spec.entry_point, "episodes", lambda env: env.records.drain()[:0])
    evaluation = evaluate_policy(Policy(), walk_spec, num_episodes=10)

    assert np.array_equal(evaluation.scores, evaluation.episode_returns)
    assert np.array_equal(evaluation.episode_returns, evaluation.episode_lengths)
