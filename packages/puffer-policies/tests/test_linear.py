import subprocess
import sys

import pytest
import torch
from torch.nn import functional

from puffer_policies import Linear
from puffer_policies.linear import MIN_PRODUCTS, linear

SMALL, LARGE = (7, 5, 3), (2048, 33, 65)


@pytest.mark.parametrize("shape", [SMALL, LARGE])
@pytest.mark.parametrize("with_bias", [True, False])
def test_linear_and_its_gradients_equal_torch(shape, with_bias):
    rows, inputs, outputs = shape
    x = torch.randn(rows, inputs, requires_grad=True)
    weight = torch.randn(outputs, inputs, requires_grad=True)
    bias = torch.randn(outputs, requires_grad=True) if with_bias else None
    sources = [x, weight] + ([bias] if with_bias else [])
    grad = torch.randn(rows, outputs)

    got, expected = linear(x, weight, bias), functional.linear(x, weight, bias)

    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    assert got.is_contiguous()
    for left, right in zip(
        torch.autograd.grad(got, sources, grad), torch.autograd.grad(expected, sources, grad), strict=True
    ):
        torch.testing.assert_close(left, right, atol=2e-3, rtol=1e-3)


def test_the_large_case_is_large_enough_for_the_convolution():
    assert LARGE[0] * LARGE[1] * LARGE[2] >= MIN_PRODUCTS > SMALL[0] * SMALL[1] * SMALL[2]


def test_linear_takes_rows_that_are_not_contiguous():
    x = torch.randn(2048, 80)[:, :64]
    weight = torch.randn(64, 64)

    torch.testing.assert_close(linear(x, weight), functional.linear(x, weight))


def test_layer_takes_leading_dimensions():
    layer = Linear(6, 4)
    x = torch.randn(2, 3, 6)

    assert layer(x).shape == (2, 3, 4)
    torch.testing.assert_close(layer(x), functional.linear(x, layer.weight, layer.bias))


def test_result_of_a_row_is_repeatable():
    x, weight = torch.randn(4096, 64), torch.randn(64, 64)

    assert torch.equal(linear(x, weight), linear(x, weight))


def test_import_changes_no_setting_of_torch():
    code = (
        "import torch, warnings, random, numpy; threads = torch.get_num_threads(); state = torch.get_rng_state();"
        "filters = list(warnings.filters); before = numpy.random.get_state()[1].tolist();"
        "import puffer_policies;"
        "assert threads == torch.get_num_threads(); assert torch.equal(state, torch.get_rng_state());"
        "assert before == numpy.random.get_state()[1].tolist()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
