# SPDX-License-Identifier: Apache-2.0
"""Trainings in which ranks would go on with different parameters, or with each other's numbers, and end with
0: what is averaged after all, what is refused, and what is said."""
import pytest
import torch

import gradsync
from gradsync.torch import buffers, compare, drift, layers
from launch import run

CASES = ("normalised normalised_types put_in_later layers_refused "
         "backward_inside gan_inside twice_in_each part_inside inside_without_sync "
         "order_of_buffers buffers_that_differ buffers_that_change late loaded_by_one left_alone frozen_ones "
         "how_often by_module accumulated_wrongly step_too_early rightly odd_steps calibrated "
         "followed_loss joined helpers shares failed_backward").split()
NOTHING = [None, "", None]
together = pytest.mark.xdist_group("apart")


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """By case, what two ranks have seen; all of them run in the same processes."""
    ended = run(2, "apart.py", tmp_path_factory.mktemp("apart"), *CASES)
    assert ended.status == 0, ended.out + ended.err
    found = {case: [each for each in ended.results() if each["case"] == case] for case in CASES}
    for each in found.values():
        assert [one["rank"] for one in each] == [0, 1], ended.out + ended.err
    return found


# ---- layers that exchange something by themselves

@together
def test_synchronised_normalisation(seen):
    for each in seen["normalised"]:
        assert each["far"] < 1e-6, "means of all samples"
        assert each["same"] and each["hooks"], "the layer stays the same object"
        assert each["kind"] == ["gradsync.torch.sync_batchnorm", True] and each["alone"]
        assert each["job"] == [True, True], "copies of the wrapper and of the layer have it, too"


@together
def test_the_type_of_what_is_normalised(seen):
    bf16, f32 = "torch.bfloat16", "torch.float32"
    for each in seen["normalised_types"]:
        assert each["kinds"] == {"mixed": [bf16, bf16, f32], "narrow": [bf16] * 3, "autocast": [bf16]}
        assert each["second"][0] == "RuntimeError" and "twice" in each["second"][1]
        assert each["bare"] == NOTHING and each["mine"]


@together
def test_normalisation_that_is_put_in_later(seen):
    for each in seen["put_in_later"]:
        assert each["same"] and each["refused"][0] == "ModelChangedError"


@together
def test_layers_that_are_refused(seen):
    for each in seen["layers_refused"]:
        for name, (kind, text, _) in each["found"].items():
            assert kind == "UnsupportedError"
            assert ("parameter 1.weight" if name == "split" else "layer 1 ") in text
        assert "communicates" not in str(each["found"])
        assert "Derive it from gradsync.torch.SyncBatchNorm" in each["found"]["subclass"][1]
        assert "process_group" in each["found"]["group"][1]
        assert "Give gradsync.torch.DistributedDataParallel its .module" in each["found"]["ddp"][1]
        assert "DTensor" in each["found"]["split"][1]
        assert each["fine"] == [NOTHING, NOTHING]
        assert each["twice"][0] == "UnsupportedError" and "has wrapped this wrapper" in each["twice"][1]


def test_a_module_with_an_exchange_of_its_own():
    """Fully sharded ones get a class that derives from one of torch.distributed's."""
    base = type("FSDPModule", (), {"__module__": "torch.distributed.fsdp._fully_shard"})
    sharded = type("FSDPLinear", (base, torch.nn.Linear), {})(2, 2)
    with pytest.raises(gradsync.UnsupportedError, match="layer 0 is .*FSDPLinear: it communicates through"):
        layers.check(torch.nn.Sequential(sharded), {})


# ---- backward passes within the forward pass

@together
def test_backward_within_forward(seen):
    for each in seen["backward_inside"]:
        assert each["equal"] and each["same"] and each["told"] == "" and each["steps"] == 3


@together
def test_two_optimisers_within_forward(seen):
    for each in seen["gan_inside"]:
        assert each["same"] and each["told"] == "" and each["steps"] == 6


@together
def test_within_forward_without_synchronisation(seen):
    for each in seen["inside_without_sync"]:
        assert each["failed"] == "ValueError"
        assert each["steps"] == [0, 1, 2, 2], "no_sync(); averaged; averaged, and then failed; of .module"


@together
def test_several_steps_for_each_forward_pass(seen):
    for each in seen["twice_in_each"]:
        for name in ("inside", "outside"):
            assert each[name]["steps"] == 8 and each[name]["checks"] >= 1
            assert "the ranks train different models" in each[name]["told"]


