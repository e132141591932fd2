"""The project's sessions. `nox` runs what CI runs; `nox -l` lists all.

Every session has a fresh environment with what it needs and nothing else. torch is large, so sessions
that need it read it from one environment, `.nox/torch`, through a path file: their own environment
still holds only their package and its dependencies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PACKAGES = [
    "puffer-spaces",
    "puffer-vector",
    "puffer-ocean",
    "puffer-emulate",
    "puffer-policies",
    "puffer-train",
    "pufferlib",
]
NEED_TORCH = {"puffer-policies", "puffer-train", "pufferlib"}
COMPILED = ["puffer-vector", "puffer-ocean", "puffer-train"]
TEST_TOOLS = ["pytest", "pytest-timeout", "hypothesis"]
BUILD_TOOLS = ["hatchling", "Cython", "setuptools"]  # the tests of the build hook build outside isolation
INTEGRATION_TOOLS = [*TEST_TOOLS, "psutil"]
WITH_RAY = [f"packages/puffer-vector/tests/test_{name}.py" for name in ("remote", "faults")]
LINT_TOOLS = ["ruff", "mypy", "import-linter"]
CONSTRAINTS = ["-c", str(ROOT / "constraints.txt")]

nox.options.reuse_existing_virtualenvs = False
nox.options.error_on_missing_interpreters = True
nox.options.default_venv_backend = "virtualenv"


def project(package: str) -> dict:
    """Return the [project] table of a package."""
    return tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text())["project"]


def local_closure(package: str) -> list[str]:
    """Return the package and the packages of this repository it needs, lowest layer first."""
    needed = {package}
    for requirement in project(package)["dependencies"]:
        name = requirement.split(">")[0].split("[")[0].strip()
        if name in PACKAGES:
            needed.update(local_closure(name))
    return [name for name in PACKAGES if name in needed]


def paths(packages: list[str]) -> list[str]:
    """Return the packages as paths that pip installs."""
    return [f"./packages/{package}" for package in packages]


def link_torch(session: nox.Session) -> None:
    """Let this session read torch from the environment that all sessions share."""
    shared = ROOT / ".nox" / "torch"
    python = shared / "bin" / "python"
    stamp = shared / "complete"
    if not stamp.exists():
        shutil.rmtree(shared, ignore_errors=True)
        session.run("python", "-m", "venv", str(shared))
        session.run(str(python), "-m", "pip", "install", "-q", *CONSTRAINTS, "torch", "numpy", external=True)
        stamp.touch()
    site = subprocess.check_output(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    ).strip()
    own = session.run(
        "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", silent=True, log=False
    ).strip()
    (Path(own) / "torch-of-all-sessions.pth").write_text(site + "\n")


def install(session: nox.Session, packages: list[str], *tools: str, constraints: list[str] = CONSTRAINTS) -> None:
    """Install packages of this repository and tools in one resolution."""
    if NEED_TORCH & set(packages):
        link_torch(session)
    session.install("-q", *constraints, *tools, *paths(packages))


def pytest(session: nox.Session, *arguments: str, **env: str) -> None:
    """Run pytest with the settings of the root."""
    session.run("python", "-m", "pytest", "-q", *arguments, *session.posargs, env=env)


@nox.session
@nox.parametrize("package", PACKAGES, ids=PACKAGES)
def tests(session: nox.Session, package: str) -> None:
    """Test one package with nothing installed but itself and its own dependencies."""
    install(session, local_closure(package), *TEST_TOOLS, *(BUILD_TOOLS if package in COMPILED else []))
    pytest(session, f"packages/{package}")


@nox.session
def integration(session: nox.Session) -> None:
    """Test what needs several packages or Ray: the guides, the READMEs, training, resuming, the command line."""
    install(session, PACKAGES, *INTEGRATION_TOOLS, "ray")
    pytest(session, "tests", *WITH_RAY)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, the doors between packages, and that the copies of the build hook are equal."""
    link_torch(session)
    runtime = sorted({r for p in PACKAGES for r in project(p)["dependencies"] if not r.startswith("puffer-")})
    session.install("-q", *CONSTRAINTS, *LINT_TOOLS, *TEST_TOOLS, "nox", *runtime)
    sources = [str(ROOT / "packages" / p / "src") for p in PACKAGES]
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy", *[f"packages/{p}/src" for p in PACKAGES], env={"MYPYPATH": os.pathsep.join(sources)})
    session.run("lint-imports", env={"PYTHONPATH": os.pathsep.join(sources)})
    hooks = {p: (ROOT / "packages" / p / "hatch_build.py").read_text() for p in COMPILED}
    if len(set(hooks.values())) != 1:
        session.error(f"hatch_build.py must be the same file in {', '.join(hooks)}; copy the newest over the others")


