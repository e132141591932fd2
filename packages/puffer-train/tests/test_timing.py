import pytest

from puffer_train.timing import speeds, where_time_goes, with_other

SECONDS = {"env": 1.0, "policy": 2.0, "copy": 0.5, "train": 6.0}


def test_the_sentence_names_the_largest_share_first_and_leaves_out_nothing_but_crumbs():
    row = {"SPS": 7.0, **{f"performance/{name}": value for name, value in with_other(SECONDS, 9.51).items()}}

    assert where_time_goes(row) == (
        "63 % of the time in the update, 21 % in the policy's forward pass, 11 % in the environments, "
        "5 % in moving rows."
    )
    assert where_time_goes({}) == ""


def test_what_is_in_no_stage_is_elsewhere():
    assert with_other(SECONDS, 10.0)["other"] == pytest.approx(0.5)
    assert with_other(SECONDS, 1.0)["other"] == 0.0
    row = {f"performance/{name}": value for name, value in with_other(SECONDS, 11.5).items()}
    assert where_time_goes(row).endswith("9 % in the environments, 4 % in moving rows, 17 % elsewhere.")


def test_speeds_are_those_of_each_part_alone():
    assert speeds(90.0, SECONDS) == pytest.approx({"env": 90.0, "vector": 60.0, "rollout": 90.0 / 3.5, "train": 15.0})
    assert speeds(90.0, dict.fromkeys(SECONDS, 0.0)) == {}
