# SPDX-License-Identifier: Apache-2.0
"""Scripts that use a wrapped model in their own ways: results are those of PyTorch's DDP, bit by bit, where
DDP can do it. Ranks that end in the middle of a step."""
import re

import pytest

from launch import Group, cases, passed, run

GROUPS = [
    Group("grad_data_assigned grad_data_assigned_in_hook many_dimensions toggled mixed_no_sync "
          "looked_then_no_sync join_early wrapped_while_alive evaluated_by_zero evaluated_in_inference "
          "layers buffers lbfgs penalty static_penalty in_thread vectors averaged copied static_no_sync "
          "retried_forward", script="usage.py", heavy=False),
    Group("compiled_in_place compiled_eager compiled_aot_eager compiled_before", script="usage.py"),
]


@cases(*GROUPS)
def test_as_ddp(group, case):
    group.check(case)


@pytest.mark.heavy
def test_ends_itself(tmp_path):
    """sys.exit() in the middle of a step: a new process takes the place, and the others' state."""
    found = passed(2, "living.py", "ends", tmp_path, options=["--restart", "2"])
    assert [(each["begun"], each["count"], each["same"]) for each in found] == [(0, 10, True), (5, 10, True)]


def test_ends_in_a_step():
    """A rank whose last backward pass has not given all gradients says so, and the other one is not left
    waiting."""
    ended = run(2, "living.py", "stops_in_a_step")
    assert ended.status != 0
    assert ("gradsync: the process ends, but rank 1: step 3 is not finished: "
            "2 parameters (4.weight, 4.bias) got no gradient") in ended.text(1), ended.err
    assert re.search(r"gradsync.errors.* rank 1 \(pid \d+\) left after step 2", ended.text(0)), ended.err


@pytest.mark.heavy
def test_two_models(tmp_path):
    """A rank that is lost in the second block of a batch begins with that one."""
    told = []
    for doomed in (-1, 9):
        folder = tmp_path / str(doomed)
        folder.mkdir()
        told.append(passed(2, "living.py", "two_models", folder, doomed, options=["--restart", "2"]))
    for undisturbed, disturbed in zip(*told, strict=True):
        assert undisturbed["first"] and disturbed["first"] == (disturbed["rank"] == 0)
        assert undisturbed["count"] == disturbed["count"] == 32
        assert undisturbed["same"] and disturbed["same"]
        assert undisturbed["sums"] == disturbed["sums"]
