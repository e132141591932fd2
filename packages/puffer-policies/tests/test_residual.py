import pytest
import torch

from puffer_policies import ResidualBlock, ResidualMLP


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
