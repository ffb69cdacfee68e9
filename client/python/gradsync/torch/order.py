# SPDX-License-Identifier: Apache-2.0
"""The meetings of all members, from time to time, before a step. There they agree on the order in which
backward passes give gradients, which rank 0 observes and all plan by, and compare whether they still train
the same model.

They meet after the first step, after the 10th, and then at intervals; rank 0 says each time when next.
"""
from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

import torch

from . import drift
from .drift import Mode, Named
from .reducer import Reducer

SECOND = 10


def following(step: int, every: int) -> int:
    """The step after which members compare next, if they have done so after this one."""
    usual = (step // every + 1) * every
    return SECOND if step < SECOND < usual else usual


class Observer:
    """Holds the meetings of one reducer.

    due         members compare next before the first forward pass after this number of steps
    replanned   how often the members have planned again
    check_ns    how long the comparison of parameters took, each time
    """

    def __init__(self, reducer: Reducer) -> None:
        self._reducer = reducer
        self._before = 0
        self.due = 1
        self.replanned = 0
        self.check_ns: list[int] = []

    def before_forward(self, named: Callable[[], Named], live: bool = True) -> None:
        """On all members, before a step: lets them meet when that is due. `named`: the parameters that all
        ranks have alike; `live`: this member trains, else it only takes part."""
        reducer = self._reducer
        # A forward pass may have several backward passes, each a step of its own.
        made, self._before = max(reducer.steps - self._before, 1), reducer.steps
        if reducer.steps >= self.due:
            if reducer.world.job.world_size > 1:
                self._meet(named, live)
            else:
                self.due = following(reducer.steps, reducer.options.check.every)
        reducer.flags.order = [] if reducer.steps + made >= self.due else None

    def _meet(self, named: Callable[[], Named], live: bool) -> None:
        reducer = self._reducer
        mode, due, order = self._agree()
        found = self._compare(named(), live) if mode is not Mode.OFF else None
        self.due = due
        if found is not None:
            drift.tell(reducer, found, mode)
        if order != reducer.layout.order:
            self.replanned += 1
            reducer.make_plan(order)

    def _agree(self) -> tuple[Mode, int, list[int]]:
        """Rank 0 says whether parameters are compared, when next, and the order."""
        reducer = self._reducer
        seen = list(dict.fromkeys(reducer.flags.order or ()))
        there = set(seen)
        # Parameters that were not used come last, so that the others need not wait for them.
        seen += [i for i in reducer.layout.order if i not in there]
        check = reducer.options.check
        told = torch.tensor([check.mode, following(reducer.steps, check.every), *seen], device="cpu")
        reducer.world.job.broadcast(told, 0)
        mode, due, *order = told.tolist()
        return Mode(mode), due, order

    def _compare(self, named: Named, live: bool) -> drift.Found:
        begun = perf_counter_ns()
        found = drift.compare(self._reducer.world.job, named, live, self._reducer.followed)
        self.check_ns.append(perf_counter_ns() - begun)
        return found
