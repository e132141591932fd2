import importlib.metadata
import shlex
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest

import puffer_train
from puffer_spaces import register
from puffer_train import cli


def greet(words):
    """Say hello.

    More about it.
    """
    print("hello", *words)
    return 3


def foreign(monkeypatch, **commands):
    points = [SimpleNamespace(name=name, load=load) for name, load in commands.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points if group == "puffer.commands" else [])


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_the_help_lists_every_command(words, capsys):
    assert cli.main(words) == 0

    text = capsys.readouterr().out
    for word in ("train", "eval", "envs", "puffer train ocean-breakout"):
        assert word in text


def test_the_version_is_that_of_the_package(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"puffer-train {importlib.metadata.version('puffer-train')}\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trian"], "the first word after puffer must be a command; got 'trian'. Did you mean train?"),
        (["xyz"], "the first word after puffer must be a command; got 'xyz'. puffer --help lists them."),
        (["envs", "--json"], "puffer envs has no option --json."),
        (["envs", "zzz"], "an environment must contain zzz; none does."),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(words, sentence, capsys):
    assert cli.main(words) == 2

    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"puffer: {sentence}")
    assert output.err.count("\n") == 1


def test_other_packages_add_commands(monkeypatch, capsys):
    foreign(monkeypatch, greet=lambda: greet)

    assert cli.main(["greet", "you"]) == 3
    assert capsys.readouterr().out == "hello you\n"
    cli.main([])
    assert "greet  Say hello.\n" in capsys.readouterr().out


def test_a_broken_command_of_another_package_hides_no_other(monkeypatch, capsys):
    def fail():
        raise ImportError("no such module")

    foreign(monkeypatch, greet=lambda: greet, broken=fail)

    assert cli.main([]) == 0
    text = capsys.readouterr().out
    assert "Say hello." in text
    assert "(cannot be loaded: ImportError: no such module)" in text


def test_a_command_cannot_be_replaced_from_outside(monkeypatch, capsys):
    foreign(monkeypatch, envs=lambda: greet)

    assert cli.main(["envs", "zzz"]) == 2


def test_envs_lists_ids_one_a_line(walk_spec, capsys):
    assert cli.main(["envs"]) == 0
    everything = capsys.readouterr().out.splitlines()
    assert cli.main(["envs", "WALK", "test"]) == 0
    found = capsys.readouterr().out.splitlines()

    assert "test-walk" in everything
    assert "puffer_walk" not in everything
    assert found == ["test-walk"]
    assert cli.main(["envs", "--help"]) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["envs"],
        ["train", "--help"],
        ["eval", "--help"],
        ["trian"],
        ["train", "nothing-here"],
        ["train", "--train.seed"],
    ],
)
def test_what_needs_no_torch_does_not_wait_for_it(words):
    program = (
        "import sys; from puffer_train import cli; before = 'numpy' in sys.modules; cli.main(sys.argv[1:]); "
        "sys.exit(f'torch: {\"torch\" in sys.modules}, numpy: {before}')"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)

    assert done.stderr.endswith("torch: False, numpy: False\n")


@pytest.mark.parametrize("redirection", [">&-", "2>&- >&-", ">/dev/full"])
def test_an_output_that_is_closed_or_full_gives_no_traceback(redirection):
    command = f"{shlex.quote(sys.executable)} -m puffer_train.cli help {redirection}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)

    full = "puffer: the output must take what is printed; No space left on device.\n"
    assert (done.returncode, done.stderr) == ((1, full) if "full" in redirection else (0, ""))


def test_every_public_name_is_found():
    assert {name for name in puffer_train.__all__ if getattr(puffer_train, name).__name__ != name} == set()
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = puffer_train.nothing


def test_warnings_are_sentences(monkeypatch, capsys):
    def warn(_words):
        warnings.warn("look out.", RuntimeWarning, stacklevel=1)

    foreign(monkeypatch, warn=lambda: warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *a, **_: sys.stderr.write(warnings.formatwarning(*a[:4]))
        assert cli.main(["warn"]) == 0

    assert capsys.readouterr().err == "puffer: warning: look out.\n"


def test_the_script_is_this_program():
    scripts = importlib.metadata.entry_points(group="console_scripts", name="puffer")

    assert [script.load() for script in scripts] == [cli.main]


def test_envs_says_why_one_cannot_be_made(capsys):
    register("broken-env", "no_such_module:Env")

    assert cli.main(["envs", "broken"]) == 0
    assert capsys.readouterr().out == "broken-env  (cannot be made here: No module named 'no_such_module')\n"
