import pytest

from puffer_train.atomic import replacing


def test_the_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()

    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_after_an_error_the_old_file_is_there_and_no_other(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), replacing(path) as temporary:
        temporary.with_name("no folder").joinpath("x").write_text("half of the n")

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
