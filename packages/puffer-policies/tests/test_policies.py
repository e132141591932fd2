"""Every policy on every kind of space: forward, one gradient step, rollout against sequence, save and load."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

from puffer_policies import MLP, Policy, TrainablePolicy, adapt_policy, default_policy, make_action_head
from puffer_policies.states import zero_where

OBSERVATIONS = {
    "box": spaces.Box(-1, 1, (5,)),
    "scalar": spaces.Box(-1, 1, ()),
    "discrete": spaces.Discrete(5),
    "shifted": spaces.Discrete(4, start=3),
    "bytes": spaces.Box(0, 255, (9,), np.uint8),
    "double": spaces.Box(-1, 1, (3,), np.float64),
    "image": spaces.Box(0, 255, (36, 40, 3), np.uint8),
    "multidiscrete": spaces.MultiDiscrete([3, 4]),
    "multibinary": spaces.MultiBinary(6),
    "nested": spaces.Dict(
        near=spaces.Box(-1, 1, (3,)),
        far=spaces.Tuple([spaces.Discrete(4), spaces.Box(0, 255, (8, 8, 3), np.uint8), spaces.MultiBinary(2)]),
    ),
    "one_dtype": spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Box(-1, 1, (2, 2))),
}
ACTIONS = {
    "discrete": spaces.Discrete(4),
    "multidiscrete": spaces.MultiDiscrete([3, 3, 2]),
    "multibinary": spaces.MultiBinary(3),
    "box": spaces.Box(-2, 2, (3,)),
    "mixed": spaces.Dict(pick=spaces.Discrete(3, start=1), move=spaces.Box(-1, 1, (2,))),
}
MEMORIES = [None, "lstm", "gru", "mingru", "attention"]
OPTIONS = [
    ("image", "discrete", {"cnn": "impala"}),
    ("box", "discrete", {"residual": True, "num_layers": 3}),
    ("nested", "discrete", {"residual": True, "cnn": "impala", "layer_norm": True}),
    ("box", "multidiscrete", {"autoregressive": True}),
    ("box", "box", {"state_dependent_std": True}),
    ("box", "box", {"action_distribution": "tanh_normal"}),
    ("box", "mixed", {"action_distribution": "beta"}),
]
PAIRS = [(name, "discrete") for name in OBSERVATIONS] + [("box", name) for name in ACTIONS] + [("nested", "mixed")]


def rollout(policy, observations, resets):
    """Step a policy through segments as a trainer does."""
    state = policy.initial_state(len(observations))
    parameters, values = [], []
    for t in range(observations.shape[1]):
        state = zero_where(state, resets[:, t])
        output, value, state = policy.forward_eval(observations[:, t], state)
        parameters.append(output)
        values.append(value)
    return torch.stack(parameters, 1).flatten(0, 1), torch.stack(values, 1)


@pytest.mark.parametrize("recurrent", MEMORIES)
@pytest.mark.parametrize(("observation", "action"), PAIRS)
def test_policy_on_space(observation, action, recurrent, make_env, sample_rows, tmp_path):
    check_policy(make_env(OBSERVATIONS[observation], ACTIONS[action]), sample_rows, tmp_path, recurrent=recurrent)


@pytest.mark.parametrize("recurrent", [None, "gru"])
@pytest.mark.parametrize(("observation", "action", "options"), OPTIONS)
def test_policy_with_options(observation, action, options, recurrent, make_env, sample_rows, tmp_path):
    env = make_env(OBSERVATIONS[observation], ACTIONS[action])
    check_policy(env, sample_rows, tmp_path, recurrent=recurrent, **options)


def check_policy(env, sample_rows, tmp_path, **options):
    policy = default_policy(env, hidden_size=16, **options)
    rows = sample_rows(env.observation_layout, 3 * 4)
    observations = rows.reshape(3, 4, *rows.shape[1:])
    resets = torch.rand(3, 4) < 0.3

    # The rollout and the sequence agree, and so do the shapes that a trainer expects.
    parameters, values = policy.forward_sequence(observations, policy.initial_state(3), resets)
    head = policy.action_head
    assert isinstance(policy, TrainablePolicy)
    assert policy.is_recurrent is (options["recurrent"] is not None)
    assert parameters.shape == (12, head.num_parameters)
    assert values.shape == (3, 4)
    assert values.dtype == torch.float32
    for left, right in zip((parameters, values), rollout(policy, observations, resets), strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)

    # One gradient step changes every parameter.
    actions = head.sample(parameters, torch.rand(12, head.num_noise))
    log_prob, entropy = head.log_prob_and_entropy(parameters, actions)
    (log_prob.mean() + 0.1 * entropy.mean() + values.square().mean()).backward()
    missing = [name for name, parameter in policy.named_parameters() if parameter.grad is None]
    assert missing == []
    torch.optim.SGD(policy.parameters(), lr=0.1).step()

    # A saved policy gives the same outputs, loaded with weights only.
    torch.save(policy.state_dict(), tmp_path / "policy.pt")
    twin = default_policy(env, hidden_size=16, **options)
    twin.load_state_dict(torch.load(tmp_path / "policy.pt", weights_only=True))
    after = policy.forward_sequence(observations, policy.initial_state(3), resets)
    for left, right in zip(twin.forward_sequence(observations, twin.initial_state(3), resets), after, strict=True):
        assert torch.equal(left, right)
    assert not torch.equal(after[0], parameters)


@pytest.mark.parametrize("recurrent", MEMORIES)
def test_policy_needs_no_adapter_and_can_be_copied(recurrent, make_env):
    env = make_env(OBSERVATIONS["box"], ACTIONS["discrete"])
    policy = default_policy(env, recurrent=recurrent)
    x = torch.randn(3, 5)

    adapted = adapt_policy(policy, env.single_observation_space, env.single_action_space)
    twin = copy.deepcopy(policy)

    assert adapted is policy
    assert torch.equal(twin.forward_eval(x)[0], policy.forward_eval(x)[0])


def test_forward_returns_parameters_and_a_column_of_values(make_env):
    env = make_env(OBSERVATIONS["box"], ACTIONS["discrete"])

    parameters, values = default_policy(env)(torch.zeros(6, 5))
    recurrent = default_policy(env, recurrent="gru")
    *outputs, state = recurrent(torch.zeros(6, 5))

    assert (parameters.shape, values.shape) == ((6, 4), (6, 1))
    assert [output.shape for output in outputs] == [(6, 4), (6, 1)]
    assert torch.equal(
        recurrent(torch.zeros(6, 5), state)[2][0], recurrent.forward_eval(torch.zeros(6, 5), state)[2][0]
    )


@pytest.mark.parametrize(
    ("encoder", "head", "hidden_size", "error", "message"),
    [
        (torch.nn.Linear(5, 8), make_action_head(ACTIONS["discrete"]), None, TypeError, "hidden_size must be given"),
        (MLP(5, 8), make_action_head(ACTIONS["discrete"]), 16, ValueError, "hidden_size=16 for an encoder of 8"),
        (MLP(5, 8), ACTIONS["discrete"], None, TypeError, "action_head must be an ActionHead; got Discrete"),
    ],
)
def test_parts_that_do_not_fit_are_explained(encoder, head, hidden_size, error, message):
    with pytest.raises(error, match=message):
        Policy(encoder, head, hidden_size)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("recurrent", MEMORIES)
@pytest.mark.parametrize(("observation", "action"), [("nested", "mixed"), ("box", "multidiscrete")])
def test_policy_computes_in_another_dtype(observation, action, recurrent, dtype, make_env, sample_rows):
    env = make_env(OBSERVATIONS[observation], ACTIONS[action])
    policy = default_policy(env, hidden_size=16, recurrent=recurrent, autoregressive=action == "multidiscrete").to(
        dtype
    )
    rows = sample_rows(env.observation_layout, 6)
    resets = torch.tensor([[False, True, False], [False, False, False]])

    parameters, values = policy.forward_sequence(rows.view(2, 3, -1), policy.initial_state(2), resets)
    actions = policy.action_head.sample(parameters, torch.rand(6, policy.action_head.num_noise))
    (policy.action_head.log_prob(parameters, actions).sum() + values.sum()).backward()

    assert policy.forward_eval(rows, policy.initial_state(6))[1].dtype == values.dtype == torch.float32
    assert {parameter.grad.dtype for parameter in policy.parameters() if parameter.grad is not None} == {dtype}


@pytest.mark.parametrize("recurrent", MEMORIES)
def test_policy_runs_under_autocast_and_on_no_rows(recurrent, make_env):
    policy = default_policy(make_env(OBSERVATIONS["box"], ACTIONS["box"]), hidden_size=16, recurrent=recurrent)
    observations, resets = torch.randn(3, 4, 5), torch.rand(3, 4) < 0.3
    expected, expected_values = policy.forward_sequence(observations, policy.initial_state(3), resets)

    with torch.autocast("cpu", torch.bfloat16):
        outputs = [
            policy.forward_sequence(observations, policy.initial_state(3), resets),
            rollout(policy, observations, resets),
        ]

    for parameters, values in outputs:
        torch.testing.assert_close(parameters.float(), expected, atol=0.05, rtol=0.05)
        torch.testing.assert_close(values, expected_values, atol=0.05, rtol=0.05)
    assert policy.forward_sequence(observations[:0], policy.initial_state(0), resets[:0])[1].shape == (0, 4)
    assert policy.forward_eval(observations[:0, 0], policy.initial_state(0))[1].shape == (0,)


def test_constant_deviations_are_one_parameter(make_env):
    policy = default_policy(make_env(OBSERVATIONS["box"], ACTIONS["box"]))
    with torch.no_grad():
        policy.log_std.copy_(torch.tensor([-1.0, 0.0, 1.0]))

    parameters, _ = policy(torch.randn(4, 5))

    assert torch.equal(parameters[:, 3:], torch.tensor([-1.0, 0.0, 1.0]).expand(4, 3))


@pytest.mark.parametrize("name", ["tanh_normal", "beta"])
def test_bounded_distributions_stay_inside(name, make_env):
    env = make_env(OBSERVATIONS["box"], ACTIONS["box"])
    policy = default_policy(env, action_distribution=name)
    parameters, _ = policy(torch.randn(200, 5))

    actions = policy.action_head.sample(parameters, torch.rand(200, policy.action_head.num_noise))

    assert actions.abs().max() < 2.0


def test_state_dependent_deviations_have_no_parameter_of_their_own(make_env):
    policy = default_policy(make_env(OBSERVATIONS["box"], ACTIONS["box"]), state_dependent_std=True)

    assert policy.log_std is None
    assert policy.actor.out_features == 6


def test_subclass_may_decode_in_a_plain_form(make_env):
    from puffer_policies import DefaultPolicy

    class Split(DefaultPolicy):
        def decode_actions(self, hidden):
            parameters, values = super().decode_actions(hidden)
            return parameters.split([3, 3, 2], 1), values

    env = make_env(OBSERVATIONS["box"], ACTIONS["multidiscrete"])
    policy = Split(env)
    policy_parameters, values, _ = policy.forward_eval(torch.zeros(2, 5))

    assert policy_parameters.shape == (2, 8)
    assert values.shape == (2,)


COMPILED = {
    "mlp": ("box", "multidiscrete", {"autoregressive": True, "layer_norm": True}),
    "images": ("image", "discrete", {"cnn": "impala"}),
    "lstm": ("nested", "mixed", {"recurrent": "lstm"}),
    "gru": ("box", "box", {"recurrent": "gru", "action_distribution": "tanh_normal", "residual": True}),
    "mingru": ("box", "box", {"recurrent": "mingru", "action_distribution": "beta"}),
    "attention": ("box", "multibinary", {"recurrent": "attention"}),
}


# A memory is a break in the graph; torch looks at the gradient of what comes out of it and hides its own warning.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("name", COMPILED)
def test_policy_and_head_compile(name, make_env, sample_rows):
    observation, action, options = COMPILED[name]
    env = make_env(OBSERVATIONS[observation], ACTIONS[action])
    policy = default_policy(env, hidden_size=16, **options)
    rows = sample_rows(env.observation_layout, 6)
    observations = rows.reshape(2, 3, *rows.shape[1:])
    resets = torch.tensor([[False, True, False], [False, False, False]])
    parameters, _ = policy.forward_sequence(observations, policy.initial_state(2), resets)
    actions = policy.action_head.sample(parameters, torch.rand(6, policy.action_head.num_noise))

    def evaluate():
        parameters, values = policy.forward_sequence(observations, policy.initial_state(2), resets)
        return values, *policy.action_head.log_prob_and_entropy(parameters, actions)

    got, expected = torch.compile(evaluate, backend="eager")(), evaluate()

    for left, right in zip(got, expected, strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)
    sum(part.sum() for part in got).backward()
    assert all(parameter.grad is not None for parameter in policy.parameters())


@pytest.mark.parametrize("name", ["discrete", "multidiscrete", "multibinary", "mixed"])
@pytest.mark.parametrize("recurrent", [None, "lstm"])
def test_policy_gets_no_gradient_from_masked_choices(name, recurrent, make_env):
    env = make_env(OBSERVATIONS["box"], ACTIONS[name])
    policy = default_policy(env, hidden_size=16, recurrent=recurrent)
    head = policy.action_head
    parameters, _ = policy.forward_sequence(torch.randn(2, 3, 5), policy.initial_state(2))
    parameters.retain_grad()
    mask = torch.rand(6, head.num_choices) < 0.5
    mask[0] = False  # an agent that is absent

    actions = head.sample(parameters, torch.rand(6, head.num_noise), mask)
    log_prob, entropy = head.log_prob_and_entropy(parameters, actions, mask)
    (log_prob.sum() + entropy.sum()).backward()

    choices = slice(0, head.num_choices) if head.num_parameters >= head.num_choices else slice(0, 0)
    assert torch.isfinite(parameters.grad).all()
    assert not parameters.grad[:, choices][~mask[:, choices]].any()
