import pytest
import torch

from puffer_policies import ImpalaCNN, ResidualBlock, ResidualMLP


def test_block_adds_to_its_input():
    block = ResidualBlock(8)
    x = torch.randn(5, 8)
    torch.nn.init.zeros_(block.second.weight)

    torch.testing.assert_close(block(x), x)


@pytest.mark.parametrize("num_layers", [1, 3])
def test_mlp_has_a_block_for_each_further_layer(num_layers):
    encoder = ResidualMLP(12, 16, num_layers, layer_norm=True)

    assert encoder(torch.zeros(5, 3, 4, dtype=torch.uint8)).shape == (5, 16)
    assert len(encoder.blocks) == num_layers - 1


def test_mlp_refuses_no_layers():
    with pytest.raises(ValueError, match="must be at least 1; got input_size=4, num_layers=0"):
        ResidualMLP(4, num_layers=0)


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
