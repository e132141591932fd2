import pytest
import torch
from gymnasium import spaces

from puffer_policies import IndependentPolicies, adapt_policy, default_policy

BOX = spaces.Box(-1, 1, (5,))


@pytest.fixture(params=[None, "lstm"])
def policies(request, make_env):
    env = make_env(BOX, spaces.Discrete(3))
    return IndependentPolicies([default_policy(env, hidden_size=8, recurrent=request.param) for _ in range(3)])


def test_each_row_is_answered_by_its_agent(policies):
    x, ids = torch.randn(7, 5), torch.tensor([2, 0, 0, 1, 2, 2, 0])

    parameters, values, _ = policies.forward_eval(x, policies.initial_state(7), ids)

    for row, agent in enumerate(ids.tolist()):
        own = policies.policies[agent].forward_eval(x[row : row + 1], policies.initial_state(1))
        torch.testing.assert_close(parameters[row : row + 1], own[0])
        torch.testing.assert_close(values[row : row + 1], own[1])


def test_rows_without_numbers_are_whole_worlds(policies):
    x = torch.randn(6, 5)

    got = policies.forward_eval(x, policies.initial_state(6))

    expected = policies.forward_eval(x, policies.initial_state(6), torch.tensor([0, 1, 2, 0, 1, 2]))
    assert torch.equal(got[0], expected[0])
    with pytest.raises(ValueError, match="rows must be whole worlds of 3 agents"):
        policies.forward_eval(x[:4], policies.initial_state(4))


def test_sequence_equals_the_rollout(policies):
    x, ids, resets = torch.randn(5, 4, 5), torch.tensor([1, 1, 0, 2, 1]), torch.rand(5, 4) < 0.3

    parameters, values = policies.forward_sequence(x, policies.initial_state(5), resets, ids)

    state = policies.initial_state(5)
    for t in range(4):
        state = tuple(part.masked_fill(resets[:, t, None], 0.0) for part in state)
        output, value, state = policies.forward_eval(x[:, t], state, ids)
        torch.testing.assert_close(output, parameters.view(5, 4, 3)[:, t], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(value, values[:, t], atol=1e-5, rtol=1e-5)


def test_agents_without_rows_get_no_gradient(policies):
    parameters, values = policies.forward_sequence(
        torch.randn(2, 4, 5), policies.initial_state(2), None, torch.tensor([0, 2])
    )
    (parameters.sum() + values.sum()).backward()

    assert all(parameter.grad is None for parameter in policies.policies[1].parameters())
    assert all(parameter.grad is not None for parameter in policies.policies[2].parameters())


def test_bad_numbers_are_refused(policies):
    for ids in (torch.tensor([0, 3]), torch.tensor([-1, 0]), torch.tensor([0])):
        with pytest.raises(ValueError, match=r"agent_ids must be \(2,\) in \[0, 3\)"):
            policies.forward_eval(torch.zeros(2, 5), policies.initial_state(2), ids)


def test_policies_must_fit_each_other(make_env):
    env = make_env(BOX, spaces.Discrete(3))
    others = [
        default_policy(make_env(BOX, spaces.Discrete(2))),
        default_policy(env, recurrent="gru"),
        default_policy(env, recurrent="lstm", hidden_size=64),
    ]

    with pytest.raises(ValueError, match="at least one policy"):
        IndependentPolicies([])
    for other in others:
        with pytest.raises(ValueError, match="policies must be equal in head and state; got CategoricalHead of 3"):
            IndependentPolicies([default_policy(env), other])
    with pytest.raises(TypeError, match="face of a trainer; got Linear"):
        IndependentPolicies([torch.nn.Linear(5, 3)])


def test_heads_with_weights_are_not_shared_by_accident(make_env):
    env = make_env(BOX, spaces.MultiDiscrete([3, 2]))
    policies = [default_policy(env, autoregressive=True) for _ in range(2)]

    with pytest.raises(ValueError, match=r"no weights of their own.*Use autoregressive=False"):
        IndependentPolicies(policies)


def test_no_rows_and_numbers_in_a_list(policies):
    assert policies.forward_eval(torch.zeros(0, 5), policies.initial_state(0))[0].shape == (0, 3)
    assert policies.forward_eval(torch.zeros(2, 5), policies.initial_state(2), [2, 0])[0].shape == (2, 3)


def test_it_has_the_face_of_a_trainer(policies):
    assert adapt_policy(policies, BOX, spaces.Discrete(3)) is policies
    assert policies.takes_agent_ids
    assert policies(torch.zeros(3, 5), policies.initial_state(3))[0].shape == (3, 3)
