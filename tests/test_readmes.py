"""Every code block of every README runs.

Python blocks of one page run in order, as one program, in an empty folder. Of the shell blocks, the lines
that install or run the whole test suite are what the `wheels` session and CI themselves do: here their paths
are checked. Lines that start `puffer` run, cut short to a few thousand steps.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("packages/**/README.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHORT = ["--train.total-timesteps", "20000", "--run.dashboard", "none"]


def blocks(page: Path, language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall(page.read_text()) if kind == language]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=named)
def test_python_blocks_run_in_order(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks(page, "python")))

    done = subprocess.run([sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "bash")], ids=named)
def test_shell_lines_run(page: Path, tmp_path: Path) -> None:
    for line in "\n".join(blocks(page, "bash")).splitlines():
        for command in [part.strip() for part in line.split("#")[0].split("&&")]:
            check_command(command, page, tmp_path)


def check_command(command: str, page: Path, folder: Path) -> None:
    words = command.split()
    if not words:
        return
    if words[0] == "puffer":
        cut = SHORT if words[1:2] == ["train"] else []
        done = subprocess.run(
            [str(Path(sys.executable).parent / "puffer"), *words[1:], *cut],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    else:
        assert words[0] in {"pip", "nox", "git", "cd"}, f"{page}: no test for the command {command!r}"
        for word in words[1:]:
            if word.startswith("./"):
                assert list(ROOT.glob(word.removeprefix("./").split("[")[0])), (
                    f"{page} names {word}, which is not there"
                )
