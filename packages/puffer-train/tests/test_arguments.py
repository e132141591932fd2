import dataclasses

import pytest

from puffer_spaces import EnvSpec, Parameter
from puffer_train.arguments import nearest, parse_values, read_arguments, take_env_id
from puffer_train.errors import UsageError
from puffer_train.options import TRAIN_ALIASES, flat_options, make_options, train_options

SPEC = EnvSpec(
    "grid",
    "nowhere:Grid",
    kwargs={"size": 7},
    parameters=(
        Parameter("width", int, 5, low=1, high=9, doc="Cells in a row."),
        Parameter("size", int, 3),
        Parameter("slippery", bool, False),
        Parameter("limit", int, None),
        Parameter("friction", float, 0.5, low=0),
        Parameter("anything", object, None),
    ),
)
OPTIONS_CLASS = train_options(SPEC)
OPTIONS = flat_options(OPTIONS_CLASS)


def parse(line: str) -> dict:
    arguments = read_arguments(line.split(), OPTIONS, "puffer train grid", TRAIN_ALIASES)
    return parse_values(arguments, OPTIONS_CLASS, make_options(OPTIONS_CLASS, {}), "Train.")


def complaint(line: str) -> str:
    with pytest.raises(UsageError) as raised:
        parse(line)
    return str(raised.value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--train.learning-rate 3e-4", {"train.learning_rate": 3e-4}),
        ("--train.learning_rate=0.5", {"train.learning_rate": 0.5}),
        ("--train.lr 1", {"train.learning_rate": 1.0}),
        ("--train.bptt-horizon 16", {"train.horizon": 16}),
        ("--train.total-timesteps 5e7", {"train.total_timesteps": 50_000_000}),
        ("--train.total-timesteps 1_000", {"train.total_timesteps": 1000}),
        ("--train.num-iterations 3 --train.num-iterations 4", {"train.num_iterations": 4}),
        ("--train.target-kl None", {"train.target_kl": None}),
        ("--train.batch-size auto", {"train.batch_size": None}),
        ("--train.reward-clip -1.5", {"train.reward_clip": -1.5}),
        ("--train.anneal-lr", {"train.anneal_lr": True}),
        ("--train.no-anneal-lr", {"train.anneal_lr": False}),
        ("--no-train.anneal-lr", {"train.anneal_lr": False}),
        ("--train.no_anneal_lr", {"train.anneal_lr": False}),
        ("--train.anneal-lr True", {"train.anneal_lr": True}),
        ("--train.anneal_lr=false", {"train.anneal_lr": False}),
        ("--vec.backend Serial", {"vec.backend": "serial"}),
        ("--vec.context None", {"vec.context": None}),
        ("--env.width 7 --env.slippery", {"env.width": 7, "env.slippery": True}),
        ("--env.limit 3", {"env.limit": 3}),
        ("--env.anything [1,2]", {"env.anything": [1, 2]}),
        ("--env.anything text", {"env.anything": "text"}),
        ("--resume latest", {"resume": "latest"}),
        ("--policy.name=--odd", {"policy.name": "--odd"}),
        ("", {}),
    ],
)
def test_options_are_read(line, expected):
    assert parse(line) == expected


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--train.learning-rate fast", "--train.learning-rate must be a number; got fast."),
        ("--train.seed 1.5", "--train.seed must be a whole number; got 1.5."),
        ("--train.seed", "--train.seed must be a whole number; got nothing."),
        ("--train.seed 1 2", "--train.seed must be a whole number; got 1 2."),
        ("--train.target-kl x", "--train.target-kl must be a number or None; got x."),
        ("--train.preset best", "--train.preset must be one of default, cleanrl, puffer3; got best."),
        ("--train.compile maybe", "--train.compile must be True or False; got maybe."),
        ("--train.no-compile True", "--train.compile must be True or False; got True."),
        ("--env.width wide", "--env.width must be a whole number; got wide."),
        ("stray", "every word after puffer train grid must belong to an option, --name value; got 'stray'."),
        (
            "--train.learning-rat 1",
            "puffer train grid has no option --train.learning-rat. Did you mean --train.learning-rate?",
        ),
        ("--learning-rate 1", "puffer train grid has no option --learning-rate. Did you mean --train.learning-rate?"),
        ("--env.widht 7", "puffer train grid has no option --env.widht. Did you mean --env.width?"),
        ("--train.no-seed", "puffer train grid has no option --train.no-seed. Did you mean --train.seed?"),
        ("--zzz 7", "puffer train grid has no option --zzz. puffer train grid --help lists all."),
    ],
)
def test_a_mistake_gets_one_sentence(line, sentence):
    assert complaint(line) == sentence


def test_a_good_option_beside_a_bad_one_is_not_blamed():
    assert complaint("--train.gamma 0.9 --train.seed x --env.width 3").startswith("--train.seed must be")


def test_the_help_lists_every_option_with_default_and_text(capsys):
    with pytest.raises(SystemExit) as raised:
        parse("--help")

    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert raised.value.code == 0
    for option in OPTIONS.values():
        assert f"{option.flag} " in text.replace(",", " ")
    assert "Cells in a row. (1 to 9) (default: 5)" in text
    assert "--env.size INT (default: 7)" in text
    assert "Step size of the optimizer at the start. (default: 0.0003)" in text


def test_every_option_has_a_help_text():
    from puffer_train import config, options

    for owner in (
        config.TrainConfig,
        config.VecConfig,
        config.PolicyConfig,
        config.RunConfig,
        options.TrainFiles,
        options.EvalSettings,
    ):
        documented = _attribute_docstrings(owner)
        assert documented >= {field.name for field in dataclasses.fields(owner)}, owner


def test_near_names_put_the_same_last_part_first():
    names = ["train.seed", "vec.num_envs", "train.num_iterations"]

    assert nearest("num_envs", names) == ["vec.num_envs"]
    assert nearest("train.num_envs", names)[0] == "vec.num_envs"
    assert nearest("xyz", names) == []


def test_the_env_id_comes_first():
    assert take_env_id(["grid", "--x"], "puffer train") == ("grid", ["--x"])
    assert take_env_id(["--help"], "puffer train") == (None, ["--help"])
    for words in ([], ["--train.seed", "1", "grid"]):
        with pytest.raises(UsageError, match=r"the first word after puffer train must be an environment's id"):
            take_env_id(words, "puffer train")


def _attribute_docstrings(owner: type) -> set[str]:
    import ast
    import inspect
    import itertools
    import textwrap

    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0].body
    return {
        statement.target.id
        for statement, text in itertools.pairwise(body)
        if isinstance(statement, ast.AnnAssign) and isinstance(text, ast.Expr)
    }
