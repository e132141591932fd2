"""The same seed gives the same run, whatever surrounds it and however its environments are split."""

import numpy as np
import pytest
import torch

from puffer_train.generator import PrivateGenerator


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("update_epochs", [1.0, 2.5])
def test_b7_same_seed_same_weights_bit_for_bit_and_another_seed_others(make_trainer, memory, update_epochs):
    def run(seed):
        with make_trainer(memory, seed=seed, update_epochs=update_epochs) as trainer:
            trainer.updates(3)
            return trainer.weights()

    first = run(5)
    torch.manual_seed(123)  # nobody else's random state matters
    np.random.seed(123)

    assert torch.equal(run(5), first)
    assert not torch.equal(run(6), first)


def test_the_global_random_state_is_left_alone(make_trainer):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    with make_trainer(policy=lambda _vec: None) as trainer:
        trainer.updates(2)

    assert torch.equal(torch.rand(3), expected)


def test_initial_weights_depend_on_the_seed_only(make_trainer):
    def run(seed):
        with make_trainer(policy=lambda _vec: None, seed=seed) as trainer:
            return trainer.weights()

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def test_the_private_random_state_goes_on_from_use_to_use():
    def draws(seed):
        generator = PrivateGenerator(seed, torch.device("cpu"))
        numbers = []
        for _ in range(2):
            with generator.use():
                numbers.append(torch.rand(4))
        return torch.cat(numbers)

    expected = torch.rand(8, generator=torch.Generator().manual_seed(3))

    assert torch.equal(draws(3), expected)


@pytest.mark.parametrize("vec_options", [{"backend": "threads", "num_workers": 2}, {"env_kwargs": {"num_envs": 1}}])
def test_b7_a_run_is_the_same_for_any_backend_and_split(make_trainer, vec_options):
    def run(options):
        with make_trainer(True, vec_options=options) as trainer:
            trainer.updates(2)
            return trainer.weights()

    assert torch.equal(run(vec_options), run({}))


def test_b7_each_world_has_a_start_of_its_own_that_follows_from_the_seed(make_trainer):
    def starts(seed):
        with make_trainer(seed=seed, vec_options={"backend": "threads", "num_workers": 2}) as trainer:
            trainer.evaluate()
            return trainer.experience.observations[:, 0].clone()

    first = starts(5)

    assert len(first.unique(dim=0)) == 8
    assert torch.equal(starts(5), first)
    assert not (starts(6) == first).all(dim=1).any()


def test_compile_traces_the_forward_pass_and_gives_the_same_run(make_trainer, monkeypatch):
    def run(**fields):
        with make_trainer(num_iterations=2, **fields) as trainer:
            trainer.updates(1)
            return trainer.weights()

    plain = run()
    compiled, compile_ = [], torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda function: compiled.append(function) or compile_(function, backend="eager")
    )

    torch.testing.assert_close(run(compile=True), plain, atol=1e-5, rtol=0)
    assert len(compiled) == 1
