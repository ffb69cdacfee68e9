# SPDX-License-Identifier: Apache-2.0
"""How gradsync.torch treats devices. The device "meta" takes the place of a GPU."""
import collections

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import gradsync
from gradsync.torch import device, payload
from gradsync.torch.distributed import moved_to

THERE = torch.device("meta")
Pair = collections.namedtuple("Pair", "a b")


class Table(dict):
    """Made by other arguments than a dict, and with an attribute."""

    def __init__(self, name):
        super().__init__()
        self.name = name


class Route:
    """Its to() has nothing to do with devices."""

    def to(self, _where):
        raise AssertionError("this is not for moving tensors")


class Routes(list):
    to = Route.to


def test_inputs_keep_their_types():
    x, route, table = torch.ones(2), Route(), Table("t")
    table["x"], table["route"] = x, route
    counts = collections.defaultdict(list, x=[x])
    ordered = collections.OrderedDict(b=x, a=1)
    inputs = ([x, 1], (x, "text"), Pair(x, [x]), table, counts, ordered, route, Routes([x]),
              pack_sequence([x]), (), {}, None)
    moved = moved_to(THERE, inputs)
    assert [type(each) for each in moved] == [list, tuple, Pair, Table, collections.defaultdict,
                                              collections.OrderedDict, Route, list, PackedSequence, tuple,
                                              dict, type(None)]
    a, b, pair, as_table, as_counts, as_ordered, as_route, routes, packed, *_ = moved
    for each in (a[0], b[0], pair.a, pair.b[0], as_table["x"], as_counts["x"][0], as_ordered["b"], routes[0],
                 packed.data):
        assert each.device == THERE
    assert a[1] == 1 and b[1] == "text" and as_ordered["a"] == 1 and list(as_ordered) == ["b", "a"]
    assert as_route is route and as_table["route"] is route
    assert as_table.name == "t" and as_counts["missing"] == []
    assert table["x"] is x and counts["x"][0] is x and ordered["b"] is x, "what was given is as it was"


def test_a_state_arrives_where_it_was():
    """A tensor of a GPU arrives on the receiver's GPU, any other one on its CPU."""
    there, here = torch.ones(2, 3, device=THERE, dtype=torch.float16), torch.ones(4)
    skeleton, tensors = payload.take_apart({"there": [there], "here": here, "step": 7})
    state, empty = payload.put_together(skeleton, THERE)
    assert [each.device for each in tensors] == [each.device for each in empty]
    assert state["there"][0].device == THERE and state["here"].device == torch.device("cpu")
    assert state["there"][0].shape == (2, 3) and state["there"][0].dtype is torch.float16
    assert state["step"] == 7
    state, _ = payload.put_together(skeleton, torch.device("cpu"))
    assert state["there"][0].device == torch.device("cpu")


def test_a_job_that_was_joined_too_early_is_named():
    """The script made a DistributedSampler before it used the GPU, so the job is that of the CPU's
    daemon."""
    gpu = device.Gpu(1)
    with pytest.raises(gradsync.UnsupportedError) as raised:
        gpu.check(gradsync.Device("cpu", "", None))
    for part in ("cuda:1", "daemon of cpu", "torch.cuda.set_device(1)", "DistributedSampler",
                 "GRADSYNC_DEVICE"):
        assert part in str(raised.value)
    with pytest.raises(gradsync.UnsupportedError, match="which is cuda:0 here"):
        gpu.check(gradsync.Device("cuda:3", "GPU-1", 0))
    with pytest.raises(gradsync.UnsupportedError, match="nobody, this process is alone"):
        gpu.check(gradsync.Device("", "", None))
    gpu.check(gradsync.Device("cuda:3", "GPU-1", 1))
