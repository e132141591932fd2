import copy
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_policies import GRU, LSTM, AttentionMemory, MinGRU
from puffer_policies.rows import gather_rows, place_rows
from puffer_policies.scans import LinearScan, _doubling, recurrence
from puffer_policies.states import zero_where


class ShortAttention(AttentionMemory):
    """A window shorter than the segments of the tests."""

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size, window=4, num_heads=2)


MEMORIES = [LSTM, GRU, MinGRU, ShortAttention]


def step_by_step(memory, x, state, resets):
    """Run a memory as a rollout does: the state is zeroed before a step, then one step is taken."""
    outputs = []
    for t in range(x.shape[1]):
        state = zero_where(state, resets[:, t])
        output, state = memory.step(x[:, t], state)
        outputs.append(output)
    return torch.stack(outputs, 1), state


def random_state(memory, rows):
    """Return the state after some steps."""
    return memory.sequence(torch.randn(rows, 3, 5), memory.initial_state(rows))[1]


@pytest.mark.parametrize("kind", MEMORIES)
@given(seed=st.integers(0, 2**31), rate=st.sampled_from([0.0, 0.05, 0.3, 1.0]))
@settings(max_examples=12, deadline=None)
def test_sequence_with_resets_anywhere_equals_the_rollout(kind, seed, rate):
    torch.manual_seed(seed)
    memory = kind(5, 8)
    x, state, resets = torch.randn(4, 9, 5), random_state(memory, 4), torch.rand(4, 9) < rate

    outputs, after = memory.sequence(x, state, resets)

    expected, expected_after = step_by_step(memory, x, state, resets)
    torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=1e-5)
    for left, right in zip(after, expected_after, strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", MEMORIES)
@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_gradients_of_the_sequence_equal_those_of_the_rollout(kind, rate):
    memory = kind(5, 8)
    x = torch.randn(4, 9, 5, requires_grad=True)
    state = tuple(part.detach().requires_grad_() for part in random_state(memory, 4))
    resets = torch.rand(4, 9) < rate
    sources = [x, *state, *memory.parameters()]
    weights = torch.randn(4, 9, 8)
    finals = [torch.randn_like(part) for part in state]

    def gradients(run):
        outputs, after = run(x, state, resets)
        loss = (outputs * weights).sum() + sum((part * final).sum() for part, final in zip(after, finals, strict=True))
        return torch.autograd.grad(loss, sources, allow_unused=True, materialize_grads=True)

    got = gradients(memory.sequence)

    for left, right in zip(got, gradients(lambda *arguments: step_by_step(memory, *arguments)), strict=True):
        torch.testing.assert_close(left, right, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("kind", "layer"), [(LSTM, torch.nn.LSTM), (GRU, torch.nn.GRU)])
def test_sequence_and_step_equal_the_layer_of_torch(kind, layer):
    memory = kind(5, 8)
    torch.nn.init.normal_(memory.bias_hh_l0)
    torch.nn.init.normal_(memory.bias_ih_l0)
    theirs = layer(5, 8, batch_first=True)
    theirs.load_state_dict(memory.state_dict())
    x = torch.randn(4, 7, 5)
    expected = theirs(x)[0]

    state = memory.initial_state(4)
    never = torch.zeros(4, 7, dtype=torch.bool)
    torch.testing.assert_close(memory.sequence(x, state)[0], expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(step_by_step(memory, x, state, never)[0], expected, atol=1e-5, rtol=1e-5)


def test_placed_and_gathered_rows_pass_the_numerical_check_of_gradients():
    x = torch.randn(3, 2, dtype=torch.double, requires_grad=True)
    places, flags = torch.tensor([4, 0, 2]), torch.randn(6, 1, dtype=torch.double)

    placed = place_rows(x, places, flags)

    assert torch.equal(gather_rows(placed, places)[:, :2], x)
    assert torch.equal(placed[:, 2:], flags)
    assert torch.equal(placed[[1, 3, 5], :2], torch.zeros(3, 2))
    assert torch.autograd.gradcheck(lambda x: place_rows(x, places, flags), (x,))
    assert torch.autograd.gradcheck(lambda x: gather_rows(x, torch.tensor([2, 0])), (x,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_of_the_lstm_with_resets_equal_a_plain_lstm_run_in_pieces(dtype):
    memory = LSTM(5, 8).to(dtype)
    plain = torch.nn.LSTM(5, 8, batch_first=True, dtype=dtype)
    plain.load_state_dict(memory.state_dict())
    x = torch.randn(3, 9, 5, dtype=dtype, requires_grad=True)
    state = tuple(torch.randn(3, 8, dtype=dtype) for _ in range(2))
    resets = torch.zeros(3, 9, dtype=torch.bool)
    resets[0, 4] = resets[2, 7] = resets[2, 2] = True
    weights = torch.randn(3, 9, 8, dtype=dtype)

    got = torch.autograd.grad((memory.sequence(x, state, resets)[0] * weights).sum(), [x, *memory.parameters()])

    loss = torch.zeros((), dtype=dtype)
    for row in range(3):
        cuts = [0, *resets[row].nonzero().flatten().tolist(), 9]
        before = tuple(part[row].view(1, 1, 8) for part in state)
        for first, last in itertools.pairwise(cuts):
            outputs, _ = plain(x[row : row + 1, first:last], before)
            loss = loss + (outputs[0] * weights[row, first:last]).sum()
            before = tuple(torch.zeros_like(part) for part in before)
    for left, right in zip(got, torch.autograd.grad(loss, [x, *plain.parameters()]), strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)


def test_scan_passes_the_numerical_check_of_gradients():
    def double(*shape):
        return torch.randn(*shape, dtype=torch.double, requires_grad=True)

    assert torch.autograd.gradcheck(LinearScan.apply, (double(2, 5, 3), double(2, 5, 3), double(2, 3)))


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_dropped_state_has_no_influence_however_large(kind):
    memory = kind(5, 8)
    torch.nn.init.normal_(memory.bias_ih_l0)
    torch.nn.init.normal_(memory.bias_hh_l0)
    x = torch.randn(3, 6, 5)
    resets = torch.zeros(3, 6, dtype=torch.bool)
    resets[0, 0] = resets[1, 5] = resets[2, 2:5] = True
    huge = tuple(torch.full((3, 8), 1e3) for _ in memory.initial_state(3))

    outputs, after = memory.sequence(x, huge, resets)

    expected, expected_after = step_by_step(memory, x, huge, resets)
    torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=1e-5)
    for left, right in zip(after, expected_after, strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("horizon", [1, 2, 3, 8, 13])
def test_doubling_equals_the_loop(horizon):
    a, b, h = torch.rand(2, horizon, 3), torch.randn(2, horizon, 3), torch.randn(2, 3)
    a[torch.rand(2, horizon) < 0.2] = 0.0

    torch.testing.assert_close(_doubling(a.clone(), b.clone(), h), recurrence(a, b, h))
    torch.testing.assert_close(_doubling(a.flip(1), b.flip(1), h).flip(1), recurrence(a, b, h, backwards=True))


@pytest.mark.parametrize("kind", MEMORIES)
def test_rows_do_not_see_each_other(kind):
    memory = kind(5, 8)
    x, resets = torch.randn(3, 8, 5), torch.rand(3, 8) < 0.3
    changed = x.clone()
    changed[0] = torch.randn(8, 5)

    before = memory.sequence(x, memory.initial_state(3), resets)[0]
    after = memory.sequence(changed, memory.initial_state(3), resets)[0]

    assert torch.equal(before[1:], after[1:])
    assert not torch.equal(before[0], after[0])


@pytest.mark.parametrize("kind", MEMORIES)
def test_a_reset_forgets_everything_before_it(kind):
    memory = kind(5, 8)
    x = torch.randn(2, 8, 5)
    resets = torch.zeros(2, 8, dtype=torch.bool)
    resets[:, 4] = True

    whole = memory.sequence(x, random_state(memory, 2), resets)[0]

    fresh = memory.sequence(x[:, 4:], memory.initial_state(2))[0]
    torch.testing.assert_close(whole[:, 4:], fresh, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", MEMORIES)
def test_memories_copy_and_keep_only_their_parameters(kind):
    memory = kind(5, 8)
    twin = copy.deepcopy(memory)
    x = torch.randn(2, 3, 5)

    assert torch.equal(twin.sequence(x, twin.initial_state(2))[0], memory.sequence(x, memory.initial_state(2))[0])
    assert set(memory.state_dict()) == {name for name, _ in memory.named_parameters()}


@pytest.mark.parametrize("kind", MEMORIES)
def test_sequence_runs_under_bf16_autocast(kind):
    memory = kind(16, 8)
    x, resets = torch.randn(4, 6, 16), torch.rand(4, 6) < 0.3

    with torch.autocast("cpu", torch.bfloat16):
        outputs, _ = memory.sequence(x, memory.initial_state(4), resets)
    outputs.float().sum().backward()

    expected = memory.sequence(x, memory.initial_state(4), resets)[0]
    torch.testing.assert_close(outputs.float(), expected, atol=0.05, rtol=0.05)


def test_attention_sees_its_window_and_no_further():
    memory = ShortAttention(5, 8)
    x = torch.randn(1, 9, 5)
    outputs = memory.sequence(x, memory.initial_state(1))[0]

    for changed in range(9):
        other = x.clone()
        other[0, changed] += 1.0
        differs = (memory.sequence(other, memory.initial_state(1))[0] - outputs).abs().amax(-1)[0] > 1e-6
        assert differs.tolist() == [changed <= t < changed + 4 for t in range(9)]


def test_attention_does_not_depend_on_the_step_count():
    memory = ShortAttention(5, 8)
    x = torch.randn(2, 12, 5)

    whole = memory.sequence(x, memory.initial_state(2))[0]

    torch.testing.assert_close(memory.sequence(x[:, 5:], memory.initial_state(2))[0][:, 3:], whole[:, 8:])


def test_attention_refuses_sizes_that_do_not_divide():
    with pytest.raises(ValueError, match="hidden_size must be a multiple of 2 \\* num_heads"):
        AttentionMemory(5, 12, num_heads=4)


@pytest.mark.parametrize("kind", [LSTM, GRU, MinGRU])
@pytest.mark.parametrize(("num_rows", "num_inputs"), [(2, 6), (4, 6), (1, 6), (3, 5)])
def test_inputs_and_states_that_do_not_fit_are_refused(kind, num_rows, num_inputs):
    memory = kind(6, 8)
    state = memory.initial_state(num_rows)
    resets = torch.tensor([[True, False], [False, True], [False, False]])

    for call in (
        lambda: memory.step(torch.zeros(3, num_inputs), state),
        lambda: memory.sequence(torch.zeros(3, 2, num_inputs), state),
        lambda: memory.sequence(torch.zeros(3, 2, num_inputs), state, resets),
    ):
        with pytest.raises(ValueError, match=r"must get inputs \(rows, \.\.\., 6\) and a state of as many rows"):
            call()
