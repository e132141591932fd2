import pytest

from puffer_train import cli
from puffer_train.config import ConfigError, VecConfig
from puffer_train.launch import Launch, share_of_vector, share_of_worlds
from puffer_vector import make

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


def fields(**changes):
    return {**VecConfig().__dict__, **changes}


def test_torchruns_words_are_understood_and_half_of_them_mean_nothing():
    assert Launch.from_environment(TORCHRUN) == Launch(3, 4, 1, 2)
    assert not Launch.from_environment(TORCHRUN).is_alone
    assert Launch.from_environment({}).is_alone
    assert Launch.from_environment({"RANK": "3", "WORLD_SIZE": "4"}).is_alone


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": "x"}, "RANK must be a whole number; got 'x'"),
        ({"LOCAL_RANK": "-1"}, "LOCAL_RANK must be a whole number; got '-1'"),
        ({"RANK": "4"}, "RANK must be below WORLD_SIZE; got RANK=4, WORLD_SIZE=4"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "RANK must be below WORLD_SIZE"),
    ],
)
def test_words_that_torchrun_never_says_are_named(changes, message, walk_spec, monkeypatch, capsys):
    environment = {**TORCHRUN, **changes}
    with pytest.raises(ConfigError, match=message):
        Launch.from_environment(environment)

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["train", "test-walk"]) == 2
    assert capsys.readouterr().err.startswith(f"puffer: {message}")


@pytest.mark.parametrize(("num_envs", "world_size"), [(8, 1), (8, 2), (9, 3)])
def test_b7_the_shares_are_one_numbering_without_gaps(num_envs, world_size):
    worlds = []
    for rank in range(world_size):
        share = share_of_worlds(rank, world_size, num_envs)
        worlds += range(share["first_world"], share["first_world"] + share["num_envs"])

    assert worlds == list(range(num_envs))


def test_worlds_that_cannot_be_shared_are_named_with_a_number_that_can():
    with pytest.raises(ConfigError, match=r"got num_envs=7, 2 processes. Use 8 envs."):
        share_of_worlds(0, 2, 7)
    with pytest.raises(ConfigError, match="batch_size must be a multiple of the number of processes; got batch_size=3"):
        share_of_vector(Launch(0, 2), fields(num_envs=12, batch_size=3))


def test_a_process_alone_keeps_its_settings():
    assert share_of_vector(Launch(), fields(num_envs=7)) == fields(num_envs=7)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("local_world_size", [1, 2, 64])
def test_what_a_process_gets_can_be_made(mode, local_world_size, walk_spec):
    launch = Launch(1, 2, 0, local_world_size)
    own = share_of_vector(launch, fields(num_envs=24, backend="threads", mode=mode))

    with make(walk_spec, **own) as vec:
        assert vec.num_envs == 12
        assert int(vec.world_ids[0]) == 12
        assert vec.num_workers >= 1


def test_batches_are_shared_as_worlds_are():
    own = share_of_vector(Launch(1, 2), fields(num_envs=16, batch_size=8))

    assert (own["num_envs"], own["batch_size"], own["first_world"]) == (8, 4, 8)
