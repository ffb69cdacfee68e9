# SPDX-License-Identifier: Apache-2.0
"""A nested state (state_dict and the like) on its way to members that lack it: a skeleton and tensors.

The skeleton is JSON: plain data of the kinds below, and of those that the script has registered. It comes
over connections that others may be able to write to. So between hosts all of a state is sealed
(Job.broadcast), and a state that was changed does not arrive. Besides, nothing in it names code, a value of
another kind is refused, and, except for tensors, no small skeleton makes a large state. A list [name, …]
stands for each value that JSON does not have.
"""
from __future__ import annotations

import base64
import collections
import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import ProtocolError
from ..job import Job
from .buffers import broadcast

_PLAIN = (type(None), bool, int, float, str)
#: Types of numpy that are numbers: objects would be code again.
_NUMBERS = "?bhilqBHILQefdFD"
_NUMBERS_FORM = re.compile("[<>|][biufc][0-9]{1,2}")
#: Keys of a dict, or members of a set, that may have one hash.
_SAME_HASH = 16


@dataclass(frozen=True)
class _Kind:
    """take() turns an object into a value of another kind, of the type `of`; make() turns that into the
    object."""

    name: str
    of: type
    take: Callable[[Any], Any]
    make: Callable[[Any], Any]


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).partition(".")[2]


def _exactly(of: type, value: Any) -> Any:
    """Refuses a value of another type: a few words of it may make much, as a range does in place of a
    list."""
    if of is not object and type(value) is not of:
        raise ValueError(f"{type(value).__name__} in place of {of.__name__}")
    return value


def _with_hashes(keys: Iterable[Any]) -> Iterable[Any]:
    """Refuses many keys with one hash: they would take time by the square of their number."""
    if max(collections.Counter(map(hash, keys)).values(), default=0) > _SAME_HASH:
        raise ValueError("many keys with one hash")
    return keys


def _take_ordered(value: collections.OrderedDict[Any, Any]) -> Any:
    """The dictionary with the versions of modules, which Module.state_dict() hangs on it."""
    return [dict(value), getattr(value, "_metadata", None)]


def _make_ordered(parts: Any) -> collections.OrderedDict[Any, Any]:
    ordered = collections.OrderedDict(_exactly(dict, parts[0]))
    if parts[1] is not None:
        setattr(ordered, "_metadata", parts[1])
    return ordered


def _make_size(parts: list[Any]) -> torch.Size:
    """Refuses other numbers: torch takes them, and fails when they are used."""
    if any(type(each) is not int or each.bit_length() > 63 for each in parts):
        raise ValueError("sizes have 64 bits")
    return torch.Size(parts)