@together
def test_a_backward_pass_within_forward_that_gives_some_gradients(seen):
    for each in seen["part_inside"]:
        kind, text, parameter = each["error"]
        assert (kind, parameter) == ("UnfinishedStepError", "second.weight")
        for word in ("within forward()", "second.weight, second.bias", "torch.autograd.grad()",
                     "find_unused_parameters=True"):
            assert word in text, text


# ---- what is broadcast

@together
def test_order_of_buffers(seen):
    for each in seen["order_of_buffers"]:
        assert each["values"] == [1., 100., 3., 4., 1.]


@together
def test_buffers_that_differ(seen):
    for each in seen["buffers_that_differ"]:
        found = each["found"]
        assert found.pop("not sent") == NOTHING
        assert {name: [kind, parameter] for name, (kind, _, parameter) in found.items()} == {
            "names": ["PlanMismatchError", "kind_a"], "shapes": ["PlanMismatchError", "table"],
            "frozen": ["PlanMismatchError", "here"], "types": ["PlanMismatchError", "count"]}
        assert "buffer kind_a is on rank 0, but not on rank 1" in found["names"][1]
        assert "buffer table is float32 of shape (4, 4) on rank 1, but float32 of shape (16,) on rank 0" in \
            found["shapes"][1]


@together
def test_buffers_that_change(seen):
    first, second = seen["buffers_that_change"]
    assert first["renamed"] == first["reshaped"] == NOTHING
    assert second["left"] == 7., "nothing was taken"
    assert second["renamed"][0] == second["reshaped"][0] == "ModelChangedError"
    assert "buffer other is on this rank, but not on all ranks when they compared" in second["renamed"][1]
    assert "buffer table is float32 of shape (4, 4) on this rank" in second["reshaped"][1]
    assert first["resized"][0] == second["resized"][0] == "OperationMismatchError"
    assert "buffer table is float32 of shape (5,) on this rank" in second["resized"][1]
    assert "the other one has changed" in first["resized"][1]
    assert first["emptied"] == NOTHING
    assert second["emptied"][0] == "ModelChangedError", "without an element, too"


@together
def test_a_process_that_comes_late_has_other_buffers(seen):
    for each in seen["late"]:
        kind, text, parameter = each["error"]
        assert kind == "PlanMismatchError" and parameter == "other"
        assert "buffer other is on the other ranks, but not on rank" in text


# ---- parameters that drift apart

def check_difference(text, parameter, step=1):
    for each in (f"after step {step} the ranks train different models",
                 f"parameter {parameter} of rank 1 differs from that of rank 0", "Usual causes",
                 "GRADSYNC_CHECK_PARAMETERS=off"):
        assert each in text, text


@together
def test_a_checkpoint_that_one_rank_has_loaded(seen):
    for each in seen["loaded_by_one"]:
        assert each["warn"]["error"] == NOTHING and each["warn"]["told"].count("warning") == 1
        check_difference(each["warn"]["told"], "2.weight")
        kind, text, parameter = each["error"]["error"]
        assert (kind, parameter) == ("ParametersDifferError", "2.weight")
        check_difference(text, "2.weight")
        assert each["off"] == {"told": "", "error": NOTHING, "checks": 0}


@together
def test_parameters_that_may_differ(seen):
    for each in seen["left_alone"]:
        assert each["told"] == "" and each["error"] == NOTHING and each["checks"] == 2


@together
def test_frozen_parameters(seen):
    for each in seen["frozen_ones"]:
        check_difference(each["told"], "0.bias")


@together
def test_how_often_they_are_compared(seen):
    for each in seen["how_often"]:
        assert each["due"] == [1, 4, 4, 4, 8, 8, 8, 8, 10, 10, 12, 12, 16, 16]
        assert each["checks"] == 5 and each["took"] > 0


def test_steps_of_comparison():
    from gradsync.torch.order import following
    due, steps = 1, []
    while due < 400:
        steps.append(due)
        due = following(due, 100)
    assert steps == [1, 10, 100, 200, 300]
    assert [following(step, 1) for step in (1, 9, 10, 11)] == [2, 10, 11, 12]


def check_unaveraged(found, parameter="0.weight", step=0):
    assert found["error"] == NOTHING
    for each in (f"after step {step}: an optimiser is about to apply a gradient of parameter {parameter} ",
                 "that gradsync has not averaged", "Call the wrapper itself",
                 "GRADSYNC_CHECK_PARAMETERS=off"):
        assert each in found["told"], found


