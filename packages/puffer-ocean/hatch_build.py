"""Compile the native code of this package (hatchling build hook), as [tool.puffer.build] of its pyproject.toml says.

```toml
[tool.puffer.build]
compile-args = ["-std=c11"]          # of every source
strict-args = ["-Wall", "-Werror"]   # of plain C sources in modes debug and sanitize; generated C never passes them
link-args = ["-pthread"]
include-dirs = ["src/pkg/core"]

[[tool.puffer.build.extensions]]     # one compiled module; patterns are those of pathlib's glob
module = "pkg._native"
sources = ["src/pkg/_native.pyx", "src/pkg/core/*.c"]

[[tool.puffer.build.generated]]      # a file with one line for each match of a pattern, found by #include "list.h"
file = "list.h"
for-each = "src/pkg/envs/*/*.c"
line = "ENTRY({stem})"
```

The environment variable PUFFER_BUILD selects `release` (default), `debug`, which also defines PUFFER_DEBUG for checks
that cost time, or `sanitize`. Everything is built under build/<mode>-<cache tag of the interpreter>/; an editable
install gets a copy of the modules beside their sources. A changed source, header (.h, .pxd, .pxi), flag, mode or copy
of this file rebuilds what depends on it.

Every compiled package of the repository has the same copy of this file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
MODE_COMPILE_ARGS = {
    "release": ["-O3", "-g0"],
    "debug": ["-O0", "-g3", "-UNDEBUG", "-DPUFFER_DEBUG"],
    "sanitize": ["-O1", "-g3", "-UNDEBUG", "-fno-omit-frame-pointer", *SANITIZERS],
}
MODE_LINK_ARGS: dict[str, list[str]] = {"release": [], "debug": [], "sanitize": SANITIZERS}
KEYS = {"compile-args", "strict-args", "link-args", "include-dirs", "extensions", "generated"}
HEADER_SUFFIXES = {".h", ".pxd", ".pxi"}


class NativeBuildHook(BuildHookInterface):
    """Builds the extension modules for a wheel, or beside their sources for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        build = NativeBuild(root)
        modules = build.run()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for module in modules:
            inside = module.relative_to(build.folder / "lib")
            if version == "editable":  # force_include would put a second copy beside an editable install
                copy_if_changed(module, root / "src" / inside)
            else:
                build_data["force_include"][str(module)] = str(inside)


