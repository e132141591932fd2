"""The command `puffer`: finds the subcommand and turns mistakes into one sentence and exit code 2."""

import contextlib
import difflib
import errno
import importlib
import importlib.metadata
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from puffer_train.errors import CheckpointError, RunError, UsageError
from puffer_train.launch import Launch

ENTRY_POINT_GROUP = "puffer.commands"
"""Each entry point is a callable that takes the words after its name and returns an exit code or None.

The first line of its docstring stands in `puffer --help`. It raises `UsageError` for what the user got wrong.
"""

_COMMANDS = {
    "train": ("puffer_train.commands.train", "Train a policy in an environment."),
    "eval": ("puffer_train.commands.evaluate", "Measure a trained policy over whole episodes."),
    "envs": ("puffer_train.commands.envs", "List the environments that are installed."),
}
Command = Callable[[list[str]], int | None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run `puffer` with the given words (None: those of the process) and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    _make_streams_safe()
    try:
        with _warnings_in_one_line():
            code = _run(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe, such as head, has had enough
        _abandon_output()
        return 141
    except SystemExit as error:  # the help ends this way
        return error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
            _abandon_output()
            error = RunError(f"the output must take what is printed; {error.strerror}.")
        exit_code = _exit_code(error)
        if exit_code is None:
            raise
        notes = getattr(error, "__notes__", []) if exit_code == 1 else []  # a mistake has one sentence
        _write("\n".join([f"{_own_name()}: {error}", *notes]), sys.stderr)
        return exit_code


def _own_name() -> str:
    try:
        launch = Launch.from_environment()
    except ValueError:  # this may be what is being told
        return "puffer"
    return "puffer" if launch.is_alone else f"puffer (rank {launch.rank})"


def _abandon_output() -> None:
    """Lose what waits to be printed, which Python would try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _make_streams_safe() -> None:
    """Give a process without an output one that swallows, and let no character be too much for an output."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _exit_code(error: Exception) -> int | None:
    """Return the exit code for an error that is a sentence for the user; None for any other."""
    from puffer_spaces import MissingAdapter, MissingSuite, UnknownEnvError
    from puffer_train.validation import ConfigError
    from puffer_vector import WorkerError

    if isinstance(error, UsageError | CheckpointError | ConfigError | UnknownEnvError | MissingAdapter | MissingSuite):
        return 2
    return 1 if isinstance(error, RunError | WorkerError) else None


@contextlib.contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Show warnings as the sentences they are, without a line of source code."""
    usual = warnings.formatwarning
    warnings.formatwarning = lambda message, *_arguments, **_options: f"puffer: warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        _write(_help_text(), sys.stdout)
        return 0
    if words[0] == "--version":
        _write(f"puffer-train {importlib.metadata.version('puffer-train')}", sys.stdout)
        return 0
    return _command(words[0])(words[1:]) or 0


def _command(name: str) -> Command:
    if name in _COMMANDS:
        command: Command = importlib.import_module(_COMMANDS[name][0]).main
        return command
    foreign = _foreign_commands()
    if name not in foreign:
        near = difflib.get_close_matches(name, [*_COMMANDS, *foreign], n=2, cutoff=0.7)
        hint = f"Did you mean {' or '.join(near)}?" if near else "puffer --help lists them."
        raise UsageError(f"the first word after puffer must be a command; got {name!r}. {hint}")
    loaded: Command = foreign[name].load()
    return loaded


def _foreign_commands() -> dict[str, importlib.metadata.EntryPoint]:
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    return {point.name: point for point in sorted(points, key=lambda point: point.name) if point.name not in _COMMANDS}


def _help_text() -> str:
    lines = [(name, text) for name, (_, text) in _COMMANDS.items()]
    for name, point in _foreign_commands().items():
        try:
            lines.append((name, _first_line(point.load())))
        except Exception as error:  # a broken package must not hide the other commands
            lines.append((name, f"(cannot be loaded: {type(error).__name__}: {error})"))
    width = max(len(name) for name, _ in lines)
    commands = "\n".join(f"  {name:<{width}}  {text}" for name, text in lines)
    return (
        "usage: puffer COMMAND [OPTIONS]\n\n"
        f"{commands}\n\n"
        "puffer COMMAND --help explains a command, puffer train ID --help also an environment's options.\n"
        "  puffer train ocean-breakout\n"
        "  puffer eval ocean-breakout --checkpoint latest"
    )


def _first_line(command: Any) -> str:
    return (command.__doc__ or "").strip().partition("\n")[0]


def _write(text: str, stream: TextIO) -> None:
    print(text, file=stream)


if __name__ == "__main__":
    sys.exit(main())
