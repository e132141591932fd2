import numpy as np
import pytest
import torch
from gymnasium import spaces

from puffer_policies import (
    BernoulliHead,
    BetaHead,
    CategoricalHead,
    CompositeHead,
    NonFiniteParametersError,
    NormalHead,
    TanhNormalHead,
    make_action_head,
)
from puffer_spaces import ActionLayout

MIXED = spaces.Dict(
    aim=spaces.Box(-1.0, 3.0, (2,), np.float64),
    fire=spaces.Discrete(3, start=5),
    nested=spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 4]), spaces.Box(-np.inf, np.inf, ())]),
)


@pytest.mark.parametrize(
    ("space", "kind", "shape", "dtype"),
    [
        (spaces.Discrete(4), CategoricalHead, (), torch.int32),
        (spaces.MultiDiscrete([2, 3]), CategoricalHead, (2,), torch.int32),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), CategoricalHead, (2, 2), torch.int32),
        (spaces.MultiBinary(3), BernoulliHead, (3,), torch.int32),
        (spaces.Box(-1, 1, (3,)), NormalHead, (3,), torch.float32),
        (spaces.Box(-1, 1, (), np.float64), NormalHead, (), torch.float64),
        (spaces.Box(-2, 5, (2,), np.int8), CategoricalHead, (2,), torch.int8),
        (spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(3)), CategoricalHead, (2,), torch.int32),
        (spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, ())]), NormalHead, (3,), torch.float32),
        (MIXED, CompositeHead, (ActionLayout(MIXED).nbytes,), torch.uint8),
    ],
)
def test_each_space_gets_its_head_and_valid_actions(space, kind, shape, dtype):
    head = make_action_head(space)
    parameters = torch.randn(30, head.num_parameters, requires_grad=True)

    actions = head.sample(parameters, torch.rand(30, head.num_noise))
    log_prob, entropy = head.log_prob_and_entropy(parameters, actions)

    assert type(head) is kind
    assert actions.shape == (30, *shape)
    assert actions.dtype == dtype == head.action_dtype
    assert log_prob.shape == entropy.shape == (30,)
    assert torch.autograd.grad((log_prob + entropy).sum(), parameters)[0].shape == parameters.shape
    assert head.mode(parameters).shape == actions.shape
    torch.testing.assert_close(head.entropy(parameters), entropy)
    for action in head.env_actions(actions).numpy():
        if isinstance(space, spaces.Dict | spaces.Tuple):
            assert space.contains(ActionLayout(space).unflatten(np.ascontiguousarray(action)))
        elif isinstance(space, spaces.MultiBinary):
            assert space.contains(action.astype(np.int8))
        else:
            assert space.contains(np.asarray(action, space.dtype))


@pytest.mark.parametrize(
    ("name", "kind"), [("normal", NormalHead), ("tanh_normal", TanhNormalHead), ("beta", BetaHead)]
)
def test_distribution_is_chosen_by_name(name, kind):
    assert type(make_action_head(spaces.Box(-1, 1, (3,)), distribution=name)) is kind


def test_unknown_distribution_is_refused():
    with pytest.raises(ValueError, match="distribution must be one of normal, tanh_normal, beta; got 'cauchy'"):
        make_action_head(spaces.Box(-1, 1, (3,)), distribution="cauchy")


def test_space_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="action_space must be Discrete, MultiDiscrete"):
        make_action_head(spaces.Text(4))


@pytest.mark.parametrize(
    "space", [spaces.Box(0, 1000, (2,), np.int32), spaces.Box(-(2**63), 2**63 - 1, (1,), np.int64)]
)
def test_wide_integer_box_is_refused(space):
    with pytest.raises(TypeError, match="at most 256 values per element"):
        make_action_head(space)


def test_composite_sums_its_leaves():
    layout = ActionLayout(MIXED)
    head = make_action_head(layout.row_space, layout)
    parameters = torch.randn(6, head.num_parameters)
    actions = head.sample(parameters, torch.rand(6, head.num_noise))
    values = [layout.unflatten(row) for row in actions.numpy()]
    computed, free = parameters.split([head.num_parameters - head.num_free, head.num_free], 1)
    aim, fire, bits, picks, level = computed.split([2, 3, 2, 6, 1], 1)
    leaves = [
        (make_action_head(MIXED["aim"]), torch.cat([aim, free[:, :2]], 1), [value["aim"] for value in values]),
        (make_action_head(MIXED["fire"]), fire, [value["fire"] for value in values]),
        (make_action_head(MIXED["nested"][0]), bits, [value["nested"][0] for value in values]),
        (make_action_head(MIXED["nested"][1]), picks, [value["nested"][1] for value in values]),
        (
            make_action_head(MIXED["nested"][2]),
            torch.cat([level, free[:, 2:]], 1),
            [value["nested"][2] for value in values],
        ),
    ]

    log_prob, entropy = head.log_prob_and_entropy(parameters, actions)

    expected = [leaf.log_prob_and_entropy(part, torch.from_numpy(np.stack(taken))) for leaf, part, taken in leaves]
    torch.testing.assert_close(log_prob, sum(pair[0] for pair in expected))
    torch.testing.assert_close(entropy, sum(pair[1] for pair in expected))


def test_mask_of_a_composite_covers_its_discrete_leaves_in_order():
    head = make_action_head(MIXED)
    mask = torch.zeros(20, head.num_choices, dtype=torch.bool)
    mask[:, [1, 3, 6, 7, 10]] = True  # fire 6, bits 0 and 1, picks 0 and 2

    actions = head.sample(torch.randn(20, head.num_parameters), torch.rand(20, head.num_noise), mask)

    assert head.num_choices == 3 + 4 + 6
    for row in actions.numpy():
        value = ActionLayout(MIXED).unflatten(row)
        assert value["fire"] == 6
        assert value["nested"][0].tolist() == [0, 1]
        assert value["nested"][1].tolist() == [0, 1]


def test_composite_names_non_finite_rows():
    head = make_action_head(MIXED)
    parameters = torch.zeros(5, head.num_parameters)
    parameters[4, -1] = float("inf")

    with pytest.raises(NonFiniteParametersError, match="rows: 4"):
        head.sample(parameters, torch.rand(5, head.num_noise))


def test_state_dependent_deviations_are_all_computed():
    space = spaces.Box(-1, 1, (3,))

    assert make_action_head(space).num_free == 3
    assert make_action_head(space, state_dependent_std=True).num_free == 0
    assert make_action_head(space, distribution="beta").num_free == 0


def test_heads_move_and_copy_without_state():
    head = make_action_head(MIXED)

    assert head.state_dict() == {}
    assert {buffer.dtype for buffer in head.to(torch.float16).buffers()} <= {torch.float32, torch.int64}
    assert {buffer.device.type for buffer in head.to("meta").buffers()} == {"meta"}
