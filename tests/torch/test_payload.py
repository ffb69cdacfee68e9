# SPDX-License-Identifier: Apache-2.0
"""A State arrives unchanged at a member that lacks it, and no part of it runs as code."""
import collections
import json
import os
import pickle
import subprocess
import types

import numpy
import pytest
import torch

import gradsync
import gradsync.torch
import payloads
from gradsync.torch import payload, register_state_type
from gradsync.torch.state import WORD, State

CPU = torch.device("cpu")
VALUES = [
    None, True, 7, -2 ** 200, 0.1, float("inf"), "text", "é\ud800\0", b"\0\xff", bytearray(b"x"), 1 - 2j,
    [], [1, [2]], (), (1, (2, [3])), {}, {3: 4, "a": {(1, 2): None}}, {1, 2}, frozenset("a"), range(1, 9, 2),
    collections.OrderedDict(b=1, a=2), collections.Counter("aab"), collections.deque([1, 2], 2),
    torch.Size([2, 3]), torch.bfloat16, torch.device("cuda", 1), numpy.float64(0.1), numpy.bool_(True),
]


def there_and_back(state):
    return payload.put_together(payload.take_apart(state)[0], CPU)[0]


def test_each_kind_comes_back_as_it_was():
    back = there_and_back(VALUES)
    assert back == VALUES and [type(each) for each in back] == [type(each) for each in VALUES]
    assert list(back[20]) == ["b", "a"] and back[22].maxlen == 2
    assert there_and_back(float("nan")) != there_and_back(float("nan"))
    array = numpy.arange(6, dtype=numpy.uint16).reshape(2, 3)
    back = there_and_back(array)
    assert back.dtype == array.dtype and (back == array).all() and back.flags.writeable


def test_versions_of_modules_come_along():
    """Without them a module takes its state for that of an old release."""
    state = torch.nn.Sequential(torch.nn.BatchNorm1d(2)).state_dict()
    skeleton, tensors = payload.take_apart(state)
    back, empty = payload.put_together(skeleton, CPU)
    assert back._metadata == state._metadata and list(back) == list(state)
    assert [each.shape for each in empty] == [each.shape for each in tensors]


class Touch:
    """Its pickle would run a command."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return subprocess.call, (["touch", str(self.path)],)


@pytest.mark.parametrize("skeleton", [
    b"", b"\0", b"[]", b"7 8", b'{"list": 1}', b'["os.system", "id"]', b'["list", ["__reduce__", 1]]',
    b'["tensor", "float32", [-1], true]', b'["tensor", "load", [1], true]', b'["dict", [["list"], 1]]',
    b'["number", "O", [], ["bytes", ""]]', b'["ordered", ["list", 1]]', b'["size", ["list", "a"]]',
    b"[" * 100000,
    *(json.dumps([name, ["range", ["list", 0, 10 ** 6, 1]]]).encode()
      for name in ("tuple", "set", "frozenset", "counter", "size")),
    b'["deque", ["list", ["range", ["list", 0, 9, 1]], null]]', b'["size", ["list", 36893488147419103232]]',
    b'["bytearray", 9]', b'["bytearray", 1e9]', b'["bytearray", 4611686018427387904]',
    b'["number", "V8", [], ["bytes", "AAAAAAAAAAA="]]',
    json.dumps(["dict", *([number * ((1 << 61) - 1), 0] for number in range(100))]).encode(),
    json.dumps(["set", ["list", *(number * ((1 << 61) - 1) for number in range(100))]]).encode(),
])
def test_what_is_no_state_is_refused(skeleton):
    with pytest.raises(gradsync.ProtocolError, match="the state that has come from another member"):
        payload.put_together(skeleton, CPU)


def test_nothing_that_comes_is_run(tmp_path):
    mark = tmp_path / "mark"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(gradsync.ProtocolError):
            payload.put_together(pickle.dumps(Touch(mark), protocol), CPU)
    assert not mark.exists()


def test_what_is_changed_is_a_state_or_is_refused():
    """payloads.py goes on for longer."""
    seed = int(os.environ.get("GRADSYNC_TEST_SEED", "1"))
    states, problem = payloads.search(seed, 0, 3000, payloads.valid_ones(VALUES))
    assert problem is None, problem
    assert states > 100


class Own:
    def __init__(self, value):
        self.value = value


class Derived(dict):
    pass


@pytest.mark.parametrize("value", [Own(1), Derived(), Own, lambda: 0, iter([]), numpy.array([Own(1)])])
def test_a_class_of_the_script_is_named(value):
    with pytest.raises(TypeError) as raised:
        payload.take_apart({"parts": {"schedule": [1, value]}})
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    for each in (f"['parts']['schedule'][1] is of the class {kind}", "gradsync.torch.register_state_type()"):
        assert each in str(raised.value)


def test_what_holds_itself_is_refused():
    state = []
    state.append(state)
    with pytest.raises(ValueError, match="the state holds itself"):
        payload.take_apart(state)


class Registered(Own):
    pass


def test_a_class_that_is_registered_comes_along():
    for _ in range(2):          # a module may be loaded again
        register_state_type(Registered, lambda each: {"value": each.value}, lambda parts: Registered(**parts),
                            name="own")
    tensor = torch.ones(2)
    skeleton, tensors = payload.take_apart([Registered(tensor)])
    assert json.loads(skeleton)[1][0] == "own" and tensors[0] is not tensor
    back, empty = payload.put_together(skeleton, CPU)
    assert type(back[0]) is Registered and back[0].value is empty[0]


@pytest.mark.parametrize("cls, name", [(Own, "own"), (Own, "tuple"), (Own, "tensor"), (dict, None),
                                       (int, None), (torch.nn.Parameter, None)])
def test_no_class_takes_the_name_of_another(cls, name):
    register_state_type(Registered, lambda each: each.value, Registered, name="own")
    with pytest.raises(ValueError, match=r"register_state_type\(\)"):
        register_state_type(cls, list, cls, name=name)


class Late:
    """A part whose state has something of the script's own from the first step on."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_a_state_says_at_once_what_it_cannot_send(monkeypatch):
    """When it is made, or after its first step, and not when a rank is lost."""
    monkeypatch.setenv("GRADSYNC_DEVICE", "cpu:nowhere")
    model = gradsync.torch.DistributedDataParallel(torch.nn.Linear(2, 1), rank=0, world_size=1)
    with pytest.raises(TypeError, match=r"\['parts'\]\['late'\]\['best'\] is of the class"):
        gradsync.State(model=model, late=Late({"best": Own(1)}))
    late = Late({"best": None})
    state = gradsync.State(model=model, late=late)
    with pytest.raises(TypeError, match="best"):
        for attempt in state.step():
            with attempt:
                model(torch.ones(1, 2)).sum().backward()
                late.state["best"] = Own(1)


