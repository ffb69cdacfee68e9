# SPDX-License-Identifier: Apache-2.0
"""Names the rank whose model differs from rank 0's, and the difference: in the parameters, when all members
have refused a plan, and in the tensors that are broadcast by name."""
from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import torch

from ..errors import PlanMismatchError
from ..job import Job
from .layout import Slot

#: Tensors that are broadcast: "parameter" or "buffer", the name, and the tensor.
Named = Sequence[tuple[str, str, torch.Tensor]]
#: By name: "parameter" or "buffer", and type and shape in words.
Described = dict[str, tuple[str, str]]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _described_slots(slots: Sequence[Slot]) -> list[tuple[str, str]]:
    """Each parameter by its name, and all that has to be the same."""
    made = []
    for slot in slots:
        text = f"{_name(slot.param.dtype)} of shape {tuple(slot.param.shape)} and strides {slot.stride}"
        if slot.wire is not slot.param.dtype:
            text += f", travelling as {_name(slot.wire)}"
        made.append((slot.name, text))
    return made


def _gather(job: Job, data: bytes) -> list[bytes]:
    """The data of all members, by rank."""
    length = torch.tensor([len(data)], device="cpu")
    lengths = torch.empty(job.world_size, dtype=torch.int64, device="cpu")
    job.allgather(length, lengths)
    most = int(lengths.max())
    rows = torch.empty(job.world_size, most, dtype=torch.uint8, device="cpu")
    job.allgather(torch.frombuffer(bytearray(data.ljust(most)), dtype=torch.uint8), rows)
    return [row.numpy().tobytes()[:int(size)] for row, size in zip(rows, lengths, strict=True)]


def explain(job: Job, slots: Sequence[Slot], error: PlanMismatchError) -> PlanMismatchError:
    """Puts `error` in terms of the model: the first rank that differs from rank 0, and the first
    parameter."""
    models = [json.loads(each) for each in _gather(job, json.dumps(_described_slots(slots)).encode())]
    for rank, model in enumerate(models):
        if model != models[0]:
            name, text = _difference(rank, model, models[0])
            return PlanMismatchError(f"the models differ: {text}", rank=rank, parameter=name)
    return error


def _difference(rank: int, theirs: list[list[str]], first: list[list[str]]) -> tuple[str, str]:
    for (name, kind), (expected, kind_of_first) in zip(theirs, first, strict=False):
        if name != expected:
            return name, f"rank {rank} has parameter {name} where rank 0 has {expected}"
        if kind != kind_of_first:
            return name, f"parameter {name} is {kind} on rank {rank}, but {kind_of_first} on rank 0"
    longer, owner, other = (theirs, rank, 0) if len(theirs) > len(first) else (first, 0, rank)
    name = longer[min(len(theirs), len(first))][0]
    return name, (f"rank {rank} has {len(theirs)} parameters and rank 0 has {len(first)}; the first that "
                  f"only rank {owner} has, and rank {other} has not, is {name}")


# ---- tensors that are broadcast

def describe(named: Named) -> Described:
    """All that has to be the same on all members. The order in which a model has its tensors may differ."""
    return {name: (what, f"{_name(each.dtype)} of shape {tuple(each.shape)}") for what, name, each in named}


def digest(described: Described) -> bytes:
    """A digest of 16 bytes."""
    return hashlib.blake2b(json.dumps(described, sort_keys=True).encode(), digest_size=16).digest()


def check(job: Job, described: Described) -> None:
    """Compares the tensors of all members, which call it at the same point. PlanMismatchError names the first
    rank that differs from rank 0."""
    if len(set(_gather(job, digest(described)))) == 1:
        return
    models = [json.loads(each) for each in _gather(job, json.dumps(described).encode())]
    for rank, model in enumerate(models):
        if (found := difference(model, models[0], f"rank {rank}", "rank 0")) is not None:
            name, text = found
            raise PlanMismatchError(f"the models differ: {text}", rank=rank, parameter=name)


def difference(mine: Described, theirs: Described, me: str, them: str) -> tuple[str, str] | None:
    """The first name, in their order, that is not the same in both, and a sentence about it."""
    for name in sorted(mine.keys() | theirs.keys()):
        if name not in theirs or name not in mine:
            what = (mine.get(name) or theirs[name])[0]
            owner, other = (them, me) if name in theirs else (me, them)
            return name, f"{what} {name} is on {owner}, but not on {other}"
        if tuple(mine[name]) != tuple(theirs[name]):
            return name, (f"{mine[name][0]} {name} is {mine[name][1]} on {me}, but {theirs[name][1]} on "
                          f"{them}")
    return None
