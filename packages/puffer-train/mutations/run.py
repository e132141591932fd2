"""Break the trainer in the ways that faults.toml lists, one at a time, and see whether the tests notice.

Each fault is applied to a copy of the package in a temporary folder, whose tests then run against the copy: those that
concern the file, and if they pass, the whole suite. The exit code is 1 if a fault survives, if its old text is not in
its file exactly once, or if it breaks more than it should, so that no test ran.

Usage: python run.py [word ...]    # only faults whose name or file has one of the words
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
MODULE = "puffer_train"
NUM_AT_ONCE = 2
TIMEOUT_S = 900


@dataclass(frozen=True)
class Fault:
    """One deliberate fault.

    Attributes:
        name: What goes wrong, in a few words.
        file: Source file, relative to the module.
        old: Text that is in the file exactly once.
        new: What takes its place.
        why: Why the result is wrong.
        tests: Test files that run first. Empty: those that the table names for the file.
    """

    name: str
    file: str
    old: str
    new: str
    why: str
    tests: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Verdict:
    """What became of a fault: `caught`, `survived` or `error`, and by which test or why."""

    kind: str
    detail: str


class Copy:
    """A copy of the package that tests can run against.

    Args:
        root: Its folder, which stands for the root of the repository.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.package = root / "packages" / PACKAGE.name
        self.source = self.package / "src" / MODULE

    @classmethod
    def make(cls, root: Path) -> Copy:
        """Copy the package as it is, with its compiled modules as they are installed."""
        copy = cls(root)
        ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "*.c")
        for name in ("src", "tests"):
            shutil.copytree(PACKAGE / name, copy.package / name, ignore=ignored)
        for path in PACKAGE.iterdir():
            if path.is_file():
                shutil.copy(path, copy.package)
        shutil.copy(PACKAGE.parents[1] / "pyproject.toml", root)
        for module in compiled_modules():
            shutil.copy(module, copy.source)
        return copy

    def clone(self, root: Path) -> Copy:
        """Copy this copy."""
        shutil.copytree(self.root, root)
        return Copy(root)

    def apply(self, fault: Fault) -> None:
        """Put a fault into the sources.

        Raises:
            ValueError: If its old text is not there exactly once.
        """
        path = self.source / fault.file
        text = path.read_text()
        count = text.count(fault.old)
        if count != 1:
            raise ValueError(f"its old text must be in {fault.file} exactly once; it is there {count} times")
        path.write_text(text.replace(fault.old, fault.new))
        if path.suffix == ".pyx":
            self._compile()

    def test(self, names: list[str]) -> subprocess.CompletedProcess[str]:
        """Run test files, or with no names all of them, until the first failure."""
        tests = [f"packages/{PACKAGE.name}/tests/{name}" for name in names or [""]]
        return self._run("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests)

    def check(self) -> None:
        """Check that Python finds this copy, not the package that is installed."""
        found = self._run("-c", f"import {MODULE}; print({MODULE}.__file__)").stdout.strip()
        if not Path(found).is_relative_to(self.root.resolve()):
            raise RuntimeError(f"tests must run against the copy in {self.root}; they found {found}")

    def _compile(self) -> None:
        for module in self.source.glob("*.so"):
            module.unlink()
        program = (
            "import pathlib, shutil, hatch_build\n"
            f"for module in hatch_build.NativeBuild(pathlib.Path({str(self.package)!r})).run():\n"
            f"    shutil.copy(module, {str(self.source)!r})\n"
        )
        built = subprocess.run([sys.executable, "-c", program], cwd=self.package, capture_output=True, text=True)
        if built.returncode:
            raise ValueError(f"its native code must compile; {built.stderr.strip().splitlines()[-1]}")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        paths = [str(self.package / "src"), os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=self.root, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)


def compiled_modules() -> list[Path]:
    """Return the compiled modules of the package as it is installed."""
    spec = importlib.util.find_spec(MODULE)
    assert spec is not None
    assert spec.origin is not None
    return sorted(path for path in Path(spec.origin).parent.iterdir() if path.suffix in {".so", ".pyd"})


def read_table() -> tuple[dict[str, list[str]], list[Fault]]:
    """Return the test files of each source file, and the faults."""
    table = tomllib.loads((Path(__file__).parent / "faults.toml").read_text())
    return table["tests"], [Fault(**entry) for entry in table["fault"]]


def judge(fault: Fault, tests: list[str], copy: Copy) -> Verdict:
    """Apply a fault to a copy of its own and run the tests: those named first, then all."""
    try:
        copy.apply(fault)
        for names in (tests, []):
            result = copy.test(names)
            if result.returncode == 1:
                return Verdict("caught", _first_failure(result.stdout) + ("" if names else " (whole suite)"))
            if result.returncode:
                return Verdict("error", _last_line(result.stdout + result.stderr))
    except ValueError as error:
        return Verdict("error", str(error))
    except subprocess.TimeoutExpired:
        return Verdict("error", f"the tests did not end in {TIMEOUT_S} s")
    finally:
        shutil.rmtree(copy.root)
    return Verdict("survived", fault.why)


def _first_failure(output: str) -> str:
    failures = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failures[0].split(" - ")[0].rpartition("/")[2] if failures else _last_line(output)


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no output"])[-1]


def verdicts(faults: list[Fault], tests_of: dict[str, list[str]], sound: Copy) -> Iterator[tuple[Fault, Verdict]]:
    """Judge all faults, some at once, and yield each with its verdict in the order of the table."""

    def judged(number: int, fault: Fault) -> Verdict:
        copy = sound.clone(sound.root.with_name(f"fault-{number}"))
        return judge(fault, fault.tests or tests_of[fault.file], copy)

    with ThreadPoolExecutor(NUM_AT_ONCE) as pool:
        yield from zip(faults, pool.map(judged, range(len(faults)), faults), strict=True)


def main(words: list[str]) -> int:
    """Judge the faults and print a line for each. Return the exit code."""
    started = time.perf_counter()
    tests_of, faults = read_table()
    faults = [fault for fault in faults if not words or any(w in f"{fault.name} {fault.file}" for w in words)]
    with tempfile.TemporaryDirectory(prefix="puffer-faults-") as name:
        sound = Copy.make(Path(name) / "sound")
        sound.check()
        result = sound.test(sorted({test for fault in faults for test in fault.tests or tests_of[fault.file]}))
        if result.returncode:
            _say(result.stdout + result.stderr)
            _say("the tests must pass without a fault before they can be judged by faults")
            return 1
        missed = 0
        for fault, verdict in verdicts(faults, tests_of, sound):
            _say(f"{verdict.kind:8}  {fault.file}: {fault.name}  <-  {verdict.detail}")
            missed += verdict.kind != "caught"
    _say(f"{len(faults) - missed} of {len(faults)} faults caught in {time.perf_counter() - started:.0f} s")
    return 1 if missed or not faults else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
