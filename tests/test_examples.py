"""Every example, and the template of an environment, runs as its first lines say, cut short."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PUFFER = str(Path(sys.executable).parent / "puffer")
ROOT = Path(__file__).parents[1]
EXAMPLES = [*sorted((ROOT / "examples").rglob("*.py")), ROOT / "scripts" / "env_template.py"]
COMMANDS = [
    pytest.param(path, command, id=command)
    for path in EXAMPLES
    for command in re.findall(r"^    puffer (train .*)$", path.read_text(), re.MULTILINE)
]
SHORT = ["--train.total-timesteps", "2000", "--train.cpu-threads", "1", "--run.dashboard", "plain"]


def run(words: list[str], path: Path, folder: Path) -> str:
    # Modules are found in the example's folder, and nothing is left there.
    environment = {**os.environ, "PYTHONPATH": str(path.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_as_a_script(path: Path, tmp_path: Path) -> None:
    assert " steps" in run([sys.executable, str(path), "2000"], path, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_it_runs_from_the_command_line(path: Path, command: str, tmp_path: Path) -> None:
    assert "checkpoint: " in run([PUFFER, *command.split(), *SHORT], path, tmp_path)
