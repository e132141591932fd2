import numpy as np
import pytest
import torch
from gymnasium import spaces

from puffer_policies import MLP, MultiInput, NatureCNN, make_encoder
from puffer_policies.encoders import MAX_ONE_HOT, ChoiceInput, has_channels_last, is_image
from puffer_spaces import Layout


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), True),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), True),
        (spaces.Box(0, 255, (84, 84), np.uint8), True),
        (spaces.Box(0, 1, (7, 7, 3)), True),
        (spaces.Box(0, 1, (11, 11), np.uint8), False),
        (spaces.Box(0, 1, (2, 2, 2)), False),
        (spaces.Box(-1, 1, (6,)), False),
        (spaces.Discrete(3), False),
    ],
)
def test_images_are_told_by_their_shape(space, expected):
    assert is_image(space) is expected


def test_channels_are_on_the_smaller_end():
    assert has_channels_last((84, 84, 3))
    assert has_channels_last((10, 10, 10))
    assert not has_channels_last((4, 84, 84))


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
        ({"input_size": 0}, "input_size and num_layers must be at least 1; got input_size=0"),
        ({"input_size": 3, "num_layers": 0}, "got input_size=3, num_layers=0"),
    ],
)
def test_mlp_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        MLP(**arguments)


@pytest.mark.parametrize(
    "shape", [(84, 84, 3), (4, 84, 84), (72, 80, 4), (36, 36), (210, 160, 3), (20, 30, 3), (7, 7, 3), (3, 3, 3)]
)
def test_cnn_fits_images_of_any_size(shape):
    encoder = NatureCNN(shape, 16, 1 / 255)
    images = torch.randint(0, 256, (2, *shape), dtype=torch.uint8)

    features = encoder(images)
    features.sum().backward()

    assert features.shape == (2, 16)
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_cnn_sees_pixels_over_255():
    encoder = NatureCNN((40, 40, 3), 16, 1 / 255)
    unscaled = NatureCNN((40, 40, 3), 16)
    unscaled.load_state_dict(encoder.state_dict())
    images = torch.randint(0, 256, (2, 40, 40, 3), dtype=torch.uint8)

    torch.testing.assert_close(encoder(images), unscaled(images.float() / 255), atol=1e-5, rtol=1e-4)


def test_cnn_is_the_same_for_both_orders_of_channels():
    last, first = NatureCNN((40, 44, 3), 16), NatureCNN((3, 40, 44), 16)
    first.convolutions.load_state_dict(last.convolutions.state_dict())
    images = torch.rand(2, 40, 44, 3)

    left, right = images.permute(0, 3, 1, 2), images
    for layer_last, layer_first in zip(last.convolutions, first.convolutions, strict=True):
        right = torch.relu(layer_last(right.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))
        left = torch.relu(layer_first(left))
    torch.testing.assert_close(left, right.permute(0, 3, 1, 2), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(last(images), torch.relu(last.linear(right.flatten(1))), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        first(images.permute(0, 3, 1, 2)), torch.relu(first.linear(left.flatten(1))), atol=1e-5, rtol=1e-5
    )


def test_choices_become_one_hot_rows():
    values = torch.tensor([[3, 0], [5, 1]])

    assert ChoiceInput([3, 2], [3, 0])(values).tolist() == [[1, 0, 0, 1, 0], [0, 0, 1, 0, 1]]


def test_zero_rows_of_absent_agents_are_no_error():
    assert ChoiceInput([3], [5])(torch.tensor([[0], [9]])).tolist() == [[1, 0, 0], [0, 0, 1]]


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
