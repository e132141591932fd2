"""Curves by their formulas."""

import math

import pytest

from puffer_train.config import TrainConfig
from puffer_train.schedules import anneal, entropy_coefficient, learning_rate_factor


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("linear", [1, 0.75, 0.5, 0]), ("cosine", [1, (1 + math.sqrt(0.5)) / 2, 0.5, 0]), ("constant", [1, 1, 1, 1])],
)
def test_curves(schedule, expected):
    assert [anneal(schedule, p) for p in (0, 0.25, 0.5, 1)] == pytest.approx(expected)
    assert anneal(schedule, -1) == expected[0]
    assert anneal(schedule, 2) == pytest.approx(expected[-1])


def test_learning_rate_ends_at_its_ratio_and_may_stay():
    assert learning_rate_factor(TrainConfig(min_lr_ratio=0.1), 1.0) == pytest.approx(0.1)
    assert learning_rate_factor(TrainConfig(min_lr_ratio=0.1), 0.5) == pytest.approx(0.55)
    assert learning_rate_factor(TrainConfig(anneal_lr=False), 0.5) == 1.0


def test_entropy_goes_linearly_from_start_to_end_or_stays():
    config = TrainConfig(ent_coef=0.3, ent_coef_final=0.1)

    assert [entropy_coefficient(config, p) for p in (0, 0.5, 1, 2)] == pytest.approx([0.3, 0.2, 0.1, 0.1])
    assert entropy_coefficient(TrainConfig(ent_coef=0.3, ent_coef_final=None), 1.0) == 0.3
