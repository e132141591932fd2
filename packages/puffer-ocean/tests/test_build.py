"""The build hook: what it compiles with, what it notices, and what is in the source archive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

import puffer_ocean

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "puffer_ocean"

pytest.importorskip("hatchling")
pytest.importorskip("Cython")
pytest.importorskip("setuptools")


@pytest.fixture(scope="module")
def hook():
    import importlib.util

    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def archive(tmp_path):
    """The source archive, built and unpacked where no repository is near."""
    from hatchling.builders.sdist import SdistBuilder

    file = next(SdistBuilder(str(ROOT)).build(directory=str(tmp_path / "dist")))
    with tarfile.open(file) as contents:
        contents.extractall(tmp_path / "unpacked", filter="data")
    return next((tmp_path / "unpacked").iterdir())


def test_the_source_archive_has_every_source(archive):
    kept = {path.relative_to(ROOT) for path in SOURCES.rglob("*") if path.is_file()}
    wanted = {path for path in kept if path.suffix not in {".so", ".pyc"} and "__pycache__" not in path.parts}
    packed = {path.relative_to(archive) for path in archive.rglob("*") if path.is_file()}

    assert wanted <= packed
    assert {Path(name) for name in ("hatch_build.py", "pyproject.toml", "README.md", "CHANGELOG.md")} <= packed
    assert not [path for path in packed if path.suffix in {".so", ".o"} or path.parts[0] == "build"]


@pytest.mark.parametrize("platform", [("Darwin", "arm64"), ("Linux", "aarch64"), ("Linux", "x86_64")])
@pytest.mark.parametrize("mode", ["release", "debug", "sanitize"])
def test_flags_are_the_same_on_every_machine(hook, monkeypatch, platform, mode):
    import platform as platforms

    monkeypatch.setattr(platforms, "system", lambda: platform[0])
    monkeypatch.setattr(platforms, "machine", lambda: platform[1])
    build = hook.NativeBuild(ROOT, mode)
    flags = " ".join([*build.compile_args, *build.strict_args, *build.link_args]).lower()

    assert "-ffp-contract=off" in flags
    for word in ("avx", "fma", "sse", "-march", "-mtune", "-mcpu", "native", "fast-math", "openmp"):
        assert word not in flags
    assert ("-werror" in flags) == (mode != "release")


def test_an_unknown_mode_or_key_is_refused(hook, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="PUFFER_BUILD must be one of release, debug, sanitize; got 'fast'"):
        hook.NativeBuild(ROOT, "fast")
    (tmp_path / "pyproject.toml").write_text("[tool.puffer.build]\ncflags = []\nextensions = []\n")
    with pytest.raises(ValueError, match=r"must have keys of .* got \['cflags'\]"):
        hook.NativeBuild(tmp_path)


def in_folder(folder, code):
    """Run code with the package that is built in a folder; return (exit code, output)."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + result.stderr


STEP = (
    "import numpy as np, puffer_ocean\n"
    "from puffer_ocean import OceanEnv, _native\n"
    "assert _native.__file__.startswith({folder!r}), _native.__file__\n"
    "for name in ({names}):\n"
    "    env = OceanEnv(name, 4); env.reset(0)\n"
    "    for _ in range(10): env.step(np.zeros_like(env.actions))\n"
    "print('stepped', OceanEnv('squared').single_observation_space.high[0])\n"
)


@pytest.mark.timeout(300)
@pytest.mark.skipif(os.environ.get("PUFFER_BUILD") == "sanitize", reason="builds modules of its own")
def test_an_unpacked_archive_builds_and_notices_what_changes(hook, archive, monkeypatch):
    for name in ("breakout", "pong", "target", "cartpole"):  # fewer files to compile
        shutil.rmtree(archive / "src" / "puffer_ocean" / "envs" / name, ignore_errors=True)
    build = hook.NativeBuild(archive, "debug")
    code = STEP.format(folder=str(archive), names="'squared', 'memory'")

    def rebuild():
        objects = {path: path.stat().st_mtime_ns for path in (build.folder / "objects").rglob("*.o")}
        (module,) = build.run()
        hook.copy_if_changed(module, archive / "src" / module.relative_to(build.folder / "lib"))
        return {
            path.name
            for path in (build.folder / "objects").rglob("*.o")
            if objects.get(path) != path.stat().st_mtime_ns
        }

    first = rebuild()
    assert {"squared.o", "memory.o", "vec.o", "registry.o", "_native.o"} <= first
    assert in_folder(archive, code) == (0, "stepped 2\n")
    assert rebuild() == set()

    header = archive / "src" / "puffer_ocean" / "core" / "numeric.h"
    header.write_text(
        header.read_text().replace("#endif\n", "static inline int oc_three(void) {\n    return 3;\n}\n\n#endif\n")
    )
    for name, before, after in [
        ("squared", ".obs_high = CELL_TARGET", ".obs_high = oc_three()"),
        ("memory", ".fps = 2", ".fps = oc_three()"),
    ]:
        file = archive / "src" / "puffer_ocean" / "envs" / name / f"{name}.c"
        file.write_text(file.read_text().replace(before, after))
    added = archive / "src" / "puffer_ocean" / "envs" / "recall" / "recall.c"
    added.parent.mkdir()
    code_of_memory = (archive / "src" / "puffer_ocean" / "envs" / "memory" / "memory.c").read_text()
    for before, after in [("OC_ENV memory", "OC_ENV recall"), ("} memory;", "} recall;"), ("memory *", "recall *")]:
        code_of_memory = code_of_memory.replace(before, after)
    added.write_text(code_of_memory)
    assert rebuild() >= first | {"recall.o"}
    assert in_folder(archive, STEP.format(folder=str(archive), names="'squared', 'memory', 'recall'")) == (
        0,
        "stepped 3\n",
    )

    module = next((archive / "src" / "puffer_ocean").glob("_native*.so"))
    module.write_bytes(module.read_bytes()[:100])
    status, output = in_folder(archive, "import puffer_ocean")
    assert status == 1
    assert "ImportError: puffer_ocean's compiled module" in output
    assert "pip install --force-reinstall --no-deps ./packages/puffer-ocean" in output


def test_the_package_knows_where_its_headers_are():
    assert (Path(puffer_ocean.__file__).parent / "core" / "ocean.h").is_file()


def test_settings_of_the_build_name_no_file_that_is_missing():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["puffer"]["build"]
    for extension in settings["extensions"]:
        for pattern in extension["sources"]:
            assert list(ROOT.glob(pattern)), pattern
