"""Where an environment's table comes from: this build, or a C file that is compiled when it is first used."""

from __future__ import annotations

import ctypes
import difflib
import hashlib
import os
import shlex
import subprocess
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from puffer_ocean import parameters
from puffer_ocean.native import EnvTable, built_tables, table_at
from puffer_spaces import EnvSpec, UnknownEnvError

CORE = Path(__file__).parent / "core"
COMPILE_ARGS = ("-std=c11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden")
LIBRARY_ARGS = ("-O3", "-fPIC", "-shared")
UNUSED_HINT = (
    '\nThe framework uses no env_ function before the last line, #include "ocean_impl.h", and no optional one that is '
    "not announced: #define OC_HAS_CHECK, OC_HAS_DRAW, ... before ocean.h."
)
# Of what compilers only warn about, that which makes an environment crash, misread its rows or leave out a function.
MISTAKE_ARGS = tuple(
    f"-Werror={mistake}"
    for mistake in (
        "implicit-function-declaration",
        "incompatible-pointer-types",
        "int-conversion",
        "return-type",
        "uninitialized",
        "unused-function",
    )
)
SANITIZE_ARGS = ("-O1", "-g3", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def find_table(name: str | os.PathLike[str]) -> EnvTable:
    """Return the table of a built-in environment, or of a C file given by its path.

    Raises:
        UnknownEnvError: There is none of that name.
        TypeError, FileNotFoundError, RuntimeError, ValueError: As `load_env`.
    """
    if not isinstance(name, str | os.PathLike):
        raise TypeError(f"name must be that of a native environment, or the path of a C file; got {name!r}.")
    if not isinstance(name, str) or name.endswith(".c"):
        return _compiled_table(Path(name).resolve())
    tables = built_tables()
    if name not in tables:
        near = difflib.get_close_matches(name, tables, 3)
        raise UnknownEnvError(name, near, () if near else [f"Native environments: {', '.join(sorted(tables))}."])
    return tables[name]


def load_env(path: str | os.PathLike[str]) -> EnvSpec:
    """Compile an environment of your own and return its spec, ready for `puffer_spaces.register`.

    The file is like those of the built-in environments; `core/README.md` of this package is the guide. It is compiled
    with the C compiler of this machine ($CC, or cc) into $XDG_CACHE_HOME/puffer-ocean, or ~/.cache/puffer-ocean, again
    whenever it or a header beside it changes; envs that were made before a change keep the code they have.

    Args:
        path: The C file, named as the environment: my_env/my_env.c has `#define OC_ENV my_env`.

    Raises:
        FileNotFoundError: There is no such file, or no C compiler.
        RuntimeError: It does not compile; the message has the compiler's words.
        ValueError: Its parameters cannot be given, or their defaults are out of range.
    """
    table = find_table(Path(path))
    return EnvSpec(
        id=f"ocean-{table.name}",
        entry_point="puffer_ocean:OceanEnv",
        kwargs={"name": str(Path(path).resolve())},
        parameters=parameters.declared(table),
        batched=True,
        version=str(table.version),
    )


def _compiled_table(path: Path) -> EnvTable:
    if path.suffix != ".c" or not path.is_file():
        raise FileNotFoundError(f"a native environment must be a C file; got {path}, which is none.")
    if not path.stem.isidentifier():
        raise ValueError(f"a native environment's file must be named by a C identifier; got {path.name}. Rename it.")
    return _loaded_table(_compile(path), path.stem)


@cache
def _loaded_table(library: Path, name: str) -> EnvTable:
    try:
        loaded = ctypes.CDLL(str(library))
    except OSError as error:
        raise RuntimeError(
            f"{name}.c must make a library that can be loaded; got: {error}. Define each function that it calls; if "
            f"the library is damaged, delete {library}."
        ) from None
    try:
        symbol = ctypes.c_char.in_dll(loaded, f"oc_env_{name}")
    except ValueError:
        raise RuntimeError(
            f"{name}.c must define the environment of its name; it has no table oc_env_{name}. "
            f'Write #define OC_ENV {name} and end the file with #include "ocean_impl.h".'
        ) from None
    table = table_at(ctypes.addressof(symbol), loaded)
    parameters.check_names_and_defaults(table)
    return table


def _compile(path: Path) -> Path:
    args = [
        *COMPILE_ARGS,
        *LIBRARY_ARGS,
        *MISTAKE_ARGS,
        *(SANITIZE_ARGS if os.environ.get("PUFFER_BUILD") == "sanitize" else ()),
    ]
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    headers = sorted([*path.parent.glob("*.h"), *CORE.glob("*.h"), CORE / "canvas.c"])
    parts: list[Any] = [path.name, compiler, args, *(file.read_bytes() for file in (path, *headers))]
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "puffer-ocean"
    library = cache / f"{path.stem}-{digest}.so"
    if library.exists():
        return library
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        partial = Path(folder) / library.name
        sources = [str(path), str(CORE / "canvas.c")]
        command = [*compiler, *args, "-DOC_EXPORT_TABLE", f"-I{CORE}", *sources, "-o", str(partial), "-lm"]
        try:
            result = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"a C compiler must be there to compile {path.name}; got none as {compiler[0]}. Install gcc or clang, "
                "or set CC."
            ) from None
        if result.returncode:
            hint = UNUSED_HINT if "unused-function" in result.stderr else ""
            raise RuntimeError(f"{path} must compile; {compiler[0]} says:\n{result.stderr.strip()}{hint}")
        partial.replace(library)
    return library