@nox.session
def sanitize(session: nox.Session) -> None:
    """Run the tests of the native environments under AddressSanitizer and UndefinedBehaviorSanitizer."""
    session.env["PUFFER_BUILD"] = "sanitize"
    install(session, local_closure("puffer-ocean"), *TEST_TOOLS)
    library = subprocess.check_output(["gcc", "-print-file-name=libasan.so"], text=True).strip()
    pytest(
        session,
        "packages/puffer-ocean",
        "-o",
        "faulthandler_timeout=0",  # the sanitizers report crashes themselves
        LD_PRELOAD=library,
        PYTHONMALLOC="malloc",
        ASAN_OPTIONS="detect_leaks=0",
        UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1",
    )


@nox.session
def wheels(session: nox.Session) -> None:
    """Build every sdist and wheel; install both kinds outside the repository and step an environment."""
    session.install("-q", "hatch")
    dist = Path(session.create_tmp()).resolve() / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    for package in PACKAGES:
        with session.chdir(f"packages/{package}"):
            session.run("hatch", "build", str(dist))
    for pattern in ("*.whl", "*.tar.gz"):
        files = sorted(str(path) for path in dist.glob(pattern))
        if len(files) != len(PACKAGES):
            session.error(f"expected one {pattern} a package; got {files}")
        with tempfile.TemporaryDirectory() as outside:
            step_outside(session, Path(outside), files)


def step_outside(session: nox.Session, folder: Path, files: list[str]) -> None:
    """Install built files in a new environment in `folder` and step one environment of the registry."""
    session.run("python", "-m", "venv", str(folder / "venv"))
    python = folder / "venv" / "bin" / "python"
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    link_torch(session)
    (site / "torch-of-all-sessions.pth").write_text(
        str(next((ROOT / ".nox" / "torch" / "lib").glob("python*/site-packages"))) + "\n"
    )
    session.run(str(python), "-m", "pip", "install", "-q", *CONSTRAINTS, *files, external=True)
    program = (
        "import numpy, pufferlib, puffer_spaces, puffer_vector, puffer_ocean, puffer_emulate\n"
        "with pufferlib.make('ocean-squared', num_envs=4, seed=1) as env:\n"
        "    env.reset()\n"
        "    for _ in range(10):\n"
        "        env.step(numpy.ones(4, numpy.int32))\n"
        "print('stepped', env.single_observation_space)\n"
    )
    with session.chdir(folder):
        session.run(str(python), "-c", program, external=True)
        session.run(str(python.parent / "puffer"), "envs", external=True, silent=True)


@nox.session(default=False)
def minimum(session: nox.Session) -> None:
    """Test with the lowest version that each package's bounds allow."""
    lowest: dict[str, str] = {}
    for package in PACKAGES:
        for requirement in project(package)["dependencies"]:
            name, _, bound = requirement.partition(">=")
            name = name.split("[")[0].strip()
            if name not in PACKAGES and name != "torch":
                lowest[name] = bound.split(",")[0].strip()
    lowest["torch"] = "2.13.0"
    pins = {name: bound if bound.count(".") > 1 else f"{bound}.*" for name, bound in lowest.items()}
    file = ROOT / "constraints-minimum.txt"
    header = "# Generated by `nox -s minimum` from the lower bounds of every package.\n"
    file.write_text(header + "".join(f"{name}=={pin}\n" for name, pin in sorted(pins.items())))
    link_torch(session)
    session.install("-q", "-c", str(file), *INTEGRATION_TOOLS, *BUILD_TOOLS, *paths(PACKAGES))
    for package in PACKAGES:
        pytest(session, f"packages/{package}")
    pytest(session, "tests")


@nox.session(default=False)
def learning(session: nox.Session) -> None:
    """Train until stated scores are reached; takes tens of minutes."""
    install(session, PACKAGES, *INTEGRATION_TOOLS)
    pytest(session, "tests", "-m", "learning", "-o", "timeout=1200", "-s")


@nox.session(default=False)
def soak(session: nox.Session) -> None:
    """Step for long, open, close and fail often, to see what is left; minutes, on a quiet machine."""
    install(session, local_closure("puffer-vector"), *TEST_TOOLS, "psutil", "ray")
    pytest(session, "packages/puffer-vector", "-m", "soak", "-o", "timeout=900", "-o", "faulthandler_timeout=0")


@nox.session(default=False)
def mutation(session: nox.Session) -> None:
    """Break the trainer in a hundred ways, one at a time, and show that its tests notice each."""
    install(session, local_closure("puffer-train"), *TEST_TOOLS, *BUILD_TOOLS)
    session.run("python", "packages/puffer-train/mutations/run.py", *session.posargs)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Run the benchmarks; read the load average beside the figures."""
    install(session, PACKAGES)
    session.run("python", "-c", "import os; print('load average', os.getloadavg(), file=__import__('sys').stderr)")
    for script in sorted([*ROOT.glob("benchmarks/*.py"), *ROOT.glob("packages/*/benchmarks/*.py")]):
        print(f"\n== {script.relative_to(ROOT)}", file=sys.stderr)
        session.run("python", str(script), *session.posargs)
