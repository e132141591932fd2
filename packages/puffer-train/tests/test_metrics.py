import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_train.metrics import FiniteFilter, Metrics, interval_row, process_uptime_s

DTYPE = np.dtype(
    [
        ("step", "i8"),
        ("world", "i8"),
        ("agent", "i4"),
        ("episode_return", "f8"),
        ("episode_length", "i8"),
        ("score", "f8"),
        ("perf", "f8"),
        ("bricks", "f8"),
    ]
)


def records(*rows: tuple) -> np.ndarray:
    return np.array(list(rows), dtype=DTYPE)


def test_means_over_records():
    metrics = Metrics()
    metrics.add_episodes(records((1, 0, 0, 2.0, 10, 3.0, np.nan, 5.0)))
    metrics.add_episodes(records((2, 1, 0, 4.0, 20, 5.0, np.nan, 7.0), (2, 2, 0, 6.0, 30, 7.0, np.nan, 9.0)))

    assert metrics.means() == {
        "environment/episode_return": 4.0,
        "environment/episode_length": 20.0,
        "environment/score": 5.0,
        "environment/bricks": 7.0,
        "environment/num_episodes": 3.0,
    }


def test_no_episodes_give_no_metrics():
    assert Metrics().means() == {}


@settings(max_examples=30, deadline=None)
@given(returns=st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=20), data=st.data())
def test_means_do_not_depend_on_the_order_of_delivery(returns, data):
    rows = [(step // 3, step % 3, 0, value, 1, value, 0.5, 0.0) for step, value in enumerate(returns)]
    shuffled = data.draw(st.permutations(rows))
    one, other = Metrics(), Metrics()
    one.add_episodes(records(*rows))
    for row in shuffled:
        other.add_episodes(records(row))

    assert one.means() == other.means()


def test_dicts_of_means_are_weighted_by_their_number_of_episodes():
    metrics = Metrics()
    metrics.add_infos(
        [{}, {"score": 1.0, "episode_return": 2.0, "n": 3.0}, {"score": 5.0, "episode_return": 6.0, "n": 1.0}]
    )

    means = metrics.means()

    assert means == {
        "environment/score": 2.0,
        "environment/episode_return": 3.0,
        "environment/num_episodes": 4.0,
    }


def test_b17_infos_may_nest_and_hold_arrays_and_text():
    metrics = Metrics()
    metrics.add_infos(
        [{"episode": {"kills": np.int64(3)}, "heights": np.array([1.0, 3.0]), "name": "x", "won": True, "bad": np.nan}]
    )

    assert metrics.means() == {
        "environment/episode/kills": 3.0,
        "environment/heights": 2.0,
        "environment/won": 1.0,
    }


def test_an_info_does_not_count_what_the_records_counted():
    metrics = Metrics()
    metrics.add_episodes(records((1, 0, 0, 2.0, 10, 3.0, 0.5, 5.0)))
    metrics.add_infos([{"episode_return": 100.0, "kills": 4, "n": 9}])

    assert metrics.means()["environment/episode_return"] == 2.0
    assert metrics.means()["environment/kills"] == 4.0
    assert metrics.means()["environment/num_episodes"] == 1.0


def test_a_restored_interval_goes_on_exactly():
    metrics = Metrics()
    metrics.add_episodes(records((1, 0, 0, 2.0, 10, 3.0, 0.5, 5.0)))
    metrics.add_infos([{"kills": 4}])
    restored = Metrics()
    restored.load_state_dict(metrics.state_dict())
    for one in (metrics, restored):
        one.add_episodes(records((2, 0, 0, 1.0, 11, 3.3, 0.1, 5.5)))
        one.add_infos([{"kills": 5}])

    assert restored.means() == metrics.means()
    restored.clear()
    assert restored.means() == {}


def test_an_interval_has_the_known_keys():
    row = interval_row(
        agent_steps=10,
        agent_steps_per_second=5.0,
        uptime_s=2.0,
        epoch=1,
        learning_rate=1e-3,
        ent_coef=0.01,
        environment={"environment/score": 1.0},
        losses={"policy": 0.1},
        speeds={"train": 9.0},
        performance={"rollout": 0.5},
    )

    assert list(row) == [
        "agent_steps",
        "SPS",
        "uptime",
        "epoch",
        "learning_rate",
        "ent_coef",
        "SPS/train",
        "environment/score",
        "losses/policy",
        "performance/rollout",
    ]


def test_only_finite_numbers_pass_with_one_warning():
    passing = FiniteFilter()
    row = {
        "float": 0.5,
        "int": 3,
        "bool": True,
        "numpy": np.float32(1.5),
        "torch": torch.tensor(2.0),
        "one": np.array([4]),
        "nan": float("nan"),
        "inf": np.inf,
        "none": None,
        "text": "x",
        "array": np.zeros(3),
    }

    with pytest.warns(RuntimeWarning, match=r"must be finite numbers; left out: nan=nan, inf=inf, none=None"):
        numbers = passing(row)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        passing(row)

    assert numbers == {"float": 0.5, "int": 3, "bool": 1, "numpy": 1.5, "torch": 2.0, "one": 4}
    assert {type(value) for value in numbers.values()} == {int, float}


def test_uptime_counts_from_the_start_of_the_process():
    assert 0 < process_uptime_s() < 24 * 3600
