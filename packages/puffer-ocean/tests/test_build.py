"""The build hook: what it compiles with, what it notices, and what is in the source archive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
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


def unpacked_archive(folder):
    """The source archive, made and unpacked where no repository is near."""
    from hatchling.builders.sdist import SdistBuilder

    file = next(SdistBuilder(str(ROOT)).build(directory=str(folder / "dist")))
    with tarfile.open(file) as contents:
        contents.extractall(folder / "unpacked", filter="data")
    return next((folder / "unpacked").iterdir())


@pytest.fixture
def archive(tmp_path):
    return unpacked_archive(tmp_path)


def test_the_source_archive_has_every_source(archive):
    kept = {path.relative_to(ROOT) for path in SOURCES.rglob("*") if path.is_file()}
    wanted = {path for path in kept if path.suffix not in {".so", ".pyc"} and "__pycache__" not in path.parts}
    packed = {path.relative_to(archive) for path in archive.rglob("*") if path.is_file()}

    assert wanted <= packed
    assert {Path(name) for name in ("hatch_build.py", "pyproject.toml", "README.md", "CHANGELOG.md")} <= packed
    assert not [path for path in packed if path.suffix in {".so", ".o"} or path.parts[0] == "build"]


def test_the_wheel_has_what_running_needs_and_what_load_env_compiles_with(archive, tmp_path):
    """And neither sources that are compiled into the module nor what only tests read."""
    from hatchling.builders.wheel import WheelBuilder

    builder = WheelBuilder(str(archive))
    builder.get_build_hooks = lambda directory: {}  # what is packed beside the module does not depend on it
    with zipfile.ZipFile(next(builder.build(directory=str(tmp_path / "wheel")))) as wheel:
        packed = {Path(name) for name in wheel.namelist() if ".dist-info/" not in name}
    own = {path.relative_to(archive / "src") for path in (archive / "src").rglob("*") if path.is_file()}
    core = {Path("puffer_ocean/core") / path.name for path in (SOURCES / "core").glob("*.h")}
    built_in = {Path("puffer_ocean/core") / name for name in ("registry.h", "spec.h", "vec.h")}
    wanted = {path for path in own if path.suffix in {".py", ".pyi", ".typed", ".md", ".toml"}}

    assert packed == wanted | core - built_in | {Path("puffer_ocean/core/canvas.c")}


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


ILLEGAL_ACTIONS = """
import ctypes
import numpy as np
from puffer_ocean import OceanEnv

class Step(ctypes.Structure):
    _fields_ = [("versions", ctypes.c_uint64), ("ctx", ctypes.c_void_p), ("counts", ctypes.c_int64 * 3),
                ("step", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64))]

env = OceanEnv("squared", 100)
env.reset(seed=1)
before = env.get_state()
actions = np.full(100, 4, np.int32)
actions[70] = 5
def step_slices():
    env.actions[:] = actions
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = env.step_capsule()
    interface = ctypes.cast(get(capsule, b"puffer.step.v1"), ctypes.POINTER(Step)).contents
    interface.step(interface.ctx, 0, 64)
    interface.step(interface.ctx, 64, 100)
    env.finish_step()
for call in (lambda: env.step(actions), lambda: env.step(actions.astype(np.int64) - 6), step_slices):
    try:
        call()
    except ValueError as error:
        print(error)
    if call is not step_slices:
        assert env.get_state() == before
actions[70] = 0
env.step(actions)
continuous = OceanEnv("cartpole", 2, continuous=True)
continuous.reset(seed=1)
continuous.step(np.full((2, 1), np.nan, np.float32))
"""


class DebugBuild:
    """An unpacked source archive with a few environments, which builds its module in mode debug.

    Attributes:
        first: Names of the object files of the first build.
    """

    def __init__(self, hook, folder):
        self.archive, self.hook = unpacked_archive(folder), hook
        for name in ("breakout", "pong", "target"):
            shutil.rmtree(self.archive / "src" / "puffer_ocean" / "envs" / name)
        self.build = hook.NativeBuild(self.archive, "debug")
        self.first = self.rebuild()

    def rebuild(self):
        """Build; return the names of the object files that were compiled."""
        objects = self.build.folder / "objects"
        before = {path: path.stat().st_mtime_ns for path in objects.rglob("*.o")}
        (module,) = self.build.run()
        self.hook.copy_if_changed(module, self.archive / "src" / module.relative_to(self.build.folder / "lib"))
        return {path.name for path in objects.rglob("*.o") if before.get(path) != path.stat().st_mtime_ns}


@pytest.fixture(scope="module")
def debug_build(hook, tmp_path_factory):
    if os.environ.get("PUFFER_BUILD") == "sanitize":
        pytest.skip("builds modules of its own")
    return DebugBuild(hook, tmp_path_factory.mktemp("debug"))


@pytest.mark.timeout(300)
def test_a_debug_build_refuses_illegal_actions_and_says_which(debug_build):
    status, output = in_folder(debug_build.archive, ILLEGAL_ACTIONS)

    assert status == 0, output
    assert output.splitlines() == [
        f"actions of squared must be in [0, 5); got {got} as number 0 of row {row}. "
        "A debug build refuses what a release build takes as a no-op."
        for got, row in ((5, 70), (-2, 0), (5, 70))
    ]


@pytest.mark.timeout(300)
def test_an_unpacked_archive_builds_and_notices_what_changes(debug_build):
    archive, rebuild, first = debug_build.archive, debug_build.rebuild, debug_build.first
    code = STEP.format(folder=str(archive), names="'squared', 'memory'")
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