class NativeBuild:
    """One package's build: reads the settings, compiles what changed, and returns the modules."""

    def __init__(self, root: Path, mode: str | None = None) -> None:
        self.root = root
        self.mode = mode or os.environ.get("PUFFER_BUILD") or "release"
        if self.mode not in MODE_COMPILE_ARGS:
            raise ValueError(f"PUFFER_BUILD must be one of {', '.join(MODE_COMPILE_ARGS)}; got {self.mode!r}.")
        self.settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["puffer"]["build"]
        if unknown := set(self.settings) - KEYS:
            raise ValueError(f"[tool.puffer.build] must have keys of {sorted(KEYS)}; got {sorted(unknown)}.")
        self.folder = root / "build" / f"{self.mode}-{sys.implementation.cache_tag}"

    @property
    def compile_args(self) -> list[str]:
        return [*MODE_COMPILE_ARGS[self.mode], *self.settings.get("compile-args", [])]

    @property
    def strict_args(self) -> list[str]:
        return [] if self.mode == "release" else self.settings.get("strict-args", [])

    @property
    def link_args(self) -> list[str]:
        return [*MODE_LINK_ARGS[self.mode], *self.settings.get("link-args", [])]

    def run(self) -> list[Path]:
        """Build all modules; return their paths under `folder`/lib."""
        previous = os.getcwd()
        os.chdir(self.root)  # sources and generated C get short names, the same on every machine
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._forget_if_flags_changed()
            self._write_generated()
            return self._compile()
        finally:
            os.chdir(previous)

    def headers(self) -> list[str]:
        """Every header of the package: each source is taken to depend on each."""
        generated = (self.folder / "generated").glob("*")
        own = (path for path in Path("src").rglob("*") if path.suffix in HEADER_SUFFIXES)
        return sorted(str(path) for path in [*own, *generated])

    def _forget_if_flags_changed(self) -> None:
        # Compilers and setuptools compare the times of files; they would not see new flags or a new version of Cython.
        import Cython

        parts = [Path(__file__).read_bytes(), repr(self.settings), Cython.__version__, sys.version]
        parts += [os.environ.get(name, "") for name in ("CC", "CFLAGS", "LDFLAGS")]
        digest = hashlib.sha256(repr(parts).encode()).hexdigest()
        stamp = self.folder / "flags.sha256"
        if not stamp.exists() or stamp.read_text() != digest:
            shutil.rmtree(self.folder)
            self.folder.mkdir(parents=True)
            stamp.write_text(digest)

    def _write_generated(self) -> None:
        for entry in self.settings.get("generated", []):
            paths = sorted(Path().glob(entry["for-each"]))
            lines = [entry["line"].format(stem=path.stem, path=path.as_posix()) for path in paths]
            file = self.folder / "generated" / entry["file"]
            text = "".join(f"{line}\n" for line in lines)
            if not file.exists() or file.read_text() != text:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)

    def _compile(self) -> list[Path]:
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension

        include_dirs = [*self.settings.get("include-dirs", []), str(self.folder.relative_to(self.root) / "generated")]
        headers = self.headers()
        extensions, plain_sources = [], {}
        for entry in self.settings["extensions"]:
            sources = [str(path) for pattern in entry["sources"] for path in sorted(Path().glob(pattern))]
            cython_sources = [source for source in sources if source.endswith(".pyx")]
            if not cython_sources:
                raise FileNotFoundError(f"{entry['module']} must have a .pyx source; got {entry['sources']}.")
            plain_sources[entry["module"]] = [source for source in sources if not source.endswith(".pyx")]
            extension = Extension(
                entry["module"],
                cython_sources,
                include_dirs=include_dirs,
                extra_compile_args=self.compile_args,
                extra_link_args=self.link_args,
                depends=headers,
            )
            extensions.append(extension)
        checked = self.mode != "release"
        extensions = cythonize(
            extensions,
            include_path=["src"],
            build_dir=str((self.folder / "cython").relative_to(self.root)),
            compiler_directives={
                "language_level": 3,
                "boundscheck": checked,
                "wraparound": False,
                "initializedcheck": checked,
                "cdivision": not checked,
                "embedsignature": True,
            },
        )
        command = make_command(Distribution({"ext_modules": extensions}), plain_sources, self.strict_args)
        command.build_lib = str((self.folder / "lib").relative_to(self.root))
        command.build_temp = str((self.folder / "objects").relative_to(self.root))
        command.ensure_finalized()
        command.run()
        return [self.root / path for path in command.get_outputs()]


def make_command(distribution: Any, plain_sources: dict[str, list[str]], strict_args: list[str]) -> Any:
    """Return setuptools' build_ext, which also compiles each extension's plain C sources, in parallel."""
    from setuptools.command.build_ext import build_ext

    class BuildExtensions(build_ext):
        def build_extension(self, extension: Any) -> None:
            newest_header = max((os.path.getmtime(path) for path in extension.depends), default=0.0)
            args = [*extension.extra_compile_args, *strict_args]

            def compile_one(source: str) -> str:
                (target,) = self.compiler.object_filenames([source], output_dir=self.build_temp)
                newest = max(newest_header, os.path.getmtime(source))
                if not os.path.exists(target) or os.path.getmtime(target) <= newest:
                    self.compiler.compile(
                        [source],
                        output_dir=self.build_temp,
                        include_dirs=extension.include_dirs,
                        extra_postargs=args,
                        depends=[*extension.depends, source],
                    )
                return target

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = list(pool.map(compile_one, plain_sources[extension.name]))
            extension.extra_objects = objects
            extension.depends = [*extension.depends, *objects]
            super().build_extension(extension)

    return BuildExtensions(distribution)


def copy_if_changed(source: Path, target: Path) -> None:
    """Copy a module beside its sources by a rename, so that a process that has it loaded keeps the old one."""
    if target.exists() and target.read_bytes() == source.read_bytes():
        return
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.copy2(source, partial)
    partial.replace(target)
