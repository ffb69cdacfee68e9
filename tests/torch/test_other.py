# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's DDP cannot do here, or does not do."""
import pytest

from launch import run

#: Elements of the parameters of models.mlp().
MLP = 16 * 48 + 48 + 48 * 32 + 32 + 32 * 10 + 10


together = pytest.mark.xdist_group("other")


def run_cases(folder, *cases, ranks=2):
    ended = run(ranks, "other.py", folder, *cases)
    assert ended.status == 0, ended.out + ended.err
    found = {case: [each for each in ended.results() if each["case"] == case] for case in cases}
    for each in found.values():
        assert {one["rank"] for one in each} == set(range(ranks)), ended.out + ended.err
    return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """By case, what the ranks have seen; all of them run in the same processes."""
    return run_cases(tmp_path_factory.mktemp("other"), "unfrozen", "log", "plans_again", "checkpoint",
                     "two_forwards_of_norm", "unused_in_checkpoint", "counted", "layers_dropped",
                     "dropped_traffic", "random_numbers", "kept_views")


@together
def test_frozen_and_unfrozen(seen):
    for each in seen["unfrozen"]:
        assert each["same"]
        assert each["moved"] == [[step >= 4, step < 8, True] for step in range(12)]


@together
def test_log(seen):
    for each in seen["log"]:
        assert each["free"] == pytest.approx(each["norm"], rel=1e-5), "the norm comes with the step"
        assert (each["iteration"], each["rebuilt"]) == (3, 0), "the order was the expected one"
        assert each["said"] == {
            "module_name": "Sequential", "world_size": 2, "backend_name": "gradsync", "device_ids": "",
            "output_device": -1, "broadcast_buffers": 1, "find_unused_parameters": 0, "static_graph": 0,
            "comm_hook": "", "has_sync_bn": 0, "dtypes": "float32", "num_parameter_tensors": 6,
            "total_parameter_size_bytes": 4 * MLP, "bucket_cap_bytes": int(0.002 * 2 ** 20),
            "unused_parameter_size": 0, "can_set_static_graph": 1}
        assert each["profiled"] and each["hook"] == "fp16_compress_hook"
        sizes = [int(size) for size in each["sizes"].split(",")]
        assert sum(sizes) == 4 * MLP
        assert len(sizes) == len(each["buckets"]) == each["indices"].count("[") > 1
        assert all(bucket["ready_ns"] <= bucket["done_ns"] for bucket in each["buckets"])
        assert all(time > 0 for time in each["times"])


@together
def test_plans_by_the_observed_order(seen):
    for each in seen["plans_again"]:
        first, observed, before, turned = each["orders"]
        assert first == [3, 2, 1, 0], "the reverse of the order in which the model has them"
        assert sorted(observed[:2]) == [2, 3], "the layer that is used last"
        assert before == observed, "the change was in step 6; it is looked for after step 10"
        assert sorted(turned[:2]) == [0, 1]
        assert each["replanned"] == 2 if observed != first else 1


@together
def test_gradients_that_a_script_keeps(seen):
    for each in seen["kept_views"]:
        assert each["sums"] == [True] * 12


@pytest.mark.parametrize("ranks", [1, 3])
def test_normalised_over_all(tmp_path, ranks):
    for each in run_cases(tmp_path, "normalised", ranks=ranks)["normalised"]:
        assert len(each["far"]) == 5
        assert all(far < 1e-9 for far in each["far"].values()), each
        assert each["state"] and each["finite"] and each["logged"] == 1


@together
def test_checkpoint(seen):
    for each in seen["checkpoint"]:
        assert each["count"] == 4
        assert each["equal"]


@together
def test_two_forwards_of_normalisation(seen):
    assert all(each["same"] for each in seen["two_forwards_of_norm"])


@together
def test_unused_beside_a_checkpoint(seen):
    """Where PyTorch's DDP raises."""
    for each in seen["unused_in_checkpoint"]:
        assert each["same"] == [True] * 10


@together
def test_daemon_moves_the_gradients(seen):
    """To the byte."""
    asked, other = seen["counted"]
    assert asked["size"] == MLP and not asked["group"] and not other["group"]
    (first, _), *said = asked["said"]
    steps, few = 4 * MLP * 9, 2 * MLP * 3
    assert [reduced - first for reduced, _ in said] == [steps, 2 * steps, 2 * steps + few, 2 * steps + few]
    assert [void for _, void in said] == [0] * 4
    assert other["said"] == []


@together
def test_layers_dropped(seen):
    for each in seen["layers_dropped"]:
        assert each["unset"] == [[step % 2 == 1, step % 2 == 0, True, True] for step in range(6)]
        assert each["bytes"] == 3 * 4 * (16 * 16 + 16)
        assert each["sizes"] == [3 * 4 * (16 * 16 + 16), 2 * 4 * (16 * 16 + 16)]
        assert each["static"] == 0


@together
def test_random_numbers_of_a_void_step_are_drawn_again(seen):
    for each in seen["random_numbers"]:
        first, again, second, second_again = each["drawn"]
        assert first == again and second == second_again
        assert all(one != other for one, other in zip(first, second))


@together
def test_dropped_layers_move_nothing(seen):
    """Each parameter has a bucket of its own."""
    always, branch = 4 * (16 * 16 + 16 + 16 * 10 + 10), 4 * (16 * 16 + 16)
    expected = [always + branch * many for many in (1, 2, 0, 4, 2, 1, 1)]
    for each in seen["dropped_traffic"]:
        told, counted = zip(*each["moved"])
        assert list(told) == expected
        assert list(counted) == (expected if each["rank"] == 0 else [None] * 7)
