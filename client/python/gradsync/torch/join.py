# SPDX-License-Identifier: Apache-2.0
"""Uneven inputs: a member that has no more inputs takes part in the steps of the others.

Before each forward pass all members say what they are about to do. Those that have finished do the same,
without gradients of their own.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .distributed import DistributedDataParallel


@dataclass(frozen=True)
class Said:
    """The next actions of the members: which of them train (one entry for each), whether any synchronises its
    gradients, and whether any needs the buffers."""

    live: list[bool]
    syncs: bool
    buffers: bool

    @property
    def source(self) -> int:
        """The highest rank that still trains."""
        return max(rank for rank, live in enumerate(self.live) if live)


class Joining:
    """One block of `with model.join()`."""

    def __init__(self, model: DistributedDataParallel, by_initial_world: bool, throw: bool) -> None:
        self._model, self._by_initial_world, self._throw = model, by_initial_world, throw
        self.source = 0
        self._live = 0

    def _say(self, live: bool, syncs: bool, buffers: bool) -> Said:
        job = self._model.job
        mine = torch.tensor([live, syncs, buffers, self._throw], dtype=torch.uint8, device="cpu")
        all_of_them = torch.empty(job.world_size * 4, dtype=torch.uint8, device="cpu")
        job.allgather(mine, all_of_them)
        rows = all_of_them.view(-1, 4).tolist()
        said = Said([bool(row[0]) for row in rows], any(row[1] for row in rows), any(row[2] for row in rows))
        if any(row[3] for row in rows) and not all(said.live):
            done = [rank for rank, still in enumerate(said.live) if not still]
            raise RuntimeError(f"rank {done[0]} has no more inputs, and throw_on_early_termination was "
                               "given: the training ends on all ranks")
        return said

    def present(self, syncs: bool, buffers: bool) -> None:
        """Called before a forward pass of this member's own."""
        said = self._say(True, syncs, buffers)
        self.source, self._live = said.source, sum(said.live)

    def divide(self) -> None:
        """Sets the divisor of the step that begins. It is the plan's, so all members have planned before."""
        if not self._by_initial_world:
            self._model._reducer.layout.plan.divisor(self._live)

    def shadow(self) -> None:
        """Takes part in the steps of the others, once this member has no more inputs."""
        model = self._model
        last = True
        while any((said := self._say(False, False, False)).live):
            last = False
            self.source, self._live = said.source, sum(said.live)
            if said.buffers:
                model._sync_buffers(said.source)
            if said.syncs:
                if model._reducer.make_postponed():
                    model._agree()
                model._observer.before_forward(model._alike, live=False)
                self.divide()
                model._reducer.mark_all_absent()
                model._reducer.finish()
        self._agree_on_model(last)

    def _agree_on_model(self, last: bool) -> None:
        """Gives all members the model of the highest rank among those that were the last to train."""
        job = self._model.job
        mine = torch.tensor([last], dtype=torch.uint8, device="cpu")
        all_of_them = torch.empty(job.world_size, dtype=torch.uint8, device="cpu")
        job.allgather(mine, all_of_them)
        root = max(rank for rank, was_last in enumerate(all_of_them.tolist()) if was_last)
        self._model._broadcast_state(root, self._model.forward_sync_buffers)
