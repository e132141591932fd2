"""Measuring envs, in Python and on the command line."""

import io
import json
import runpy
import sys

import pytest

import puffer_vector
from puffer_spaces import register
from puffer_vector.autotune import _settings
from puffer_vector.command import bench


def test_autotune_returns_settings_that_make_takes_and_prints_a_table(envs):
    out = io.StringIO()
    settings = puffer_vector.autotune(envs.Walk, 4, seconds=0.02, file=out)

    with puffer_vector.make(envs.Walk, 4, **settings) as vector:
        assert vector.num_envs == 4
    lines = out.getvalue().splitlines()
    assert "steps/s" in lines[1]
    assert {line.split()[0] for line in lines[2:]} == {"serial", "threads", "processes"}
    assert sum("<- fastest" in line for line in lines) == 1


def test_only_sizes_that_fit_are_tried():
    tried = _settings(6, ["serial", "threads", "processes"], [1, 2, 4], [6, 3])

    assert [(one["backend"], one["num_workers"], one["batch_size"]) for one in tried] == [
        ("serial", None, 6),
        ("threads", 2, 6),
        ("threads", 2, 3),
        ("processes", 1, 6),
        ("processes", 2, 6),
        ("processes", 2, 3),
    ]


def test_an_env_that_never_works_is_an_error(envs):
    with pytest.raises(RuntimeError, match=r"none worked.*boom in reset"):
        puffer_vector.autotune(
            lambda buf=None: envs.Counter(fails_at="reset"), 2, backends=["serial"], file=io.StringIO()
        )


def test_the_command_prints_a_table_or_json(envs, capsys):
    register("test-walk", envs.Walk, batched=True)
    words = ["test-walk", "--num-envs", "4", "--backends", "serial", "threads", "--seconds", "0.02"]
    assert bench([*words, "--env-kwargs", "agents=2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["env"] == "test-walk"
    assert all(trial["steps_per_second"] > 0 for trial in found["trials"])
    assert bench(words) == 0
    assert "<- fastest" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["test-wolk"], "environment id must be a registered one"),
        (["no_such_module:Env"], "No module named"),
        (["math:pi", "--backends", "serial"], "env must be"),
        (["test-walk", "--env-kwargs", "agents"], "must be NAME=VALUE"),
        (["test-walk", "--env-kwargs", "colour=red", "--backends", "serial"], "colour"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence_and_exit_code_2(envs, capsys, words, text):
    register("test-walk", envs.Walk, batched=True)
    assert bench(words) == 2
    err = capsys.readouterr().err
    assert text in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [(["--help"], 0, "usage: {} "), (["no_such_module:Env"], 2, "{}: No module named")],
)
def test_the_command_calls_itself_what_it_was_called_by(monkeypatch, capsys, words, code, text):
    monkeypatch.setattr(sys, "argv", ["__main__.py", *words])
    with pytest.raises(SystemExit) as module_exit:
        runpy.run_module("puffer_vector", run_name="__main__")
    module_says = "".join(capsys.readouterr())
    with pytest.raises(SystemExit) as command_exit:
        sys.exit(bench(words))
    command_says = "".join(capsys.readouterr())

    assert (module_exit.value.code, command_exit.value.code) == (code, code)
    assert module_says.startswith(text.format("python -m puffer_vector"))
    assert "puffer bench" not in module_says
    assert command_says.startswith(text.format("puffer bench"))
