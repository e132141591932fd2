import subprocess
import sys

import pytest
import torch
from torch.nn import functional

from puffer_policies import Linear
from puffer_policies.linear import _num_images, linear

SMALL, LARGE, LARGE_AND_ODD, NARROW = (7, 5, 3), (4096, 33, 65), (4099, 33, 65), (65536, 64, 4)


@pytest.fixture(params=[1, 2])
def num_threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("shape", [SMALL, LARGE, LARGE_AND_ODD, NARROW])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.usefixtures("num_threads")
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


def test_large_products_are_convolutions(num_threads):
    def images(shape):
        rows, inputs, outputs = shape
        return _num_images(torch.zeros(rows, inputs), torch.zeros(outputs, inputs))

    if not images(LARGE):
        pytest.skip("oneDNN is not used on this machine")
    assert images(LARGE) == (1 if num_threads > 1 else 16)
    assert images(LARGE_AND_ODD) == (1 if num_threads > 1 else 0)
    assert images(SMALL) == images(NARROW) == 0


def test_linear_takes_rows_that_are_not_contiguous():
    x = torch.randn(8192, 80)[:, :64]
    weight = torch.randn(64, 64)

    torch.testing.assert_close(linear(x, weight), functional.linear(x, weight))


def test_layer_takes_leading_dimensions():
    layer = Linear(6, 4)
    x = torch.randn(2, 3, 6)

    assert layer(x).shape == (2, 3, 4)
    torch.testing.assert_close(layer(x), functional.linear(x, layer.weight, layer.bias))


@pytest.mark.usefixtures("num_threads")
def test_result_of_a_row_is_repeatable():
    x, weight = torch.randn(8192, 64), torch.randn(64, 64)

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
