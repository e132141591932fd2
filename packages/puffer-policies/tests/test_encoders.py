import re

import numpy as np
import pytest
import torch
from gymnasium import spaces

from puffer_policies import MLP, ImpalaCNN, MultiInput, NatureCNN, ResidualMLP, make_encoder
from puffer_policies.encoders import MAX_ONE_HOT, ChoiceInput
from puffer_spaces import Layout


@pytest.mark.parametrize("activation", ["gelu", "relu", "tanh", "silu", "elu"])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_mlp_has_its_layers(activation, layer_norm):
    encoder = MLP(12, 16, num_layers=3, activation=activation, layer_norm=layer_norm)

    assert encoder(torch.zeros(5, 3, 4, dtype=torch.int32)).shape == (5, 16)
    assert sum(isinstance(layer, torch.nn.Linear) for layer in encoder.layers) == 3
    assert sum(isinstance(layer, torch.nn.LayerNorm) for layer in encoder.layers) == 3 * layer_norm


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_size": 3, "activation": "step"}, "activation must be one of gelu, relu, tanh, silu, elu; got 'step'"),
        ({"input_size": 0}, "input_size must be at least 1; got 0"),
        ({"input_size": 3, "hidden_size": -1}, "hidden_size must be at least 1; got -1"),
        ({"input_size": 3, "num_layers": 0}, "num_layers must be at least 1; got 0"),
        ({"input_size": (3,)}, r"input_size must be an integer; got \(3,\)"),
        ({"input_size": 3, "hidden_size": 2.5}, "hidden_size must be an integer; got 2.5"),
    ],
)
@pytest.mark.parametrize("kind", [MLP, ResidualMLP])
def test_bad_arguments_of_an_mlp_are_explained(kind, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        kind(**arguments)


ENCODERS = {
    "mlp": (lambda: MLP(12, 16), (12,)),
    "residual": (lambda: ResidualMLP(12, 16), (12,)),
    "nature": (lambda: NatureCNN((7, 7, 3), 16, 1 / 255), (7, 7, 3)),
    "impala": (lambda: ImpalaCNN((3, 7, 7), 16, 1 / 255), (3, 7, 7)),
    "choices": (lambda: ChoiceInput([3, 2], [0, 0]), (2,)),
    "multi": (lambda: MultiInput(Layout(spaces.Dict(a=spaces.Box(-1, 1, (3,)), b=spaces.Discrete(4))), 16), (24,)),
}


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("num_rows", [0, 1, 5])
def test_encoder_takes_any_number_of_rows(name, num_rows):
    build, shape = ENCODERS[name]
    encoder = build()

    assert len(encoder(torch.zeros(num_rows, *shape, dtype=torch.uint8))) == num_rows


@pytest.mark.parametrize("name", ENCODERS)
def test_rows_of_another_size_are_explained(name):
    build, shape = ENCODERS[name]
    encoder = build()

    for wrong in ((2, 5), (5,), (2, *shape, 2)):
        with pytest.raises(ValueError, match=re.escape(f"got {wrong}. Pass rows of the space")):
            encoder(torch.zeros(wrong, dtype=torch.uint8))


@pytest.mark.parametrize("name", [name for name in ENCODERS if name != "choices"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_encoder_computes_in_the_dtype_of_its_weights(name, dtype):
    build, shape = ENCODERS[name]
    encoder = build().to(dtype)

    assert encoder(torch.ones(2, *shape, dtype=torch.uint8)).dtype == dtype


def test_choices_become_one_hot_rows():
    values = torch.tensor([[3, 0], [5, 1]])

    assert ChoiceInput([3, 2], [3, 0])(values).tolist() == [[1, 0, 0, 1, 0], [0, 0, 1, 0, 1]]


def test_zero_rows_of_absent_agents_are_no_error():
    assert ChoiceInput([3], [5])(torch.tensor([[0], [9]])).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_too_many_choices_are_refused():
    with pytest.raises(ValueError, match="at most 16,777,216 choices in all; got 1,099,511,627,776"):
        ChoiceInput([2**40], [0])


def test_many_choices_get_learned_vectors():
    layer = ChoiceInput([MAX_ONE_HOT, 2], [0, 0])

    features = layer(torch.tensor([[1000, 1], [3, 0]]))

    assert features.shape == (2, layer.output_size) == (2, 64)


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (spaces.Box(-1, 1, (5,)), MLP),
        (spaces.Box(-1, 1, ()), MLP),
        (spaces.Box(0, 255, (11, 11), np.uint8), MLP),
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), NatureCNN),
        (spaces.Discrete(5), MultiInput),
        (spaces.MultiBinary(4), MultiInput),
        (spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Box(0, 255, (36, 36, 3), np.uint8)), MultiInput),
    ],
)
def test_encoder_follows_the_space(space, kind, sample_rows):
    layout = Layout(space)

    encoder = make_encoder(layout, 16)

    assert type(encoder) is kind
    assert encoder(sample_rows(layout, 3)).shape == (3, 16)


def test_multi_input_gives_each_leaf_its_own_dtype_and_shape():
    space = spaces.Dict(
        screen=spaces.Box(0, 255, (72, 80, 4), np.uint8),
        coords=spaces.Box(-1000, 1000, (2,), np.int32),
        map=spaces.Box(0, 50, (1,), np.int32),
    )
    layout = Layout(space)
    value = space.sample()
    value["coords"] = np.array([-700, 300], np.int32)
    encoder = make_encoder(layout, 16)
    seen = {}
    for part, name in zip(encoder.inputs, [leaf.name for leaf in layout.leaves], strict=True):
        part.register_forward_hook(lambda _, inputs, output, name=name: seen.update({name: inputs[0]}))

    encoder(torch.from_numpy(layout.flatten(value))[None])

    for name, observed in seen.items():
        np.testing.assert_array_equal(observed[0].numpy(), value[name])
        assert observed.numpy().dtype == value[name].dtype


def test_multi_input_depends_on_every_leaf():
    space = spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Discrete(3), c=spaces.Tuple([spaces.MultiBinary(2)]))
    layout = Layout(space)
    encoder = make_encoder(layout, 16)
    base = {"a": np.zeros(2, np.float32), "b": 0, "c": (np.zeros(2, np.int8),)}
    changed = [base | {"a": np.ones(2, np.float32)}, base | {"b": 2}, base | {"c": (np.ones(2, np.int8),)}]
    rows = torch.from_numpy(np.stack([layout.flatten(value) for value in [base, *changed]]))

    features = encoder(rows)

    assert (features[1:] - features[0]).abs().amax(1).min() > 1e-4
