import tomllib
from pathlib import Path

import pytest

from puffer_spaces import EnvSpec, Parameter
from puffer_train.errors import UsageError
from puffer_train.options import flat_options, train_options
from puffer_train.settings import (
    Layer,
    Settings,
    checkpoint_layer,
    default_layer,
    env_layer,
    file_layer,
    preset_layer,
)

SPEC = EnvSpec("grid", "nowhere:Grid", parameters=(Parameter("width", int, 5), Parameter("speed", float, 1.0)))
OPTIONS = flat_options(train_options(SPEC))
GROUPS = ("env", "vec", "policy", "train", "run")


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_later_layers_win_and_sources_are_kept():
    settings = Settings.from_layers(
        [Layer("default", {"env.width": 5, "train.seed": 1}), Layer("command line", {"env.width": 7})]
    )

    assert settings.group("env") == {"width": 7}
    assert settings.sources == {"env.width": "command line", "train.seed": "default"}


def test_a_message_tells_where_settings_come_from_that_the_user_did_not_say():
    settings = Settings.from_layers(
        [
            Layer("default", {"train.batch_size": None, "train.seed": 1, "train.size": 1}),
            Layer("grid.toml", {"train.minibatch_size": 512, "train.horizon": 8}),
            Layer("command line", {"train.horizon": 4}),
        ]
    )

    message = "must fit; got batch_size=32, minibatch_size=512, horizon=4. Use less."
    with pytest.raises(UsageError) as told, settings.sources_told():
        raise UsageError(message)
    assert str(told.value) == f"{message} (minibatch_size is from grid.toml)"
    with pytest.raises(UsageError, match=r"^seed=1 is odd\.$"), settings.sources_told():
        raise UsageError("seed=1 is odd.")


def test_a_file_is_read_with_other_words_and_whole_floats(tmp_path):
    path = write(
        tmp_path / "my.toml",
        "[env]\nwidth = 6\nspeed = 2\n[train]\nbptt_horizon = 16\ntotal_timesteps = 1e6\nbatch_size = 'auto'\n",
    )

    layer = file_layer(path, OPTIONS)

    assert layer.values == {
        "env.width": 6,
        "env.speed": 2.0,
        "train.horizon": 16,
        "train.total_timesteps": 10**6,
        "train.batch_size": None,
    }
    assert layer.source == path


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[env]\nwidht = 6\n", r"must hold only settings that exist; got env\.widht\. Did you mean env\.width\?"),
        ("[train]\nlearning_rat = 6\n", r"got learning_rat=6\. Did you mean learning_rate"),
        ("[env]\nwidth = 'wide'\n", r"env\.width in .*my\.toml must be a whole number; got 'wide'\."),
        ("[env]\nwidth = 1.5\n", r"env\.width in .* must be a whole number; got 1\.5\."),
        ("[train]\ncompile = 1\n", r"train\.compile in .* must be True or False; got 1\."),
        ("[trian]\nseed = 1\n", r"must hold only the tables env, policy, run, train, vec; got trian\."),
        ("[train\n", r"--config must be a TOML file that can be read"),
    ],
)
def test_a_mistake_in_a_file_gets_one_sentence(tmp_path, text, sentence):
    with pytest.raises(UsageError, match=sentence):
        file_layer(write(tmp_path / "my.toml", text), OPTIONS)


def test_a_file_of_another_environment_is_refused(tmp_path):
    path = write(tmp_path / "my.toml", 'env_id = "test-run"\n[train]\nseed = 1\n')

    with pytest.raises(UsageError, match=r"my\.toml must be of test-walk; it is of test-run"):
        file_layer(path, OPTIONS, "test-walk")
    assert file_layer(path, OPTIONS, "test-run").values == {"train.seed": 1}


@pytest.mark.parametrize("value", ["nan", "inf", "1e30"])
def test_a_number_of_a_file_that_is_no_whole_one_of_64_bits_is_named(tmp_path, value):
    path = write(tmp_path / "my.toml", f"[train]\nseed = {value}\n")

    with pytest.raises(UsageError, match=r"train\.seed in .*my\.toml must (be a whole number|fit 64 bits); got"):
        file_layer(path, OPTIONS)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"nothing\.toml: No such file or directory\."):
        file_layer(str(tmp_path / "nothing.toml"), OPTIONS)


def test_the_file_beside_an_env_may_hold_remarks(tmp_path, monkeypatch):
    package = tmp_path / "grid_package"
    package.mkdir()
    (package / "__init__.py").touch()
    write(package / "grid.toml", "score = 3.0\n[env]\nwidth = 6\n[result]\nsteps = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    spec = EnvSpec("grid", "x:y", parameters=SPEC.parameters, config="grid_package:grid.toml")

    assert env_layer(spec, OPTIONS) == Layer("grid.toml", {"env.width": 6})
    assert env_layer(SPEC, OPTIONS).values == {}


def test_a_preset_replaces_each_field_it_names():
    assert preset_layer("default").values == {}
    assert preset_layer("cleanrl").values["train.horizon"] == 128
    with pytest.raises(UsageError, match="preset must be one of"):
        preset_layer("best")


def test_a_checkpoint_gives_all_but_what_belongs_to_one_process():
    layer = checkpoint_layer(
        {
            "env": {"width": 9, "gone": 1},
            "train": {"stop_after_updates": 5, "device": "cuda", "seed": 3},
            "run": {"run_id": "a", "runs_dir": "b", "dashboard": "none", "log_interval": 2},
        },
        OPTIONS,
    )

    assert layer.values == {"env.width": 9, "train.seed": 3, "run.log_interval": 2}


def test_the_saved_text_has_the_source_of_each_value_and_can_be_read_again(tmp_path):
    settings = Settings.from_layers([default_layer(OPTIONS), Layer("command line", {"env.width": 7, "train.lr": 1.0})])
    settings.values.pop("train.lr")
    text = settings.to_toml("grid", GROUPS)

    assert 'env_id = "grid"' in text
    assert "width = 7  # command line" in text
    assert "speed = 1.0  # default" in text
    assert "target_kl" not in text
    assert set(tomllib.loads(text)) == {"env_id", *GROUPS}
    again = file_layer(write(tmp_path / "config.toml", text), OPTIONS).values
    assert again == {name: value for name, value in settings.values.items() if value is not None}
