import sys
import textwrap
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from puffer_train import cli
from puffer_train.checkpoint import read_checkpoint, read_metadata, write_checkpoint
from puffer_train.checkpoint_folder import CheckpointFolder
from puffer_train.metrics_file import read_metrics
from puffer_train.run import RunFolder

SMALL = ["--vec.num-envs", "4", "--train.horizon", "8", "--policy.hidden-size", "8", "--run.dashboard", "none"]
TIMES = ("SPS", "uptime", "performance/")

pytestmark = pytest.mark.usefixtures("own_folder")


def train(*words: str, code: int = 0) -> Path:
    assert cli.main(["train", "test-walk", *SMALL, *words]) == code
    return max(Path("runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)


def rows(run: Path) -> list[dict]:
    return [
        {key: value for key, value in row.items() if not key.startswith(TIMES)}
        for row in read_metrics(run / "metrics.jsonl")
    ]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return read_checkpoint(CheckpointFolder(run / "checkpoints").paths()[-1])[0]["policy"]


def complaint(capsys, *words: str) -> str:
    """Run a command line that must be refused, and return its sentence."""
    before = sorted(Path.cwd().rglob("*"))
    assert cli.main(list(words)) == 2
    output = capsys.readouterr()
    assert sorted(Path.cwd().rglob("*")) == before
    assert output.out == ""
    assert output.err.count("\n") == 1
    return output.err.removeprefix("puffer: ").strip()


def test_a_run_ends_by_itself_and_leaves_config_metrics_and_checkpoint():
    run = train("--train.num-iterations", "3")

    assert [row["epoch"] for row in rows(run)] == [1, 2, 3]
    assert [row["agent_steps"] for row in rows(run)] == [32, 64, 96]
    assert {"environment/score", "environment/width", "environment/num_episodes", "losses/entropy"} <= set(
        rows(run)[-1]
    )
    metadata = read_metadata(run / "checkpoints" / "update_00000003.pt")
    assert (metadata["env_id"], metadata["update"], metadata["agent_steps"]) == ("test-walk", 3, 96)
    config = tomllib.loads((run / "config.toml").read_text())
    assert config["train"]["num_iterations"] == 3


def test_the_same_seed_writes_the_same_metrics():
    one, other = train("--train.num-iterations", "3"), train("--train.num-iterations", "3")
    third = train("--train.num-iterations", "3", "--train.seed", "2")

    assert one != other
    assert rows(one) == rows(other)
    assert rows(one) != rows(third)


def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one():
    whole = train("--train.num-iterations", "4", "--run.run-id", "whole")
    part = train("--train.num-iterations", "4", "--run.run-id", "part", "--train.stop-after-updates", "2")
    assert len(rows(part)) == 2

    resumed = train("--resume", "part")

    assert resumed == part
    assert rows(resumed) == rows(whole)
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(resumed)[name])


def test_a_resumed_run_that_has_nothing_to_do_says_which_option_ended_it(capsys):
    train("--train.num-iterations", "3", "--run.run-id", "part", "--train.stop-after-updates", "2")
    capsys.readouterr()
    for option, reason in (
        (("--train.stop-after-updates", "1"), "counts all updates of the run, which has 2; got 1"),
        (("--train.num-iterations", "2"), "--train.total-timesteps or --train.num-iterations adds some"),
    ):
        train("--resume", "part", "--run.dashboard", "plain", *option)
        assert reason in capsys.readouterr().out


def test_what_lay_after_the_checkpoint_is_written_again():
    run = train("--train.num-iterations", "4", "--run.checkpoint-interval", "1", "--run.keep-checkpoints", "0")
    first = rows(run)

    resumed = train("--resume", str(run / "checkpoints" / "update_00000002.pt"))

    assert resumed == run
    assert rows(resumed) == first
    assert len(CheckpointFolder(run / "checkpoints").paths()) == 4


def test_on_resume_the_command_line_wins_over_the_checkpoint_and_the_rest_stays():
    train("--train.num-iterations", "2", "--train.learning-rate", "0.5", "--env.width", "7")

    run = train(
        "--resume", "latest", "--train.num-iterations", "3", "--train.learning-rate", "0.25", "--train.no-anneal-lr"
    )

    assert rows(run)[-1]["epoch"] == 3
    assert rows(run)[-1]["learning_rate"] == 0.25
    assert rows(run)[-1]["environment/width"] == 7
    text = (run / "config.toml").read_text()
    assert "learning_rate = 0.25  # command line" in text
    assert "width = 7  # checkpoint" in text


def test_a_copied_checkpoint_begins_a_new_run(tmp_path):
    run = train("--train.num-iterations", "1")
    copy = tmp_path / "copy.pt"
    copy.write_bytes((run / "checkpoints" / "update_00000001.pt").read_bytes())

    other = train("--resume", str(copy), "--train.num-iterations", "2")

    assert other != run
    assert [row["epoch"] for row in rows(other)] == [2]


def test_settings_come_from_the_strongest_place_and_reach_the_env(walk_spec):
    Path("my.toml").write_text("[env]\nwidth = 6\n[train]\nhorizon = 4\ngamma = 0.5\n")
    run = train("--config", "my.toml", "--train.num-iterations", "1", "--env.width", "7", "--train.preset", "cleanrl")

    text = (run / "config.toml").read_text()
    assert {env.width for env in walk_spec.entry_point.made} == {7}
    for line in (
        "width = 7  # command line",
        'gait = "steady"  # default',
        "horizon = 8  # command line",
        "gamma = 0.5  # my.toml",
        "learning_rate = 0.00025  # preset cleanrl",
        'preset = "cleanrl"  # command line',
        "total_timesteps = 10000000  # default",
    ):
        assert line in text, line


def test_the_config_of_a_run_starts_the_same_run():
    one = train("--train.num-iterations", "2", "--env.width", "3")
    assert cli.main(["train", "test-walk", "--config", str(one / "config.toml"), "--run.run-id", "again"]) == 0

    assert rows(Path("runs/again")) == rows(one)


def test_pufferlibs_names_are_taken():
    words = ["--train.device", "cpu", "--train.learning-rate", "3e-4", "--train.total_timesteps", "64"]
    assert cli.main(["train", "puffer_walk", *SMALL, *words, "--train.bptt-horizon", "8"]) == 0

    run = next(Path("runs").iterdir())
    assert run.name.startswith("test-walk-")
    assert rows(run)[-1]["agent_steps"] == 64


def test_a_users_own_module_is_found_in_the_working_directory(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("my_walks.py").write_text(
        textwrap.dedent("""
            from puffer_spaces import PufferEnv

            class Bits(PufferEnv):
                def __init__(self, width: int = 3, buf=None, seed=None):
                    super().__init__(buf, seed)
                    self.observation_space = self.make_space(width)
                    self.action_space = self.make_discrete(2)
                    self.width = width

                def reset(self, seed=None):
                    return [0.0] * self.width, {}

                def step(self, action):
                    return [1.0] * self.width, float(action), True, False, {}
        """)
    )

    assert cli.main(["train", "my_walks:Bits", *SMALL, "--env.width", "2", "--train.num-iterations", "1"]) == 0
    checkpoint = next(Path("runs").glob("*/checkpoints/update_00000001.pt"))
    assert read_metadata(checkpoint)["config"]["env"] == {"width": 2}


def test_the_best_checkpoint_is_kept_beside_the_last_ones():
    run = train("--train.num-iterations", "6", "--run.checkpoint-interval", "1", "--run.keep-checkpoints", "2")

    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert names == ["best.pt", "update_00000005.pt", "update_00000006.pt"]
    scores = [row["environment/score"] for row in rows(run) if "environment/score" in row]
    assert read_metadata(run / "checkpoints" / "best.pt")["score"] == max(scores)


def test_plain_lines_show_progress_where_the_output_is_no_terminal(capsys):
    words = ["--run.dashboard", "auto", "--run.dashboard-interval-s", "0", "--train.num-iterations", "2"]
    run = train(*words)

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"run folder: {run}"
    assert lines[1].startswith(" 50.0%  32 steps")
    assert lines[2].startswith("100.0%  64 steps")
    assert " % of the time in the " in lines[3]
    assert lines[4] == f"checkpoint: {run / 'checkpoints' / 'update_00000002.pt'}"

    train("--resume", "latest", *words[:-1], "3")
    resumed = capsys.readouterr().out.splitlines()
    assert resumed[0].endswith(f"{run.name}; it goes on after update 2")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train"], "the first word after puffer train must be an environment's id; got nothing."),
        (["train", "--train.seed", "1"], "the first word after puffer train must be an environment's id"),
        (["train", "test-wlak"], "environment id must be a registered one; got 'test-wlak'. Did you mean test-walk"),
        (
            ["train", "no_module:Env"],
            "the part of the id before the colon must be a module; there is none named no_module.",
        ),
        (["train", "json:Env"], "json must register or define Env; it does neither."),
        (["train", "test-walk", "--env.widht", "7"], "puffer train test-walk has no option --env.widht. Did you mean"),
        (["train", "test-walk", "--env.width", "wide"], "--env.width must be a whole number; got wide."),
        (["train", "test-walk", "--env.width", "99"], "width must be in [1, 9]; got 99."),
        (["train", "test-walk", "--train.gamma", "2"], "gamma must be between 0 and 1; got 2.0."),
        (
            ["train", "test-walk", "--vec.num-envs", "5", "--vec.backend", "threads", "--vec.num-workers", "2"],
            "num_envs must be a multiple of num_workers",
        ),
        (
            ["train", "test-walk", *SMALL, "--train.batch-size", "32", "--train.minibatch-size", "64"],
            "batch_size must be at least minibatch_size; got batch_size=32, minibatch_size=64.",
        ),
        (["train", "test-walk", *SMALL, "--train.batch-size", "33"], "batch_size must be a multiple of"),
        (["train", "test-walk", "--train.device", "tpu9"], "device must be auto, cpu, cuda"),
        (
            ["train", "test-walk", "--resume", "latest"],
            "a checkpoint of test-walk must be in runs; there is none at all.",
        ),
        (
            ["train", "test-walk", "--resume", "nothing.pt"],
            "a checkpoint must be latest, best, a run in runs",
        ),
        (["train", "test-walk", "--config", "nothing.toml"], "--config must be a TOML file that can be read"),
        (
            ["train", "test-walk", "--policy.name", "nowhere:Net"],
            "--policy.name must be module:Class that can be imported",
        ),
        (["train", "test-walk", "--run.log-interval", "0"], "--run.log-interval must be at least 1; got 0."),
        (["train", "test-walk", "--run.run-id", "a/b"], "a run id must be a plain folder name; got 'a/b'."),
        (["train", "test-walk", "--run.run-id", "best"], "a run id must not be best"),
        (
            ["train", "test-walk", "--train.seed", "1", "-x"],
            "every word after puffer train test-walk must belong to an option, --name value; got '-x'.",
        ),
        (["train", "test-walk", "--train.cpu-threads", "100000"], "cpu_threads must be at most 1024; got 100000."),
        (["train", "test-walk", "--policy.name", "os:path"], "--policy.name must be a class or function that makes"),
        (["train", "test-walk", "--train.gamma", "inf"], "gamma must be a finite number; got inf."),
        (["train", "test-walk", "--run.run-id="], "--run.run-id must be text or None; got nothing."),
        (["train", "test-walk", "--run.dashboard-interval-s", "nan"], "--run.dashboard-interval-s must be at least 0"),
        (["train", "test-walk", "--policy.hidden-size", "0"], "--policy.hidden-size must be at least 1; got 0."),
        (["train", "test-walk", "--train.seed", "9" * 25], "--train.seed must fit 64 bits; got 99999"),
        (["train", "test-walk", "--train.device", "meta"], "device must be one that this machine has; got meta."),
        (["train", "test-walk", "--train.seed", "10M"], "--train.seed must be a whole number; got 10M."),
        (
            ["train", "test-walk", "--num-envs", "4"],
            "puffer train test-walk has no option --num-envs. Did you mean --v",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(words, sentence, capsys):
    assert complaint(capsys, *words).startswith(sentence)


def test_a_checkpoint_of_another_env_or_policy_is_refused(capsys):
    run = train("--train.num-iterations", "1")
    path = str(run / "checkpoints" / "update_00000001.pt")
    Path("copy").mkdir()

    other = complaint(capsys, "train", "gym-like:nothing", "--resume", path)
    assert "gym-like" in other
    wider = complaint(capsys, "train", "test-walk", *SMALL, "--resume", "latest", "--policy.hidden-size", "16")
    assert wider.startswith("the checkpoint's weights must fit the policy;")
    preset = complaint(capsys, "train", "test-walk", "--resume", "latest", "--train.preset", "cleanrl")
    assert preset.startswith("--train.preset must stay default when a run goes on; got cleanrl.")


def test_a_checkpoint_without_the_state_of_a_run_is_refused(capsys):
    path = write_checkpoint("x.pt", {"policy": {}}, {"env_id": "test-walk"})

    assert "x.pt lacks optimizer, normalizer" in complaint(capsys, "train", "test-walk", *SMALL, "--resume", str(path))


def test_a_run_that_goes_on_elsewhere_is_left_alone(capsys):
    run = train("--train.num-iterations", "1")
    other = RunFolder.reopen(run, update=1, agent_steps=32)

    said = complaint(capsys, "train", "test-walk", *SMALL, "--resume", run.name, "--train.num-iterations", "2")

    assert said.startswith("one process at a time can write to a run; another one does")
    other.close()


def test_an_env_that_cannot_be_made_says_why(capsys):
    assert cli.main(["train", "test-walk", *SMALL, "--env.gait", "broken"]) == 1

    assert "gait must not be broken; got broken." in capsys.readouterr().err
    assert not Path("runs").exists()


def test_help_shows_the_defaults_of_this_env(capsys):
    Path("my.toml").write_text("[train]\ngamma = 0.625\n")
    assert cli.main(["train", "test-walk", "--config", "my.toml", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert cli.main(["train", "--help"]) == 0

    for words in (
        "--env.width INT Cells in a row. (1 to 9) (default: 5)",
        "(default: 0.625)",
        "--vec.num-envs",
        "--policy.",
    ):
        assert words in text
    assert "puffer train ID" in capsys.readouterr().out
    assert not Path("runs").exists()


def test_a_policy_class_is_found_in_the_working_directory(monkeypatch):
    monkeypatch.setattr("sys.path", list(sys.path))
    Path("policy_of_mine.py").write_text("from puffer_policies import default_policy as Net\n")

    assert train("--policy.name", "policy_of_mine:Net", "--train.num-iterations", "1").is_dir()


def test_every_option_of_the_command_is_read_somewhere():
    from puffer_train import config, options

    source = "".join(path.read_text() for path in Path(config.__file__).parent.rglob("*.py") if path.stem != "config")
    for owner in (config.TrainConfig, config.RunConfig, options.EvalSettings):
        for name in owner.__dataclass_fields__:
            assert source.count(name) > np.where(owner is options.EvalSettings, 1, 0), name
