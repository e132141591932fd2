import numpy as np
import pytest
import torch
from gymnasium import spaces

from puffer_policies import ImpalaCNN, NatureCNN
from puffer_policies.images import has_channels_last, image_scale, is_image


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), True),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), True),
        (spaces.Box(0, 255, (84, 84), np.uint8), True),
        (spaces.Box(0, 1, (7, 7, 3)), True),
        (spaces.Box(0, 255, (4, 84, 84, 3), np.uint8), True),
        (spaces.Box(0, 255, (4, 3, 84, 84), np.uint8), True),
        (spaces.Box(0, 1, (4, 84, 84, 3)), False),
        (spaces.Box(0, 255, (9, 9, 3, 4), np.uint8), False),
        (spaces.Box(0, 1, (11, 11), np.uint8), False),
        (spaces.Box(0, 1, (2, 2, 2)), False),
        (spaces.Box(-1, 1, (6,)), False),
        (spaces.Discrete(3), False),
    ],
)
def test_images_are_told_by_their_shape(space, expected):
    assert is_image(space) is expected


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Box(0, 255, (9, 9, 3), np.uint8), 1 / 255),
        (spaces.Box(0, 10, (9, 9, 3), np.uint8), 1 / 255),
        (spaces.Box(0, 1, (9, 9, 3), np.uint8), 1.0),
        (spaces.Box(0, 255, (9, 9, 3), np.float32), 1 / 255),
        (spaces.Box(0, 1, (9, 9, 3), np.float32), 1.0),
        (spaces.Box(-np.inf, np.inf, (9, 9, 3), np.float32), 1.0),
    ],
)
def test_pixels_up_to_255_are_scaled(space, expected):
    assert image_scale(space) == expected


def test_channels_are_on_the_smaller_end():
    assert has_channels_last((84, 84, 3))
    assert has_channels_last((10, 10, 10))
    assert not has_channels_last((4, 84, 84))


@pytest.mark.parametrize("kind", [NatureCNN, ImpalaCNN])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (84,)}, r"shape must be \(height, width, channels\).*got \(84,\)"),
        ({"shape": (2, 4, 84, 84, 3)}, r"got \(2, 4, 84, 84, 3\)"),
        ({"shape": (0, 84, 3)}, r"got \(0, 84, 3\)"),
        ({"shape": (84, 84, 3), "hidden_size": 0}, "hidden_size must be at least 1; got 0"),
    ],
)
def test_bad_arguments_of_a_cnn_are_explained(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        kind(**arguments)


def test_image_below_the_smallest_kernel_is_refused():
    with pytest.raises(ValueError, match="images must be at least 3 pixels wide and high; got 2"):
        NatureCNN((2, 2, 3))


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


@pytest.mark.parametrize("kind", [NatureCNN, ImpalaCNN])
def test_images_of_a_stack_become_channels_of_one(kind):
    images = torch.randint(0, 256, (2, 4, 20, 24, 3), dtype=torch.uint8)
    last, first, flat = kind((4, 20, 24, 3), 16), kind((4, 3, 20, 24), 16), kind((20, 24, 12), 16)
    flat.load_state_dict(last.state_dict())
    features = last(images)

    assert torch.equal(features, flat(torch.cat(list(images.unbind(1)), -1)))
    assert last.shape == (20, 24, 12)
    assert first.shape == (12, 20, 24)
    stacked = images.permute(0, 1, 4, 2, 3)
    whole = kind((12, 20, 24), 16)
    whole.load_state_dict(first.state_dict())
    assert torch.equal(first(stacked), whole(stacked.flatten(1, 2)))


@pytest.mark.parametrize("shape", [(64, 64, 3), (3, 64, 64), (7, 9, 3), (3, 3, 2), (40, 40)])
def test_impala_fits_images_of_any_size(shape):
    encoder = ImpalaCNN(shape, 16, 1 / 255, width=4)
    images = torch.randint(0, 256, (2, *shape), dtype=torch.uint8)

    features = encoder(images)
    features.sum().backward()

    assert features.shape == (2, 16)
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_impala_has_fifteen_convolutions():
    encoder = ImpalaCNN((64, 64, 3), 256)

    assert sum(isinstance(part, torch.nn.Conv2d) for part in encoder.modules()) == 15
    assert encoder.linear.in_features == 32 * 8 * 8


def test_impala_sees_pixels_over_255():
    encoder, unscaled = ImpalaCNN((16, 16, 3), 8, 1 / 255), ImpalaCNN((16, 16, 3), 8)
    unscaled.load_state_dict(encoder.state_dict())
    images = torch.randint(0, 256, (2, 16, 16, 3), dtype=torch.uint8)

    torch.testing.assert_close(encoder(images), unscaled(images.float() / 255))
