import json
import pickle
import shutil
from pathlib import Path

import pytest

import puffer_vector
from puffer_train import PuffeRL, cli
from puffer_train.checkpoint import read_checkpoint, write_checkpoint
from puffer_train.checkpoint_folder import CheckpointFolder

SMALL = ["--vec.num-envs", "4", "--train.horizon", "8", "--run.dashboard", "none"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("trained") / "runs"


@pytest.fixture(autouse=True)
def trained(runs, tmp_path, monkeypatch, walk_spec):
    """A run with settings that are not the defaults, in the working directory; it is trained once."""
    if not runs.exists():
        words = ["--policy.hidden-size", "8", "--policy.rnn", "lstm", "--env.width", "7", "--train.num-iterations", "2"]
        places = ["--run.runs-dir", str(runs), "--run.run-id", "first"]
        assert cli.main(["train", "test-walk", *SMALL, *words, *places]) == 0
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs, "runs")
    return Path("runs/first/checkpoints/update_00000002.pt")


def evaluate(capsys, *words: str) -> dict:
    capsys.readouterr()
    assert cli.main(["eval", "test-walk", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_b24_json_is_one_object_with_the_known_keys(capsys):
    result = evaluate(capsys, "--episodes", "5")

    assert list(result) == ["env", "episodes", "score", "episode_return", "episode_length"]
    assert (result["env"], result["episodes"]) == ("test-walk", 5)
    assert all(set(result[name]) == {"mean", "std"} for name in ("score", "episode_return", "episode_length"))


def test_at_least_32_episodes_by_default(capsys):
    assert evaluate(capsys)["episodes"] == 32


@pytest.mark.parametrize("words", [["--deterministic"], ["--no-deterministic"], ["--deterministic", "False"]])
def test_twice_the_same(capsys, words):
    first = evaluate(capsys, "--episodes", "5", "--seed", "3", *words)
    second = evaluate(capsys, "--episodes", "5", "--seed", "3", *words)

    assert first == second


def test_settings_come_from_the_checkpoint_unless_overridden(capsys, walk_spec):
    walk_spec.entry_point.made.clear()
    evaluate(capsys)
    assert {env.width for env in walk_spec.entry_point.made} == {7}

    walk_spec.entry_point.made.clear()
    evaluate(capsys, "--env.width", "2", "--vec.num-envs", "3")
    assert [(env.width, env.num_envs) for env in walk_spec.entry_point.made] == [(2, 3)]


def test_a_checkpoint_is_named_in_every_way(capsys, trained, tmp_path):
    copy = tmp_path / "copy.pt"
    copy.write_bytes(trained.read_bytes())
    results = [
        evaluate(capsys, "--checkpoint", which) for which in ("latest", "best", "first", str(copy), "runs/first")
    ]

    assert all(result == results[0] for result in results)


def test_people_get_a_table_and_the_checkpoints_place(capsys, trained):
    assert cli.main(["eval", "test-walk", "--episodes", "3"]) == 0

    text = capsys.readouterr().out
    assert text.startswith(f"checkpoint: {trained} (update 2)\n")
    for word in ("3 episodes", "score", "episode_return", "episode_length", "mean", "std"):
        assert word in text


def test_evaluation_writes_nothing(capsys):
    before = sorted(Path.cwd().rglob("*"))
    evaluate(capsys)

    assert sorted(Path.cwd().rglob("*")) == before


def test_names_of_a_compiled_policy_are_understood(capsys, trained, tmp_path):
    expected = evaluate(capsys, "--checkpoint", str(trained))
    state, metadata = read_checkpoint(trained)
    for prefix in ("_orig_mod.", "module."):
        other = {**state, "policy": {f"{prefix}{name}": value for name, value in state["policy"].items()}}
        path = write_checkpoint(tmp_path / "compiled.pt", other, metadata)
        assert evaluate(capsys, "--checkpoint", str(path)) == expected


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["eval"], "the first word after puffer eval must be an environment's id; got nothing."),
        (["eval", "test-wlak"], "environment id must be a registered one; got 'test-wlak'."),
        (["eval", "test-walk", "--episodes", "0"], "--episodes must be at least 1; got 0."),
        (["eval", "test-walk", "--episodes", "many"], "--episodes must be a whole number; got many."),
        (["eval", "test-walk", "--seed", "-1"], "--seed must not be negative; got -1."),
        (
            ["eval", "test-walk", "--episode", "3"],
            "puffer eval test-walk has no option --episode. Did you mean --episodes?",
        ),
        (
            ["eval", "test-walk", "--checkpoint", "other"],
            "a checkpoint must be latest, best, a run in runs",
        ),
        (
            ["eval", "test-walk", "--runs-dir", "none"],
            "a checkpoint of test-walk must be in none; there is none at all.",
        ),
        (["eval", "test-walk", "--env.width", "99"], "width must be in [1, 9]; got 99."),
    ],
)
def test_a_mistake_is_one_sentence(words, sentence, capsys):
    capsys.readouterr()
    assert cli.main(words) == 2

    output = capsys.readouterr()
    assert output.err.startswith(f"puffer: {sentence}")
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_a_checkpoint_of_another_env_is_refused(capsys, trained, tmp_path):
    state, metadata = read_checkpoint(trained)
    path = write_checkpoint(tmp_path / "other.pt", state, {**metadata, "env_id": "test-run"})

    assert cli.main(["eval", "test-walk", "--checkpoint", str(path)]) == 2
    assert f"the checkpoint must be of test-walk; {path} is of test-run." in capsys.readouterr().err


def test_a_file_that_would_run_code_is_refused(capsys, tmp_path):
    class Marker:
        def __reduce__(self):
            return Path.mkdir, (tmp_path / "marker",)

    path = tmp_path / "evil.pt"
    path.write_bytes(pickle.dumps(Marker()))
    for command in (["eval", "test-walk", "--checkpoint"], ["train", "test-walk", "--resume"]):
        assert cli.main([*command, str(path)]) == 2
        assert "a pickle can run code" in capsys.readouterr().err

    assert not (tmp_path / "marker").exists()


def test_help_lists_the_options(capsys):
    capsys.readouterr()
    assert cli.main(["eval", "test-walk", "--help"]) == 0

    text = capsys.readouterr().out
    for word in ("--checkpoint", "--episodes", "--json", "--deterministic", "--seed", "--env.width", "--vec.num-envs"):
        assert word in text
    assert CheckpointFolder(Path("runs/first/checkpoints")).paths()


def test_a_checkpoint_that_the_trainer_wrote_is_read_too(capsys, walk_spec):
    with (
        puffer_vector.make("test-walk", num_envs=2) as vec,
        PuffeRL(vec, horizon=8, num_iterations=1) as trainer,
    ):
        trainer.evaluate()
        trainer.train()
        path = trainer.save_checkpoint()

    assert evaluate(capsys, "--checkpoint", str(path), "--episodes", "3")["episodes"] == 3
