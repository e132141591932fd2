"""The doors between packages that import-linter cannot see."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = {path.parent.name for path in ROOT.glob("packages/*/src/*/__init__.py")}


def own_module(path: Path) -> str:
    return path.relative_to(ROOT / "packages").parts[2]


@pytest.mark.parametrize("path", sorted(ROOT.glob("packages/*/src/**/*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_sibling_is_imported_through_its_root_only(path: Path) -> None:
    deep = []
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        deep += [n for n in names if "." in n and n.split(".")[0] in MODULES - {own_module(path)}]

    assert deep == []


@pytest.mark.parametrize("path", sorted(ROOT.glob("packages/*/src/**/*.p[yx][xd]")), ids=lambda p: p.name)
def test_no_compiled_module_cimports_a_sibling(path: Path) -> None:
    siblings = MODULES - {own_module(path)}

    assert not [m for m in siblings if f"cimport {m}" in path.read_text() or f"from {m}" in path.read_text()]


def test_import_has_no_effects(tmp_path: Path) -> None:
    program = """
import os, signal, sys, threading, warnings
import gymnasium, numpy
filters, handlers = list(warnings.filters), [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
import puffer_spaces, puffer_vector, puffer_ocean, puffer_emulate
assert "torch" not in sys.modules, "torch was imported"
assert warnings.filters == filters
assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
assert threading.active_count() == 1
assert os.listdir(".") == []
"""
    tmp_path.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-B", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_siblings_bound_each_other_at_their_own_version() -> None:
    projects = [tomllib.loads(p.read_text())["project"] for p in ROOT.glob("packages/*/pyproject.toml")]
    versions = {project["name"]: project["version"] for project in projects}
    for project in projects:
        extras = [r for group in project.get("optional-dependencies", {}).values() for r in group]
        for requirement in [*project["dependencies"], *extras]:
            name = requirement.split(">")[0].split("[")[0]
            if name in versions:
                major, minor = versions[name].split(".")[:2]
                assert requirement.endswith(f">={major}.{minor},<{major}.{int(minor) + 1}"), requirement


def test_every_package_has_its_pages() -> None:
    for package in ROOT.glob("packages/*"):
        for page in ("README.md", "CHANGELOG.md", "pyproject.toml", "tests"):
            assert (package / page).exists(), f"{package.name} lacks {page}"