class Job:
    """A job of two members. The other member says `other`. `sealed` has an entry for each call."""

    name, world_size = "job", 2
    connection = types.SimpleNamespace(device=types.SimpleNamespace(ordinal=None))

    def __init__(self, rank, other, sent=()):
        self.rank, self.other, self.sent, self.sealed = rank, other, list(sent), []

    def allgather(self, mine, theirs, *, sealed=False):
        self.sealed.append(sealed)
        words = [mine.numpy().tobytes(), self.other]
        theirs.copy_(torch.frombuffer(bytearray(b"".join(words if self.rank == 0 else words[::-1])),
                                      dtype=torch.uint8))

    def broadcast(self, data, root, *, sealed=False):
        self.sealed.append(sealed)
        raw = data.reshape(-1).view(torch.uint8)
        if self.rank == root:
            self.sent.append(raw.numpy().tobytes())
        else:
            raw.copy_(torch.frombuffer(bytearray(self.sent.pop(0)), dtype=torch.uint8))


class Plain(State):
    """With a state of its own, and without models."""

    def __init__(self, job, whole, count):
        self._world = types.SimpleNamespace(job=job, newcomer=False)
        self._whole, self.count, self.taken = whole, count, None

    def _whole_state(self):
        return {"state": STATE, "count": self.count}

    def _take(self, state):
        self.taken = state


STATE = {"a": torch.arange(6.), "b": torch.ones(3), "large": torch.ones(3 << 20), "lr": 0.5}


def test_all_of_an_exchange_is_sealed():
    """An exchange tells who has a state, then sends the skeleton and the tensors, several in a message or one
    alone: all of these messages are sealed."""
    first = Job(0, WORD.pack(False, 0, 0))
    Plain(first, True, 7)._exchange()
    assert first.sealed == [True] * 4 and len(first.sent) == 3
    second = Job(1, WORD.pack(True, 7, len(first.sent[0])), first.sent)
    state = Plain(second, False, 0)
    state._exchange()
    assert second.sealed == [True] * 4 and second.sent == []
    assert state.taken["count"] == 7 and state.taken["state"]["lr"] == 0.5
    assert all(torch.equal(state.taken["state"][each], STATE[each]) for each in ("a", "b", "large"))
