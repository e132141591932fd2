"""What the processes of a run check of each other, without starting any."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from puffer_train.config import ConfigError, TrainConfig
from puffer_train.device import choose_device
from puffer_train.distributed import RankError, Ranks, check_agreement


@dataclass(frozen=True)
class Pair(Ranks):
    """Rank 0 of two; what the other one says is known."""

    world_size: int = 2
    other: Any = field(default=None)

    def all(self, value):
        return [value, self.other]


def vector(first_world=0, num_envs=4, num_agents=8):
    return SimpleNamespace(
        num_envs=num_envs, num_agents=num_agents, world_ids=np.arange(first_world, first_world + num_envs)
    )


def settings(**fields):
    config = TrainConfig.from_fields(fields)
    return {name: value for name, value in config.__dict__.items() if name not in ("device", "cpu_threads")}


def test_parts_of_one_numbering_with_equal_settings_agree():
    check_agreement(Pair(other=(4, 4, 8, settings())), vector(), TrainConfig(device="cpu"))
    check_agreement(Ranks(), vector(first_world=77), TrainConfig())


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ((0, 4, 8, settings()), r"got first_world=\[0, 0\] with num_envs=4 each. .*Ranks.join\(\).share\(8\)"),
        ((4, 5, 8, settings()), r"as many worlds and agents; got num_envs=\[4, 5\]"),
        ((4, 4, 8, settings(seed=9)), r"the same settings; got seed=\[1, 9\]"),
    ],
)
def test_what_processes_do_not_agree_on_is_named(other, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check_agreement(Pair(other=other), vector(), TrainConfig())


def test_a_process_alone_meets_nobody():
    ranks = Ranks.join()

    assert ranks == Ranks(0, 1)
    assert ranks.share(6) == {"num_envs": 6, "first_world": 0}
    assert ranks.all("x") == ranks.gather("x") == ["x"]
    assert ranks.sum_(torch.ones(2)).tolist() == [1.0, 1.0]
    ranks.wait()


def test_a_lost_connection_is_one_sentence(monkeypatch):
    def fail(*_arguments, **_options):
        raise RuntimeError("Connection closed by peer [127.0.0.1]\nmore of it")

    monkeypatch.setattr(torch.distributed, "all_reduce", fail)

    with pytest.raises(RankError, match=r"one ended or did not answer in time \(Connection closed by peer"):
        Ranks(0, 2).sum_(torch.ones(1))


@pytest.mark.parametrize("is_given_elsewhere", [True, False])
def test_gradients_are_summed_where_any_process_has_one(monkeypatch, is_given_elsewhere):
    ours = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((2, 3), (4,), ())]
    ours[0].grad, ours[2].grad = torch.ones(2, 3), torch.tensor(5.0)
    theirs = torch.cat([torch.full((6,), 2.0), 3.0 * is_given_elsewhere * torch.ones(4), torch.ones(1)])
    flags = torch.tensor([1.0, float(is_given_elsewhere), 1.0])
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda flat: flat.add_(torch.cat([theirs, flags])))

    Ranks(0, 2).sum_gradients_(ours)

    assert ours[0].grad.tolist() == [[3.0] * 3] * 2
    assert ours[2].grad.item() == 6.0
    assert ours[1].grad.tolist() == [3.0] * 4 if is_given_elsewhere else ours[1].grad is None


def test_each_process_takes_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch, "zeros", lambda *_shape, device: SimpleNamespace(item=lambda: 0.0))

    assert [str(choose_device(name, rank)) for name in ("auto", "cuda") for rank in range(3)] == [
        *("cuda:0", "cuda:1", "cuda:0"),
        *("cuda:0", "cuda:1", "cuda:0"),
    ]
    assert str(choose_device("cuda:1", 0)) == "cuda:1"


def test_a_state_of_more_processes_begins_new_episodes(make_trainer, equal):
    with make_trainer() as trainer:
        trainer.updates(2)
        state = trainer.state_dict()
    state["other_ranks"] = [{"generator": state["generator"]}]
    with make_trainer() as trainer:
        trainer.load_state_dict(state)
        assert trainer.epoch == 2
        assert equal(dict(trainer.policy.state_dict()), dict(state["policy"]))
        assert trainer.updates(1)["num_minibatches"] > 0
