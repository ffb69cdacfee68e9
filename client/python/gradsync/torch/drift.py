# SPDX-License-Identifier: Apache-2.0
"""Whether the ranks still train the same model.

Averages are equal on all ranks. Parameters stay equal only if all ranks begin with the same ones and apply
only averages. Both are checked: all ranks compare digests of the parameters from time to time, and each rank
notices by itself if an optimiser is about to apply gradients that were not averaged.
"""
from __future__ import annotations

import enum
import functools
import os
import struct
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..job import Job
from .errors import ParametersDifferError
from .untraced import untraced

if TYPE_CHECKING:
    from .reducer import Reducer

Named = Sequence[tuple[str, torch.Tensor]]

EVERY = 100
_MODE_VARIABLE, _EVERY_VARIABLE = "GRADSYNC_CHECK_PARAMETERS", "GRADSYNC_CHECK_EVERY"

#: Bytes below which tensors are put together: each operation of torch costs more than the work.
_SMALL = 64 << 10
_WORD = 8
#: Words of a row, whose sum is one number.
_ROW = 64
#: Odd, so that a multiplication by it loses no bit; from the fraction of the golden ratio (Knuth, The Art of
#: Computer Programming 3, 6.4).
_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)

_OFF = f'check_parameters="off", or {_MODE_VARIABLE}=off'
_CAUSES = ("Usual causes: a checkpoint that only some ranks have loaded after the model was wrapped; an "
           "optimiser or a scheduler that follows the rank's own loss (LBFGS with a line search, "
           "ReduceLROnPlateau); parameters that are changed outside of an optimiser, also by a layer that "
           "looks at its input (Embedding(max_norm=…)); gradients that were not averaged; hosts whose "
           f"processors round differently. If ranks are to differ: {_OFF}")


class Mode(enum.IntEnum):
    """The effect of a difference."""

    OFF = 0
    WARN = 1
    ERROR = 2


@dataclass(frozen=True)
class Setting:
    """The mode of the comparison, and the number of steps from one to the next."""

    mode: Mode = Mode.WARN
    every: int = EVERY


def setting_of(mode: str | None, every: int | None) -> Setting:
    """Arguments count before the environment's variables. ValueError names what is wrong."""
    text = mode if mode is not None else os.environ.get(_MODE_VARIABLE) or "warn"
    try:
        wanted = Mode[str(text).upper()]
    except KeyError:
        source = "check_parameters" if mode is not None else _MODE_VARIABLE
        raise ValueError(f'{source} is "{text}": "warn", "error" or "off"') from None
    number = every if every is not None else os.environ.get(_EVERY_VARIABLE) or EVERY
    source = "check_every" if every is not None else _EVERY_VARIABLE
    try:
        steps = int(number)
    except ValueError:
        steps = 0
    if steps < 1:
        raise ValueError(f"{source} is {number}: a number of steps, 1 or more")
    return Setting(wanted, steps)


# ---- digests