_DTYPES = {_name_of(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
_KINDS: dict[type, _Kind] = {
    tuple: _Kind("tuple", list, list, tuple),
    collections.OrderedDict: _Kind("ordered", list, _take_ordered, _make_ordered),
    collections.Counter: _Kind("counter", dict, dict, collections.Counter),
    collections.deque: _Kind("deque", list, lambda value: [list(value), value.maxlen],
                             lambda parts: collections.deque(_exactly(list, parts[0]), parts[1])),
    set: _Kind("set", list, list, lambda parts: set(_with_hashes(parts))),
    frozenset: _Kind("frozenset", list, list, lambda parts: frozenset(_with_hashes(parts))),
    range: _Kind("range", list, lambda value: [value.start, value.stop, value.step],
                 lambda parts: range(*parts)),
    complex: _Kind("complex", list, lambda value: [value.real, value.imag], lambda parts: complex(*parts)),
    bytes: _Kind("bytes", str, lambda value: base64.b64encode(value).decode(), base64.b64decode),
    bytearray: _Kind("bytearray", bytes, bytes, bytearray),
    torch.Size: _Kind("size", list, list, _make_size),
    torch.dtype: _Kind("dtype", str, _name_of, lambda name: _DTYPES[name]),
    torch.device: _Kind("device", str, str, torch.device),
}
_NAMED = {kind.name: kind for kind in _KINDS.values()}
_RESERVED = {*_NAMED, "list", "dict", "tensor", "number", "array"}


def register_state_type(cls: type, take: Callable[[Any], Any], make: Callable[[Any], Any],
                        name: str | None = None) -> None:
    """Lets the parts of a State have objects of this class in their state_dict(), though not of its
    subclasses. All members register the same ones.

    take  turns such an object into values that a state can hold
    make  turns these values into the object. They come over the network of the job: trust nothing in them
          that you would not trust there
    name  the name of the class on all members; by default that of its module, and its own
    """
    name = f"{cls.__module__}.{cls.__qualname__}" if name is None else name
    if cls in _PLAIN or cls in (list, dict) or issubclass(cls, torch.Tensor):
        raise ValueError(f"register_state_type(): a state can hold {cls.__qualname__} already")
    if name in _RESERVED or (name in _NAMED and _KINDS.get(cls) is not _NAMED[name]):
        raise ValueError(f"register_state_type(): the name \"{name}\" is taken")
    _KINDS[cls] = _NAMED[name] = _Kind(name, object, take, make)


class _Taker:
    """Takes a state apart."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self._path: list[str] = []

    def take(self, value: Any) -> Any:
        kind, numpy = _KINDS.get(type(value)), sys.modules.get("numpy")
        if type(value) in _PLAIN:
            return value
        if isinstance(value, torch.Tensor):
            self.tensors.append(value.detach())
            return ["tensor", _name_of(value.dtype), list(value.shape), value.device.type == "cpu"]
        if type(value) is list:
            return ["list", *(self._within(f"[{i}]", each) for i, each in enumerate(value))]
        if type(value) is dict:
            return ["dict", *([self.take(key), self._within(f"[{key!r}]", each)]
                              for key, each in value.items())]
        if kind is not None:
            return [kind.name, self.take(kind.take(value))]
        if numpy is not None and (type(value) is numpy.ndarray or isinstance(value, numpy.generic)) \
                and value.dtype.char in _NUMBERS:
            name = "array" if type(value) is numpy.ndarray else "number"
            return [name, value.dtype.str, list(value.shape), self.take(value.tobytes())]
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TypeError(f"gradsync.State: {''.join(self._path) or 'the state'} is of the class {name}, which "
                        "does not come to other members by itself, as they run nothing that comes over the "
                        "network. Say how it does with gradsync.torch.register_state_type(), or leave it out "
                        "of state_dict()")

    def _within(self, step: str, value: Any) -> Any:
        self._path.append(step)
        taken = self.take(value)
        self._path.pop()
        return taken


class _Maker:
    """Puts a state together. Any exception means that the skeleton was no state."""

    def __init__(self, device: torch.device) -> None:
        self.tensors: list[torch.Tensor] = []
        self._device = device

    def make(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            return value
        if type(value) is not list:
            raise ValueError("a JSON object")
        name, *parts = value
        if name == "list":
            return [self.make(each) for each in parts]
        if name == "dict":
            pairs = [(self.make(key), self.make(each)) for key, each in parts]
            _with_hashes(key for key, _ in pairs)
            return dict(pairs)
        if name == "tensor":
            return self._make_tensor(*parts)
        if name in ("number", "array"):
            return self._make_numbers(name, *parts)
        kind = _NAMED[name]
        return kind.make(_exactly(kind.of, self.make(*parts)))

    def _make_tensor(self, dtype: Any, shape: Any, on_host: Any) -> torch.Tensor:
        device = "cpu" if on_host else self._device
        self.tensors.append(torch.empty(shape, dtype=_DTYPES[dtype], device=device))
        return self.tensors[-1]

    def _make_numbers(self, name: str, dtype: Any, shape: Any, data: Any) -> Any:
        import numpy
        kind = numpy.dtype(dtype if _NUMBERS_FORM.fullmatch(dtype) else object)
        if kind.char not in _NUMBERS:
            raise ValueError(f"numbers of the type {dtype}")
        array = numpy.frombuffer(_exactly(bytes, self.make(data)), kind).reshape(shape).copy()
        return array if name == "array" else array[()]


def take_apart(state: Any) -> tuple[bytes, list[torch.Tensor]]:
    """The skeleton, and the tensors in the order in which it names them. TypeError if a value is of no kind
    that a state can hold."""
    taker = _Taker()
    try:
        return json.dumps(taker.take(state)).encode(), taker.tensors
    except RecursionError:
        raise ValueError("gradsync.State: the state holds itself, or is nested too deeply") from None


def _broadcast_bytes(job: Job, root: int, data: bytes) -> bytes:
    """The bytes of the member `root`; on the others `data` only gives their number."""
    whole = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    job.broadcast(whole, root, sealed=True)
    return whole.numpy().tobytes()


def send(job: Job, skeleton: bytes, tensors: list[torch.Tensor]) -> None:
    """Sends a state from this member to all others, which call receive()."""
    _broadcast_bytes(job, job.rank, skeleton)
    broadcast(job, tensors, job.rank, sealed=True)


def put_together(skeleton: bytes, device: torch.device) -> tuple[Any, list[torch.Tensor]]:
    """The state, and its tensors, whose contents are undefined yet. Tensors that were on a GPU are on this
    device. ProtocolError if it is no skeleton."""
    maker = _Maker(device)
    try:
        return maker.make(json.loads(skeleton)), maker.tensors
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as problem:        # pylint: disable=broad-except
        raise ProtocolError("the state that has come from another member makes no sense: it was changed on "
                            "its way, or that member has registered other types (register_state_type), or is "
                            f"of another release: {type(problem).__name__}: {problem}") from problem


def receive(job: Job, root: int, size: int) -> Any:
    """The state that the member `root` sends; `size`: bytes of its skeleton. Tensors of its GPU arrive on
    this member's. ProtocolError if the data was changed on its way, or is no state."""
    skeleton = _broadcast_bytes(job, root, bytes(size))
    ordinal = job.connection.device.ordinal
    device = torch.device("cpu") if ordinal is None else torch.device("cuda", ordinal)
    state, tensors = put_together(skeleton, device)
    broadcast(job, tensors, root, sealed=True)
    return state
