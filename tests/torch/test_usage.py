# SPDX-License-Identifier: Apache-2.0
"""What scripts do with a wrapped model: as with PyTorch's DDP, bit by bit, where DDP does it."""
import re

import pytest

from launch import Group, run

GROUPS = [Group(names, script="usage.py") for names in (
    "grad_data_assigned grad_data_assigned_in_hook many_dimensions toggled mixed_no_sync "
    "looked_then_no_sync join_early wrapped_while_alive evaluated_by_zero evaluated_in_inference "
    "layers buffers lbfgs penalty static_penalty in_thread vectors averaged copied static_no_sync "
    "retried_forward",
    "compiled_in_place compiled_eager compiled_aot_eager compiled_before")]
CASES = [pytest.param(group, case, id=case, marks=pytest.mark.xdist_group(group.names[0]))
         for group in GROUPS for case in group.names]


@pytest.mark.parametrize("group, case", CASES)
def test_as_ddp(group, case):
    group.check(case)


@pytest.fixture(scope="module")
def lived():
    """What two ranks have said, by case."""
    ended = run(2, "living.py", "all")
    found = ended.results()

    def of(case):
        told = [each for each in found if each["case"] == case]
        assert [each["rank"] for each in told] == [0, 1], ended.out + ended.err
        return told

    yield of
    assert ended.status == 0, ended.err


@pytest.mark.xdist_group("lived")
class TestLife:
    """Of wrappers, processes and jobs."""

    def test_wrapped_again(self, lived):
        """The last wrapper averages; one that it has superseded says so, one that is gone does nothing."""
        for each in lived("wrapped_again"):
            assert each["grads"]
            error, text = each["superseded"]
            assert error == "StateError" and "0.weight" in text and "made later" in text
            assert each["same"] == [None, ""]

    def test_many_wrappers(self, lived):
        """Plans, memory and descriptors of those that are gone are given back."""
        for each in lived("many"):
            assert each["seen"][-1] == each["seen"][4]
            assert each["plans"] == each["memories"] <= 2

    def test_job_left(self, lived):
        for each in lived("left"):
            for part in ("backward", "forward"):
                error, text = each[part]
                assert error == "StateError" and "left" in text
            assert each["grads"], "the module alone trains on"

    @pytest.mark.parametrize("case", ["child", "child_in_pass", "child_in_backward"])
    def test_child(self, lived, case):
        for each in lived(case):
            assert (each["status"], each["same"]) == (0, True)

    def test_layers_in_turn(self, lived):
        for each in lived("in_turn"):
            first, *others = each["plans"]
            assert len(set(others)) == 1 and others[0] <= first + 1, "by the observed order, if at all"
            assert each["moved"] == [False, True]

    def test_module_alone(self, lived):
        for each in lived("alone"):
            assert (each["steps"], each["near"]) == (3, True)

    def test_all_frozen(self, lived):
        assert [each["steps"] for each in lived("frozen_whole")] == [[3, 3]] * 2

    def test_converted(self, lived):
        for each in lived("converted"):
            error, text = each["told"]
            assert error == "ModelChangedError"
            assert "0.weight" in text and f"rank {each['rank']}" in text and "float64" in text

    def test_names(self, lived):
        for each in lived("names"):
            assert each["grads"] == [[1.] * 3] * 5 and each["same"]

    def test_length_of_sampler(self, lived):
        for each in lived("lengths"):
            for ours, theirs in each["told"]:
                assert ours == theirs

    def test_strides_on_the_way(self, lived):
        assert all(each["same"] for each in lived("strided"))

    def test_storage_of_gradients(self, lived):
        for each in lived("storages"):
            assert each["sizes"] == [True] * 6


def test_ends_itself(tmp_path):
    """sys.exit() in the middle of a step: a new process takes the place, and the others' state."""
    ended = run(2, "living.py", "ends", tmp_path, options=["--restart", "2"])
    assert ended.status == 0, ended.out + ended.err
    assert [(each["begun"], each["count"], each["same"]) for each in ended.results()] == [
        (0, 10, True), (5, 10, True)]


def test_ends_in_a_step(tmp_path):
    """A rank whose last backward pass has not given all gradients says so, and the other one is not left
    waiting."""
    ended = run(2, "living.py", "stops_in_a_step")
    assert ended.status != 0
    assert ("gradsync: the process ends, but rank 1: step 3 is not finished: "
            "2 parameters (4.weight, 4.bias) got no gradient") in ended.text(1), ended.err
    assert re.search(r"gradsync.errors.* rank 1 \(pid \d+\) left after step 2", ended.text(0)), ended.err


def test_two_models(tmp_path):
    """A rank that is lost in the second block of a batch begins with that one."""
    told = []
    for doomed in (-1, 9):
        folder = tmp_path / str(doomed)
        folder.mkdir()
        ended = run(2, "living.py", "two_models", folder, doomed, options=["--restart", "2"])
        assert ended.status == 0, ended.out + ended.err
        told.append(ended.results())
    for undisturbed, disturbed in zip(*told, strict=True):
        assert undisturbed["first"] and disturbed["first"] == (disturbed["rank"] == 0)
        assert undisturbed["count"] == disturbed["count"] == 32
        assert undisturbed["same"] and disturbed["same"]
        assert undisturbed["sums"] == disturbed["sums"]
