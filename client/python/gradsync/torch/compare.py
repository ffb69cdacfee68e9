# SPDX-License-Identifier: Apache-2.0
"""Which parameter of whose model differs. Asked only when a plan was refused, by all members."""
from __future__ import annotations

import json
from collections.abc import Sequence

import torch

from ..errors import PlanMismatchError
from ..job import Job
from .layout import Slot


def _described(slots: Sequence[Slot]) -> list[tuple[str, str]]:
    """Of each parameter: its name, and all that has to be the same."""
    made = []
    for slot in slots:
        text = f"{_name(slot.param.dtype)} of shape {tuple(slot.param.shape)} and strides {slot.stride}"
        if slot.wire is not slot.param.dtype:
            text += f", travelling as {_name(slot.wire)}"
        made.append((slot.name, text))
    return made


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _gather(job: Job, data: bytes) -> list[bytes]:
    """What all members have, by rank."""
    length = torch.tensor([len(data)])
    lengths = torch.empty(job.world_size, dtype=torch.int64)
    job.allgather(length, lengths)
    most = int(lengths.max())
    rows = torch.empty(job.world_size, most, dtype=torch.uint8)
    job.allgather(torch.frombuffer(bytearray(data.ljust(most)), dtype=torch.uint8), rows)
    return [row.numpy().tobytes()[:int(size)] for row, size in zip(rows, lengths, strict=True)]


def explain(job: Job, slots: Sequence[Slot], error: PlanMismatchError) -> PlanMismatchError:
    """What `error` says, in terms of the model: the first rank that differs from rank 0, and the first
    parameter."""
    models = [json.loads(each) for each in _gather(job, json.dumps(_described(slots)).encode())]
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