@together
def test_a_loss_that_a_method_of_the_module_computes(seen):
    for each in seen["by_module"]:
        check_unaveraged(each["warn"])
        told = each["warn"]["told"]
        assert told.count("warning") == 1 and "did not begin with an output" in told
        assert each["error"]["error"][::2] == ["ParametersDifferError", "0.weight"]
        assert each["off"] == {"told": "", "error": NOTHING}


@together
def test_passes_that_are_accumulated_wrongly(seen):
    for each in seen["accumulated_wrongly"]:
        for name in ("off_by_one", "left_over", "flag", "closure"):
            check_unaveraged(each[name], step=1)
        check_difference(each["off_by_one"]["told"], "0.weight")


@together
def test_an_optimiser_that_steps_too_early(seen):
    for each in seen["step_too_early"]:
        check_unaveraged(each, "one.weight")
        assert "belongs to a step that is not finished" in each["told"] and each["told"].count("warning") == 1


@together
def test_nothing_is_said_without_a_reason(seen):
    for each in seen["rightly"]:
        assert each["told"] == "" and each["error"] == NOTHING and each["same"]


@together
def test_optimisers_of_other_people(seen):
    for each in seen["odd_steps"]:
        assert each["told"] == "" and each["error"] == NOTHING and each["same"] and each["steps"] == 3


@together
def test_a_rank_that_goes_on_with_a_part_alone(seen):
    for each in seen["calibrated"]:
        assert each["error"] == NOTHING


@together
def test_an_optimiser_that_follows_the_loss(seen):
    for each in seen["followed_loss"]:
        assert each["off"] == {"told": "", "error": NOTHING}
        assert "LBFGS goes as far as the loss tells it to" in each["own"]["told"]
        assert "on rank 0" in each["own"]["told"] and "on rank 1" in each["own"]["told"]
        assert each["all"] == {"told": "", "error": NOTHING}


@together
def test_ranks_without_inputs_have_an_old_model(seen):
    for each in seen["joined"]:
        assert each["told"] == "" and each["error"] == NOTHING and each["same"] and each["checks"] > 4


@together
def test_a_backward_pass_that_has_failed(seen):
    for each in seen["failed_backward"]:
        kind, text, parameter = each["error"]
        assert each["first"] == "boom" and (kind, parameter) == ("UnfinishedStepError", "0.weight")
        assert "has failed with an exception" in text and "find_unused_parameters" not in text


# ---- scripts that ask torch.distributed

@together
def test_helpers_that_take_every_rank_for_the_first(seen):
    told = seen["helpers"][0]["told"]
    assert len(told) == 2 and seen["helpers"][1]["told"] == []
    for (text, kind, here), state in zip(told, ("is not initialised", "has a world of 1")):
        assert kind == "RuntimeWarning" and here, "it names the line that wraps"
        for each in (f"torch.distributed {state}", "rank 0 of 1", "has 2 ranks", "init_process_group()"):
            assert each in text, text


@together
def test_the_sampler_takes_what_torchs_takes(seen):
    for each in seen["shares"]:
        assert all(each["equal"]) and len(each["equal"]) == 8 and each["positional"] and each["kept"]
        assert each["wrong"][0] == "ValueError"
        assert "The number of samples of a step is batch_size" in each["wrong"][1]
        assert each["beyond"][:2] == ["ValueError", "rank 2 does not exist among 2 replicas"]
        assert each["uncounted"][0] == "ValueError" and "batch_size" in each["uncounted"][1]
        assert each["copied"] == [True, True] and each["again"] == [True, "StateError"]


# ---- settings, digests and comparisons

def test_settings(monkeypatch):
    assert drift.setting_of(None, None) == drift.Setting(drift.Mode.WARN, 100)
    monkeypatch.setenv("GRADSYNC_CHECK_PARAMETERS", "error")
    monkeypatch.setenv("GRADSYNC_CHECK_EVERY", "7")
    assert drift.setting_of(None, None) == drift.Setting(drift.Mode.ERROR, 7)
    assert drift.setting_of("off", 3) == drift.Setting(drift.Mode.OFF, 3)
    monkeypatch.setenv("GRADSYNC_CHECK_PARAMETERS", "")
    assert drift.setting_of(None, None).mode is drift.Mode.WARN
    for name, value, given in (("GRADSYNC_CHECK_PARAMETERS", "perhaps", (None, None)),
                               ("check_parameters", "", ("no", None)),
                               ("GRADSYNC_CHECK_EVERY", "0", (None, None)),
                               ("GRADSYNC_CHECK_EVERY", "often", (None, None)),
                               ("check_every", "", (None, -1))):
        with monkeypatch.context() as context:
            if name.isupper():
                context.setenv(name, value)
            with pytest.raises(ValueError, match=name):
                drift.setting_of(*given)


