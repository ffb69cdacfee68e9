# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's DDP cannot do here, or does not do."""
import pytest

from launch import run


def results(case, *arguments, ranks=2):
    ended = run(ranks, "other.py", case, *arguments)
    assert ended.status == 0, ended.out + ended.err
    found = ended.results()
    assert {each["rank"] for each in found} == set(range(ranks)), ended.out + ended.err
    return found


def test_frozen_and_unfrozen():
    for each in results("unfrozen"):
        assert each["same"]
        assert each["moved"] == [[step >= 4, step < 8, True] for step in range(12)]


def test_log():
    for each in results("log"):
        assert each["free"] == pytest.approx(each["norm"], rel=1e-5), "the norm comes with the step"
        assert (each["iteration"], each["rebuilt"]) == (3, 0), "the order was the expected one"
        sizes = [int(size) for size in each["sizes"].split(",")]
        assert sum(sizes) == 4 * (16 * 48 + 48 + 48 * 32 + 32 + 32 * 10 + 10)
        assert len(sizes) == len(each["buckets"]) == each["indices"].count("[") > 1
        assert all(bucket["ready_ns"] <= bucket["done_ns"] for bucket in each["buckets"])
        assert all(time > 0 for time in each["times"])


def test_plans_by_the_observed_order():
    for each in results("plans_again"):
        first, observed, before, turned = each["orders"]
        assert first == [3, 2, 1, 0], "the reverse of the order in which the model has them"
        assert sorted(observed[:2]) == [2, 3], "the layer that is used last"
        assert before == observed, "the change was in step 6; it is looked for after step 10"
        assert sorted(turned[:2]) == [0, 1]
        assert each["replanned"] == 2 if observed != first else 1


def test_gradients_that_a_script_keeps():
    for each in results("kept_views"):
        assert each["sums"] == [True] * 12


@pytest.mark.parametrize("ranks", [1, 3])
def test_normalised_over_all(ranks):
    for each in results("normalised", ranks=ranks):
        assert each["far"] < 1e-9
        assert each["state"] and each["finite"]


def test_checkpoint(tmp_path):
    for each in results("checkpoint", tmp_path):
        assert each["count"] == 4
        assert each["equal"]


def test_two_forwards_of_normalisation():
    assert all(each["same"] for each in results("two_forwards_of_norm"))


def test_layers_dropped():
    for each in results("layers_dropped"):
        assert each["unset"] == [[step % 2 == 1, step % 2 == 0, True, True] for step in range(6)]
        assert each["bytes"] == 3 * 4 * (16 * 16 + 16)
        assert each["static"] == 0
