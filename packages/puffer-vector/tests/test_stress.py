"""The native code alone, under a sanitizer where the compiler has one: no race, no stray access, no lost wake-up."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

COMPILER = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]) or "cc"
HEADERS = Path(__file__).parent.parent / "src" / "puffer_vector"
SOURCE = Path(__file__).with_name("stress.c")


def built(folder, *flags):
    program = folder / "stress"
    command = [COMPILER, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g", f"-I{HEADERS}"]
    done = subprocess.run(
        [*command, *flags, str(SOURCE), "-o", str(program), "-pthread"], capture_output=True, text=True
    )
    return program if done.returncode == 0 else pytest.skip(f"cannot build with {flags}: {done.stderr[-300:]}")


@pytest.mark.skipif(not HEADERS.joinpath("native", "pool.h").exists(), reason="the sources are not here")
@pytest.mark.parametrize(
    "flags", [("-fsanitize=thread",), ("-fsanitize=address,undefined",)], ids=lambda flags: flags[0]
)
def test_pool_and_signals_under_a_sanitizer(tmp_path, flags):
    program = built(tmp_path, *flags)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=100)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address layout does not suit the sanitizer")

    assert done.returncode == 0, done.stderr
