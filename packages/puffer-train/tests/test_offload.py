"""Observations that stay in host memory change no result."""

import pytest
import torch

from puffer_train.experience import Experience


@pytest.mark.parametrize("memory", [False, True])
def test_results_are_the_same(make_trainer, equal, memory):
    results = []
    for cpu_offload in (False, True):
        with make_trainer(memory=memory, cpu_offload=cpu_offload) as trainer:
            losses = trainer.updates(2)
            results.append((losses, dict(trainer.policy.state_dict())))

    assert results[0][0] == results[1][0]
    assert equal(results[0][1], results[1][1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_only_observations_stay_in_pinned_host_memory():
    experience = Experience(
        num_agents=2,
        segments_per_agent=1,
        horizon=3,
        observation_shape=(4,),
        observation_dtype=torch.float32,
        action_shape=(),
        action_dtype=torch.int64,
        device="cuda",
        offload=True,
    )
    rows = torch.tensor([1], device="cuda")
    experience.write("observations", rows, 1, torch.ones(1, 4, device="cuda"))
    experience.write_end(rows, 3, torch.ones(1, 4, device="cuda"), torch.ones(1, dtype=torch.bool, device="cuda"))

    assert experience.observations.is_pinned()
    assert experience.values.is_cuda
    assert experience.observations[1, 1].tolist() == [1.0] * 4
    assert experience.next_observations[1].tolist() == [1.0] * 4
