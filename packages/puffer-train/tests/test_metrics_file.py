import errno
import json
import os

import pytest

from puffer_train.metrics_file import MetricsFile, read_metrics


def test_each_line_is_a_whole_object_at_once(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.log({"agent_steps": 1, "x": 0.1})
    file.log({"agent_steps": 2, "x": 1e-30})

    assert read_metrics(file.path) == [{"agent_steps": 1, "x": 0.1}, {"agent_steps": 2, "x": 1e-30}]
    assert read_metrics(file.path.parent) == read_metrics(file.path)
    file.close()
    file.close()


def test_a_line_that_a_crash_cut_is_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"agent_steps": 1}\n{"agent_st')
    assert read_metrics(path) == [{"agent_steps": 1}]

    file = MetricsFile(path)
    file.log({"agent_steps": 2})
    file.close()

    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"agent_steps": 1}, {"agent_steps": 2}]


def test_a_resumed_run_cuts_what_came_after_its_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"agent_steps": {steps}}}\n' for steps in (50, 100, 150)))

    file = MetricsFile(path, after_agent_steps=100)
    file.log({"agent_steps": 130})
    file.close()

    assert [row["agent_steps"] for row in read_metrics(path)] == [50, 100, 130]
    assert [other.name for other in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_line_that_is_no_object_is_named_on_resume(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"agent_steps": 1}\nspoilt\n')

    with pytest.raises(ValueError, match=r"each line of .*metrics\.jsonl must be a JSON object; got b'spoilt"):
        MetricsFile(path, after_agent_steps=5)

    assert path.read_text() == '{"agent_steps": 1}\nspoilt\n'


def test_half_a_line_on_a_full_disk_is_an_error(tmp_path, monkeypatch):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    monkeypatch.setattr(os, "write", lambda _descriptor, line: len(line) // 2)

    with pytest.raises(OSError) as raised:  # noqa: PT011
        file.log({"agent_steps": 1})

    assert raised.value.errno == errno.ENOSPC
    file.close()