def _words(whole: torch.Tensor) -> torch.Tensor:
    """The elements as 64-bit words, without those that do not fill one."""
    flat = whole.view(-1)
    if flat.storage_offset() * flat.element_size() % _WORD:
        flat = flat.clone()     # a tensor at an odd place in memory has no such view
    return flat[:flat.numel() * flat.element_size() // _WORD * _WORD // flat.element_size()].view(torch.int64)


def _rest(whole: torch.Tensor) -> torch.Tensor:
    """The bytes that do not fill a word."""
    flat = whole.view(-1)
    return flat[flat.numel() * flat.element_size() // _WORD * _WORD // flat.element_size():].view(torch.uint8)


def _sums(words: torch.Tensor) -> list[torch.Tensor]:
    """The sums of rows and of columns: two words that change their places change some sum. This reads memory
    twice, and is nearly all of what a digest takes."""
    table = words[:words.numel() // _ROW * _ROW].view(-1, _ROW)
    return [table.sum(1), table.sum(0), words[table.numel():]]


def digest(tensors: Iterable[torch.Tensor]) -> int:
    """A 64-bit number for all bits of all tensors, in this order, however they lie in memory."""
    small: list[torch.Tensor] = []
    sums: list[torch.Tensor] = []
    for each in tensors:
        whole = torch.view_as_real(each.detach().resolve_conj()) if each.is_complex() else each.detach()
        whole = whole.contiguous()
        if whole.nbytes < _SMALL:
            small.append(whole.reshape(-1).view(torch.uint8))
        else:
            sums += _sums(_words(whole))
            small.append(_rest(whole))
    if not small:
        return 0
    rest = torch.cat(small)
    sums += _sums(torch.nn.functional.pad(rest, (0, -rest.numel() % _WORD)).view(torch.int64))
    numbers = torch.cat(sums)
    return int((numbers * (torch.arange(1, numbers.numel() + 1, device=numbers.device) * _FACTOR | 1)).sum())


def in_memory_order(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """The elements in the order in which they lie in memory, if the tensor has this stride, which leaves no
    gaps: nothing is copied then. For tensors that have this stride on all ranks."""
    if tensor.stride() != tuple(stride):
        return tensor
    return tensor.detach().as_strided((tensor.numel(),), (1,))


# ---- comparison

@dataclass(frozen=True)
class Difference:
    """A parameter that is not the same on all ranks, and the ranks that have it otherwise than most."""

    parameter: str
    ranks: list[int]
    world: int

    def text(self, step: int) -> str:
        """For people."""
        others = [rank for rank in range(self.world) if rank not in self.ranks]
        return (f"after step {step} the ranks train different models: parameter {self.parameter} of "
                f"{_listed(self.ranks)} differs from that of {_listed(others)}. {_CAUSES}")


def _listed(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


@dataclass(frozen=True)
class Followed:
    """The loss that has decided how far an optimiser went: the first one that its closure has computed on
    this rank, the step, and the optimiser's name. LBFGS is the only optimiser of torch that goes by the
    loss."""

    loss: float
    step: int
    kind: str

    @property
    def bits(self) -> int:
        """The loss as a number that is not 0."""
        number: int = struct.unpack("<q", struct.pack("<d", self.loss))[0]
        return number or 1


@dataclass(frozen=True)
class Found:
    """The result of a comparison: parameters that differ; the losses that ranks have followed, by rank, if
    they differ."""

    difference: Difference | None
    losses: dict[int, float] | None


def _gather(job: Job, mine: list[int]) -> list[list[int]]:
    theirs = torch.empty(job.world_size, len(mine), dtype=torch.int64, device="cpu")
    job.allgather(torch.tensor(mine, dtype=torch.int64, device="cpu"), theirs)
    return theirs.tolist()


def compare(job: Job, named: Named, live: bool, followed: Followed | None = None) -> Found:
    """Compares the parameters of all members, which call it at the same point. `live`: this member trains. A
    member that has no more inputs, and only takes part in the steps of the others, has an old model."""
    bits = followed.bits if live and followed is not None else 0
    rows = _gather(job, [int(live), digest(each for _, each in named) if live else 0, bits])
    alive = [rank for rank, (trains, _, _) in enumerate(rows) if trains]
    followed_by = {rank: rows[rank][2] for rank in alive if rows[rank][2] != 0}
    found = None
    if len(followed_by) == len(alive) and len(set(followed_by.values())) > 1:
        found = {rank: _loss_of(bits) for rank, bits in followed_by.items()}
    if len({rows[rank][1] for rank in alive}) <= 1:
        return Found(None, found)
    table = _gather(job, [digest([each]) if live else 0 for _, each in named])
    for i, (name, _) in enumerate(named):
        by_value: dict[int, list[int]] = {}
        for rank in alive:
            by_value.setdefault(table[rank][i], []).append(rank)
        if len(by_value) > 1:
            most = max(by_value.values(), key=len)      # the lowest rank's, if several are as many
            others = [rank for rank in alive if rank not in most]
            return Found(Difference(name, others, job.world_size), found)
    raise AssertionError("digests of all parameters differ, and those of each do not")


def _loss_of(bits: int) -> float:
    loss: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return loss


def tell(reducer: Reducer, found: Found, mode: Mode) -> None:
    """Reports the result of a comparison, which all members have."""
    job, difference = reducer.world.job, found.difference
    if found.losses is not None and reducer.followed is not None:
        one = min(found.losses)
        other = next(rank for rank, loss in found.losses.items() if loss != found.losses[one])
        _warn(reducer, "losses", _of_losses(job, reducer.followed, found.losses, one, other),
              job.rank in (one, other))
    if difference is None:
        return
    text = f"job '{job.name}': {difference.text(reducer.steps)}"
    if mode is Mode.ERROR:
        raise ParametersDifferError(text, rank=difference.ranks[0], parameter=difference.parameter)
    # Rank 0 and the first rank that differs print it.
    _warn(reducer, "parameters", text, job.rank in (0, difference.ranks[0]))


def _of_losses(job: Job, followed: Followed, losses: dict[int, float], one: int, other: int) -> str:
    return (f"job '{job.name}', step {followed.step}: {followed.kind} goes as far as the loss tells it to, "
            f"and the ranks have different losses: {losses[one]:g} on rank {one}, {losses[other]:g} on rank "
            f"{other}. They may train different models, or call the wrapper more or less often than others, "
            "which wait in vain then. Let the closure return the average over all ranks: "
            "told = loss.detach().clone(); "
            f"model.job.allreduce(told, gradsync.DType.F32, gradsync.Reduce.AVG). If this is meant: {_OFF}")


def _warn(reducer: Reducer, kind: str, text: str, shown: bool = True) -> None:
    """Warns once for each wrapper, and not by the module warnings: a script may have silenced that."""
    if kind not in reducer.told and shown:
        print(f"gradsync: warning: {text}", file=sys.stderr, flush=True)
    reducer.told.add(kind)


# ---- gradients that were not averaged

_reducers: weakref.WeakSet[Reducer] = weakref.WeakSet()
_installed = False


def watch(reducer: Reducer) -> None:
    """Checks the reducer's parameters before each step of an optimiser from now on."""
    global _installed
    if not _installed:
        _installed = True
        register_optimizer_step_pre_hook(_before_step)
    _reducers.add(reducer)


@untraced
def _before_step(optimiser: torch.optim.Optimizer, arguments: tuple[Any, ...],
                 named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Called before a step of an optimiser. Returns other arguments if there is a closure, which makes the
    gradients that the step applies."""
    closure = named.get("closure", arguments[1] if len(arguments) > 1 else None)
    if not callable(closure):
        _look(optimiser)
        return None

    @functools.wraps(closure)
    def watched(*given: Any, **more: Any) -> Any:
        before = {each: each.steps for each in _reducers}
        loss = closure(*given, **more)
        _look(optimiser)
        if isinstance(optimiser, torch.optim.LBFGS) and isinstance(loss, (torch.Tensor, float)):
            _note_loss(optimiser, float(loss), before)
        return loss

    if "closure" in named:
        return arguments, named | {"closure": watched}
    return (arguments[0], watched, *arguments[2:]), named


def _note_loss(optimiser: torch.optim.LBFGS, loss: float, before: dict[Reducer, int]) -> None:
    """The closure has made a step of these reducers: the members compare its loss when they meet next."""
    mine = {id(param) for param in _parameters_of(optimiser)}
    for reducer, steps in before.items():
        if (reducer.followed is None and reducer.steps > steps
                and any(id(slot.param) in mine for slot in reducer.slots)):
            reducer.followed = Followed(loss, steps + 1, type(optimiser).__name__)


def _is_checked(reducer: Reducer) -> bool:
    return (reducer.options.check.mode is not Mode.OFF and reducer.over is None and reducer.planned
            and reducer.layout.plan.alive and reducer.world.job.world_size > 1)


def _look(optimiser: torch.optim.Optimizer) -> None:
    for reducer in _reducers:
        if (reducer.local or reducer.open) and _is_checked(reducer):
            _look_at(reducer, optimiser)


def _look_at(reducer: Reducer, optimiser: torch.optim.Optimizer) -> None:
    job, strict = reducer.world.job, reducer.options.check.mode is Mode.ERROR
    if "gradients" in reducer.told and not strict:
        return
    applied = {id(param) for param in _parameters_of(optimiser)}
    name = next((slot.name for slot in reducer.unaveraged()
                 if id(slot.param) in applied and _counts(slot.param.grad)), None)
    if name is None:
        return
    how = ("it belongs to a step that is not finished, since other parameters have got no gradient yet"
           if reducer.open else
           "the backward pass that made it did not begin with an output of the wrapper's forward pass (as "
           "where a method of .module computes the loss), or it ran in no_sync()")
    text = (f"job '{job.name}', rank {job.rank}, after step {reducer.steps}: an optimiser is about to apply "
            f"a gradient of parameter {name} that gradsync has not averaged: {how}. Unless the script "
            "averages it by itself, or it is the same on all ranks, they train different models from here "
            "on. Call the wrapper itself, and let the last backward pass before each optimiser's step be one "
            f"that is averaged. If this is meant: {_OFF}")
    if strict:
        raise ParametersDifferError(text, rank=job.rank, parameter=name)
    _warn(reducer, "gradients", text)


def _counts(grad: torch.Tensor | None) -> bool:
    """Whether the gradient changes the parameter: it may be 0, as in a step that only makes the optimiser's
    state."""
    return grad is not None and (grad.is_sparse or bool(grad.any()))


def _parameters_of(optimiser: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimiser.param_groups:
        yield from group["params"]
