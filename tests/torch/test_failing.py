# SPDX-License-Identifier: Apache-2.0
"""What a training script is told when something is wrong: by name, and without a hang."""
import pytest

from launch import run


def results(case, ranks=2, options=("--keep-going",)):
    ended = run(ranks, "failing.py", case, options=options)
    found = ended.results()
    assert found, ended.out + ended.err
    return found, ended


@pytest.mark.parametrize("case, parameter", [
    ("other_shape", "0.weight"), ("other_count", "2.weight"), ("other_type", "2.weight"),
    ("other_strides", "first.weight")])
def test_models_that_differ(case, parameter):
    """Each rank hears which parameter it is, and of whom."""
    found, ended = results(case)
    assert [each["rank"] for each in found] == [0, 1], ended.out
    for each in found:
        assert each["error"] == "PlanMismatchError", each
        assert each["parameter"] == parameter, each
        assert "rank 1" in each["text"] and parameter in each["text"], each


@pytest.mark.parametrize("case, parameter", [("added", "more.weight"), ("replaced", "0.weight")])
def test_model_changed(case, parameter):
    found, _ = results(case)
    for each in found:
        assert (each["error"], each["parameter"]) == ("ModelChangedError", parameter)
        assert f"rank {each['rank']}" in each["text"]
    assert len(found) == 2


def test_backward_twice():
    found, _ = results("backward_again")
    assert [(each["twice"], each["same"]) for each in found] == [(True, True)] * 2
    found, _ = results("graph_gone")
    assert [each["error"] for each in found] == ["RuntimeError"] * 2


def test_exception_in_backward():
    """The rank that has failed sees its exception, the other one that it was lost."""
    found, ended = results("exception_in_backward", options=("--keep-going",))
    mine = {each["when"]: each for each in found if each["rank"] == 1}
    assert (mine["backward"]["error"], mine["backward"]["text"]) == ("ValueError", "the lamp has gone out")
    assert mine["forward"]["error"] == "UnfinishedStepError"
    assert "0.weight" in mine["forward"]["text"]
    theirs, = [each for each in found if each["rank"] == 0]
    assert theirs["error"] in ("VoidRetry", "MemberLostError"), theirs
    assert "rank 1" in theirs["text"], theirs
    assert ended.status != 0


def test_member_gone():
    found, ended = results("member_gone")
    mine, = found
    assert mine["error"] in ("VoidRetry", "MemberLostError"), mine
    assert "rank 1" in mine["text"]
    assert ended.status != 0


def test_daemon_gone():
    found, _ = results("daemon_gone")
    assert [(each["rank"], each["error"]) for each in found] == [(0, "DaemonLostError"), (1,
                                                                                          "DaemonLostError")]


def test_interrupted():
    found, _ = results("interrupted", options=("--grace", "1"))
    assert [(each["rank"], each["error"]) for each in found] == [(0, "KeyboardInterrupt")]


def test_sparse():
    found, _ = results("sparse")
    assert {(each["rank"], each["when"]): (each["error"], each["parameter"]) for each in found} == {
        (rank, when): ("GradientKindError", "words.weight") for rank in (0, 1) for when in ("wrapping",
                                                                                            "backward")}


def test_small_floats():
    found, _ = results("small_floats")
    assert [(each["error"], each["parameter"]) for each in found] == [("GradientKindError", "tiny")] * 2


def test_refused_arguments():
    found, _ = results("refused")
    assert {each["given"]: each["error"] for each in found} == {
        "mixed_precision": "UnsupportedError", "device_mesh": "UnsupportedError", "nonsense": "TypeError",
        "process_group": "TypeError", "hook": "UnsupportedError"}


def test_workers_alive():
    """The others hear of a trainer's death although its data loader workers live."""
    found, ended = results("threads_and_children", options=("--grace", "5"))
    assert ended.status != 0
    assert "rank 1" in ended.err
    assert {each["rank"] for each in found} == {0, 1}
