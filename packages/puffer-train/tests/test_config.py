"""Settings: help, presets, aliases, and a clear sentence for each bad combination."""

import ast
import dataclasses
import inspect
import itertools
import types

import pytest
from gymnasium.spaces import Box

from puffer_train.config import (
    ALIASES,
    CHANGEABLE,
    PRESETS,
    ConfigError,
    PolicyConfig,
    RunConfig,
    TrainConfig,
    VecConfig,
)

EIGHT_AGENTS = types.SimpleNamespace(num_agents=8, single_observation_space=Box(-1, 1, (3,)))


@pytest.mark.parametrize("config_class", [TrainConfig, VecConfig, PolicyConfig, RunConfig])
def test_every_field_has_one_sentence_of_help(config_class):
    body = ast.parse(inspect.getsource(config_class)).body[0].body
    helps = {
        field.target.id: following.value.value
        for field, following in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(following, ast.Expr)
    }

    for field in dataclasses.fields(config_class):
        assert helps[field.name].endswith("."), field.name


def test_defaults_pass_the_checks_and_presets_name_real_fields():
    names = {field.name for field in dataclasses.fields(TrainConfig)}

    for preset, fields in PRESETS.items():
        assert fields.keys() <= names
        TrainConfig.from_fields({"preset": preset}).check(EIGHT_AGENTS)
    assert set(ALIASES.values()) <= names
    assert names >= CHANGEABLE
    assert not ALIASES.keys() & names


def test_explicit_fields_win_over_the_preset_and_the_preset_over_defaults():
    config = TrainConfig.from_fields({"preset": "cleanrl", "gamma": 0.5})

    assert (config.gamma, config.horizon, config.normalize_advantages) == (0.5, 128, "minibatch")


def test_aliases_and_words_of_other_libraries():
    config = TrainConfig.from_fields({"bptt_horizon": 16, "n_epochs": 3, "norm_adv": False, "batch_size": "auto"})

    assert (config.horizon, config.update_epochs, config.normalize_advantages, config.batch_size) == (
        16,
        3,
        "none",
        None,
    )


def test_resolving_fills_in_sizes():
    resolved = TrainConfig(horizon=16).resolve(EIGHT_AGENTS)

    assert (resolved.batch_size, resolved.minibatch_size) == (128, 32)
    assert TrainConfig(horizon=16).resolve(types.SimpleNamespace(num_agents=1)).minibatch_size == 16
    assert TrainConfig(horizon=16).resolve(EIGHT_AGENTS, 2).batch_size == 256


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"learnin_rate": 1.0}, "Did you mean learning_rate"),
        ({"horizon": 8, "num_steps": 8}, "given once; got horizon also under the name num_steps"),
        ({"preset": "clean"}, "preset must be one of default, cleanrl, puffer3; got 'clean'"),
        ({"preset": 3}, "preset must be one of default, cleanrl, puffer3; got 3"),
        ({"preset": ["default"]}, "preset must be one of default, cleanrl, puffer3; got ['default']"),
        ({"seed": 2**64}, "seed must fit 64 bits; got 18446744073709551616"),
        ({"optimizer": "sgd"}, "optimizer must be one of adamw, adam, muon; got 'sgd'"),
        ({"horizon": 1.5}, "horizon must be int; got 1.5"),
        ({"gamma": "0.9"}, "gamma must be float; got '0.9'"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number"),
        ({"compile": 1}, "compile must be bool"),
        ({"gamma": 1.5}, "gamma must be between 0 and 1; got 1.5"),
        ({"adam_beta1": 1.0}, "adam_beta1 must be at least 0 and below 1; got 1.0"),
        ({"adam_beta2": 1}, "adam_beta2 must be at least 0 and below 1; got 1"),
        ({"muon_momentum": 1.0}, "muon_momentum must be at least 0 and below 1"),
        ({"rank_timeout_s": 0.0}, "rank_timeout_s must be greater than 0"),
        ({"horizon": 0}, "horizon must be at least 1; got 0"),
        ({"clip_coef": 0.0}, "clip_coef must be greater than 0"),
        ({"ent_coef": -1.0}, "ent_coef must not be negative"),
        ({"recompute_advantages": "minibatch"}, "recompute_advantages must be never or epoch"),
        ({"preset": "puffer3", "minibatch_unit": "transition"}, "minibatch_unit must be segment"),
    ],
)
def test_bad_values_are_named(fields, message):
    with pytest.raises(ConfigError) as caught:
        TrainConfig.from_fields(fields)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": 100, "horizon": 16}, "Use batch_size=128"),
        ({"horizon": 16, "minibatch_size": 256}, "batch_size must be at least minibatch_size"),
        ({"horizon": 16, "minibatch_size": 40}, "minibatch_size must be a multiple of horizon"),
        ({"horizon": 16, "minibatch_size": 48}, "batch_size must be a multiple of minibatch_size"),
        ({"horizon": 16, "segment_blocks": 3}, "segment_blocks=3"),
        ({"horizon": 16, "microbatch_size": 24}, "microbatch_size must be a multiple of horizon"),
    ],
)
def test_sizes_that_do_not_divide_are_named_with_what_would(fields, message):
    with pytest.raises(ConfigError) as caught:
        TrainConfig.from_fields(fields).check(EIGHT_AGENTS)

    assert message in str(caught.value)


def test_configs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().gamma = 0.5


def test_the_puffer3_objective_has_one_process():
    with pytest.raises(ConfigError, match="objective=puffer3 must have one process; got 2"):
        TrainConfig.from_fields({"preset": "puffer3"}).check(EIGHT_AGENTS, 2)
