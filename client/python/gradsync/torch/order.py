# SPDX-License-Identifier: Apache-2.0
"""In which order backward passes give gradients: rank 0 observes it, and all plan by it.

It is looked at after the first step, and from time to time after that, since it may change.
"""
from __future__ import annotations

import torch

from .reducer import Reducer

FIRST = (1, 10)
EVERY = 100


def is_due(step: int) -> bool:
    """After these steps the order is looked at."""
    return step in FIRST or (step > 0 and step % EVERY == 0)


class Observer:
    """Of one reducer. `checked` is the number of the last step after which members have compared."""

    def __init__(self, reducer: Reducer) -> None:
        self._reducer = reducer
        self.checked = 0
        self.replanned = 0

    def before_forward(self) -> None:
        """On all members, before a step. Plans again if rank 0 has seen another order."""
        reducer = self._reducer
        if is_due(reducer.steps) and self.checked != reducer.steps and reducer.world.job.world_size > 1:
            order = self._agree()
            self.checked = reducer.steps
            if order != reducer.layout.order:
                self.replanned += 1
                reducer.make_plan(order)
        reducer.flags.order = [] if is_due(reducer.steps + 1) else None

    def _agree(self) -> list[int]:
        reducer = self._reducer
        seen = list(dict.fromkeys(reducer.flags.order or ()))
        there = set(seen)
        # Parameters that were not used come last, so that the others need not wait for them.
        seen += [i for i in reducer.layout.order if i not in there]
        told = torch.tensor(seen, dtype=torch.int32)
        reducer.world.job.broadcast(told, 0)
        return [int(i) for i in told]
