# SPDX-License-Identifier: Apache-2.0
"""Trainings in which ranks would go on with different parameters, or with each other's numbers, and end with
0: what is averaged after all, what is refused, and what is said."""
import pytest
import torch

import gradsync
from gradsync.torch import buffers, compare, drift, layers
from gradsync.torch.order import following
from launch import Group, cases

GROUP = Group("normalised normalised_types normalised_later layers_refused backward_inside gan_inside "
              "twice_in_each part_inside inside_without_sync order_of_buffers buffers_that_differ "
              "buffers_that_change late loaded_by_one left_alone frozen_ones how_often by_module "
              "accumulated_wrongly step_too_early rightly odd_steps calibrated followed_loss joined helpers "
              "shares failed_backward", script="apart.py", heavy=False)


@cases(GROUP)
def test_apart(group, case):
    group.check(case)


def test_a_module_with_an_exchange_of_its_own():
    """Fully sharded ones get a class that derives from one of torch.distributed's."""
    base = type("FSDPModule", (), {"__module__": "torch.distributed.fsdp._fully_shard"})
    sharded = type("FSDPLinear", (base, torch.nn.Linear), {})(2, 2)
    with pytest.raises(gradsync.UnsupportedError, match="layer 0 is .*FSDPLinear: it communicates through"):
        layers.check(torch.nn.Sequential(sharded), {})


def test_steps_of_comparison():
    due, steps = 1, []
    while due < 400:
        steps.append(due)
        due = following(due, 100)
    assert steps == [1, 10, 100, 200, 300]
    assert [following(step, 1) for step in (1, 9, 10, 11)] == [2, 10, 11, 12]
    assert [following(step, 100) for step in (8, 9)] == [10, 10]


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
