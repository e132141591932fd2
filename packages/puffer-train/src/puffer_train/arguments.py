"""From the words of a command line to the values of options, with one clear sentence for each mistake."""

import contextlib
import difflib
import io
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tyro

from puffer_train.errors import UsageError
from puffer_train.options import Option, describe_type, fitting_int, flat_options, flat_values, is_optional

_TRUE_AND_FALSE = {"true": True, "false": False, "1": True, "0": False}
_OPTION = re.compile(r"--|-(?!inf|nan)[a-zA-Z]")
_EXPONENT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")


@dataclass(frozen=True)
class Arguments:
    """The options that a command line names, and their words.

    Attributes:
        command: The command so far, such as `puffer train ocean-breakout`; it stands in messages.
        words: Name of an option to its words, normalised; a later one replaces an earlier one.
        wants_help: Whether `-h` or `--help` is among them.
    """

    command: str
    words: dict[str, tuple[str, ...]]
    wants_help: bool


def read_arguments(
    argv: Sequence[str], options: Mapping[str, Option], command: str, aliases: Mapping[str, str]
) -> Arguments:
    """Find out which options the words name.

    Options are written with dashes or underscores, with a space or `=` before the value. A bool is `--x`, `--no-x`,
    `--x True` or `--x False`; in a group `--train.no-x` and `--no-train.x` are the same.

    Raises:
        UsageError: If a word is no option, with the nearest ones, or belongs to none.
    """
    words: dict[str, tuple[str, ...]] = {}
    wants_help = False
    position = 0
    while position < len(argv):
        word = argv[position]
        position += 1
        if word in ("-h", "--help"):
            wants_help = True
            continue
        if not word.startswith("--"):
            raise UsageError(f"every word after {command} must belong to an option, --name value; got {word!r}.")
        name, equals, value = word[2:].partition("=")
        option, negated = _find_option(name, options, command, aliases)
        values = [value] if equals else []
        while not equals and position < len(argv) and not _OPTION.match(argv[position]):
            values.append(argv[position])
            position += 1
        words[option.name] = _normal_words(option, values, negated)
    return Arguments(command, words, wants_help)


def take_env_id(words: Sequence[str], command: str) -> tuple[str | None, list[str]]:
    """Return the environment's id, which is the first word, and the other words; the id is None where help is wanted.

    Raises:
        UsageError: If the first word is an option, or there is none.
    """
    if words and not words[0].startswith("-"):
        return words[0], list(words[1:])
    if "-h" in words or "--help" in words:
        return None, list(words)
    got = repr(words[0]) if words else "nothing"
    raise UsageError(f"the first word after {command} must be an environment's id; got {got}. puffer envs lists them.")


def parse_values(arguments: Arguments, options_class: type, defaults: Any, description: str) -> dict[str, Any]:
    """Return the values of the options that the command line names; print the help and exit if it asks for that.

    Args:
        arguments: What `read_arguments` found.
        options_class: See `puffer_train.options`.
        defaults: An object of that class, whose values the help shows as defaults.
        description: The help's first lines.

    Raises:
        UsageError: If a value is of a wrong type.
        SystemExit: With code 0, after the help.
    """
    options = flat_options(options_class)
    if arguments.wants_help:
        tyro.cli(options_class, prog=arguments.command, args=["--help"], default=defaults, description=description)
    tokens = {name: _tyro_tokens(options[name], words) for name, words in arguments.words.items()}
    parsed = _try_tyro(options_class, defaults, [token for group in tokens.values() for token in group])
    if parsed is None:
        for name, group in tokens.items():
            if _try_tyro(options_class, defaults, group) is None:
                got = " ".join(arguments.words[name]) or "nothing"
                raise UsageError(f"{options[name].flag} must be {describe_type(options[name].type)}; got {got}.")
        raise UsageError(f"the options of {arguments.command} cannot be read together; see {arguments.command} --help.")
    values = flat_values(parsed)
    named = {name: values[name] for name in arguments.words}
    for name, value in named.items():
        if type(value) is int:
            try:
                fitting_int(value)
            except ValueError as error:
                raise UsageError(f"{options[name].flag} {error}.") from error
    return named


def nearest(name: str, names: Sequence[str]) -> list[str]:
    """Return up to two names that look like `name`, best first; a name with the same last part comes before others."""
    last = name.rpartition(".")[2]
    same_last = [other for other in names if other.rpartition(".")[2] == last]
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.7)
    by_last = {other.rpartition(".")[2]: other for other in names}
    close_last = [by_last[other] for other in difflib.get_close_matches(last, list(by_last), n=1, cutoff=0.7)]
    return list(dict.fromkeys([*same_last, *close, *close_last]))[:2]


def _find_option(
    written: str, options: Mapping[str, Option], command: str, aliases: Mapping[str, str]
) -> tuple[Option, bool]:
    name = written.replace("-", "_")
    name = aliases.get(name, name)
    if name in options:
        return options[name], False
    group, dot, last = name.rpartition(".")
    for positive in (f"{group}{dot}{last.removeprefix('no_')}", name.removeprefix("no_")):
        positive = aliases.get(positive, positive)
        if positive != name and positive in options and options[positive].type is bool:
            return options[positive], True
    near = " or ".join(options[other].flag for other in nearest(name, list(options)))
    hint = f"Did you mean {near}?" if near else f"{command} --help lists all."
    raise UsageError(f"{command} has no option --{written}. {hint}")


def _normal_words(option: Option, values: list[str], negated: bool) -> tuple[str, ...]:
    if option.type is bool:
        if len(values) > 1 or (values and (negated or values[0].lower() not in _TRUE_AND_FALSE)):
            raise UsageError(f"{option.flag} must be True or False; got {' '.join(values)}.")
        return (str(not negated if not values else _TRUE_AND_FALSE[values[0].lower()]),)
    if values == [""] and not option.name.startswith("env."):  # an empty text may mean something to an environment
        values = []
    return tuple(_normal_word(option.type, value) for value in values)


def _normal_word(kind: Any, word: str) -> str:
    if is_optional(kind) and word.lower() in ("none", "auto"):
        return "None"
    if kind in (int, int | None) and _EXPONENT.fullmatch(word) and float(word).is_integer():
        return str(int(float(word)))
    if (
        typing.get_origin(kind) is Literal
        and word not in typing.get_args(kind)
        and word.lower() in typing.get_args(kind)
    ):
        return word.lower()
    return word


def _tyro_tokens(option: Option, words: tuple[str, ...]) -> list[str]:
    if option.type is bool:
        group, dot, last = option.name.replace("_", "-").rpartition(".")
        return [option.flag if words == ("True",) else f"--{group}{dot}no-{last}"]
    if len(words) == 1:
        return [f"{option.flag}={words[0]}"]
    return [option.flag, *words]


def _try_tyro(options_class: type, defaults: Any, tokens: list[str]) -> Any:
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return tyro.cli(options_class, args=tokens, default=defaults, console_outputs=False)
    except SystemExit:
        return None