SHAPES = [(1,), (3,), (5, 7), (64,), (257, 129), (512, 512), (33, 1000)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64, torch.int8])
def test_a_digest_changes_with_each_bit_and_place(dtype):
    torch.manual_seed(3)
    tensors = [(torch.randn(shape) * 50).to(dtype) for shape in SHAPES]
    whole = drift.digest(tensors)
    assert whole == drift.digest([each.clone() for each in tensors])
    for i, each in enumerate(tensors):
        for at in {0, each.numel() // 2, each.numel() - 1}:
            flat = torch.view_as_real(each).view(-1) if each.is_complex() else each.view(-1)
            raw = flat[at:at + 1].view(torch.uint8)
            raw[-1] ^= 1
            assert drift.digest(tensors) != whole, (i, at)
            assert drift.digest([each]) != drift.digest([each.flip(0)]) or each.numel() == 1
            raw[-1] ^= 1
        if each.dim() == 2:
            assert drift.digest([each]) != drift.digest([each.roll(1, 0)]) != drift.digest([each.roll(1, 1)])
    assert drift.digest(tensors) == whole
    assert drift.digest(tensors[::-1]) != whole


def test_a_digest_is_one_of_values_not_of_memory():
    torch.manual_seed(3)
    image = torch.randn(16, 8, 33, 33)
    store = torch.zeros(image.numel() + 1)
    store[1:] = image.view(-1)
    others = [image.to(memory_format=torch.channels_last), image.transpose(0, 1).contiguous().transpose(0, 1),
              store[1:].view(image.shape)]
    assert all(drift.digest([each]) == drift.digest([image]) for each in others)
    assert drift.digest([]) == 0


def test_the_ranks_that_differ_from_most(crew):
    """Each rank gets the same answer; a rank that only takes part does not count."""
    made = crew(4)

    def found(values, live=(True,) * 4):
        named = [("same", torch.ones(5)), ("other", torch.zeros(7))]

        def one(rank):
            mine = [named[0], ("other", torch.full((7,), float(values[rank])))]
            return drift.compare(made.jobs[rank], mine, live[rank]).difference
        first, *others = made.each(one)
        assert all(each == first for each in others)
        return first and (first.parameter, first.ranks)

    assert found([0, 0, 0, 0]) is None
    assert found([0, 0, 3, 0]) == ("other", [2])
    assert found([9, 0, 0, 0]) == ("other", [0])
    assert found([0, 0, 1, 1]) == ("other", [2, 3])
    assert found([0, 5, 0, 0], (True, False, True, True)) is None
    text = drift.Difference("other", list(range(3, 14)), 20).text(7)
    assert ("parameter other of ranks 3, 4, 5, 6, 7, 8, 9, 10 and 3 more differs from that of ranks 0, 1, 2, "
            "14") in text


def test_what_is_broadcast_is_compared_by_name(crew):
    made = crew(3)
    one, two = torch.zeros(2), torch.zeros(3, dtype=torch.int64)
    described = [compare.describe([("buffer", "a", one), ("buffer", "b", two)]),
                 compare.describe([("buffer", "b", two), ("buffer", "a", one)])]
    made.each(lambda r: compare.check(made.jobs[r], described[r % 2]))

    def differing(rank):
        mine = described[0] if rank < 2 else {"a": described[0]["a"]}
        with pytest.raises(gradsync.PlanMismatchError) as told:
            compare.check(made.jobs[rank], mine)
        return str(told.value), told.value.rank, told.value.parameter
    text = "the models differ: buffer b is on rank 0, but not on rank 2"
    assert made.each(differing) == [(text, 2, "b")] * 3


def test_what_is_broadcast_may_lie_otherwise_in_memory(crew):
    """Alone in its message, or beside others."""
    made = crew(2)
    for beside in ([], [torch.arange(4.)]):
        given = [[torch.arange(15.).reshape(3, 5), *beside],
                 [torch.zeros(5, 3).t(), *(torch.zeros_like(each) for each in beside)]]
        made.each(lambda r, given=given: buffers.broadcast(made.jobs[r], given[r], 0))
        assert all(torch.equal(*pair) for pair in zip(*given, strict=True))
        assert not given[1][0].is_contiguous()
