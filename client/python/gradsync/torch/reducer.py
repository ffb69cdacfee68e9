# SPDX-License-Identifier: Apache-2.0
"""The gradients of one model: a plan, hooks that mark its parameters, and the end of each step.

`.grad` of a parameter is a view into shared memory from the moment in which the hook has seen it. A gradient
that autograd has made elsewhere (`.grad` was None) is moved there by the hook; those of large linear layers
are made there (direct.py). After that it belongs to gradsync until the end of the backward pass, where it
holds the average.
"""
from __future__ import annotations

import contextlib
import enum
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import torch

from ..errors import DeadlockError, ForkedError, GradsyncError, PlanMismatchError, StateError, VoidStep
from ..memory import Memory
from ..plan import Plan
from ..types import Info
from . import compare, drift, layout
from .device import Host, Mark
from .direct import Home, Linears
from .drift import Setting
from .errors import (GradientKindError, MarkedTwiceError, ModelChangedError, UnfinishedStepError,
                     advise, advise_state)
from .layout import Slot
from .untraced import untraced
from .world import World

MIB = 1 << 20

#: For each bucket: when it was ready, and when its average was there.
Spans = list[tuple[int, int]]

#: The reducers of this process that live.
_reducers: weakref.WeakSet[Reducer] = weakref.WeakSet()

_queue_callback = torch.autograd.Variable._execution_engine.queue_callback


class Missing(enum.Enum):
    """The meaning of parameters that have no gradient when a backward pass has ended."""

    #: the rest of the step comes with another backward pass
    AWAITED = "awaited"
    #: not used by this member
    ABSENT = "absent"


@dataclass
class Flags:
    """The state that every hook looks at."""

    #: gradients are averaged in this backward pass
    sync: bool = False
    #: a forward pass whose gradients are averaged is running: so are those of backward passes within it
    inside: bool = False
    #: gradients were made that were not averaged since
    local: bool = False
    #: a forward pass whose gradients are to be averaged has not had its backward pass
    awaited: bool = False
    #: the end of this backward pass is going to call the reducer
    queued: bool = False
    #: it is the end of the pass that began with the output of the model
    whole: bool = False
    #: parameters in the order of their gradients, while it is observed
    order: list[int] | None = None
    #: when each parameter was ready, while times are taken
    times: dict[int, int] | None = None


@dataclass
class Options:
    """Options of a reducer; they hold for its life."""

    missing: Missing = Missing.AWAITED
    static: bool = False
    first_bucket_bytes: int = MIB
    bucket_bytes: int = 25 * MIB
    compressed: torch.dtype | None = None
    check: Setting = Setting()


@dataclass
class Counts:
    """How often each parameter gets a gradient in a backward pass, if the graph is the same in each."""

    now: list[int]
    expected: list[int] | None = None


@dataclass
class Layout:
    """A plan, and the places of its gradients. Indices are those of slots."""

    order: list[int]
    plan: Plan
    #: number of the plan among all of the process
    number: int
    #: how parameters of the plan are marked
    mark_ready: Mark
    mark_absent: Mark
    #: for each slot: its number in the plan, the offset of its gradient in the memory, and a view of that
    places: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    views: list[torch.Tensor] = field(default_factory=list)

    def ready(self, place: int) -> None:
        """The gradient at this place is complete."""
        self._check(self.mark_ready(self.plan._handle, place))

    def absent(self, place: int) -> None:
        """This member has no gradient for this place."""
        self._check(self.mark_absent(self.plan._handle, place))

    def _check(self, result: int) -> None:
        if result:
            raise self.plan._failure(result)


class Reducer:
    """Slots in the order in which the model has them."""

    def __init__(self, world: World, model: torch.nn.Module, slots: Sequence[Slot], options: Options,
                 host: Host) -> None:
        self.world, self.slots, self.options, self.host = world, list(slots), options, host
        self.flags = Flags()
        self.info: Info | None = None
        #: steps that were committed
        self.steps = 0
        #: the kinds of warning that were given
        self.told: set[str] = set()
        #: the loss by which an optimiser went, until the members have compared it; None: none
        self.followed: drift.Followed | None = None
        #: optimisers step in backward(), that is at its end, when the step is committed
        self.optimises = False
        #: called with the times of a step; None: no times are taken
        self.on_finish: Callable[[Reducer, int, int, Spans], None] | None = None
        #: bytes of the parameters that no member used in the last step; whether all steps used the same ones
        self.unused_bytes = 0
        self.same_use = True
        self._used: bytes | None = None
        self.counts = Counts([0] * len(slots)) if options.static else None
        self._fired = bytearray(len(slots))
        self._local = bytearray(len(slots))
        self._handles: list[Any] = []
        self._memory: Memory | None = None
        self._layout: Layout | None = None
        self._wanted: list[int] | None = None
        #: the first plan is made in the first forward pass whose gradients are averaged
        self.postponed = False
        # Autograd keeps the nodes that make .grad only for as long as there are references to them.
        self._nodes = [_node_of(slot.param) for slot in slots]
        self._homes = [Home(slot.param, node) for slot, node in zip(slots, self._nodes, strict=True)]
        self.linears = Linears(model, self._homes if host.direct else [])
        #: the reason why it averages nothing any more; None: it does
        self.over: GradsyncError | None = None
        self._supersede()
        _reducers.add(self)
        drift.watch(self)

    def _supersede(self) -> None:
        """A parameter has one reducer: the last that was made for it."""
        mine = {id(slot.param) for slot in self.slots}
        for other in list(_reducers):
            shared = next((slot.name for slot in other.slots if id(slot.param) in mine), None)
            if shared is not None:
                other.end(StateError(f"parameter {shared} belongs to another DistributedDataParallel that "
                                     "was made later: use that one, and one wrapper for each module",
                                     parameter=shared))

    def end(self, why: GradsyncError) -> None:
        """No gradient is averaged any more; a forward pass that asks for it raises this."""
        self.close()
        self.over = self.over or why

    def end_in_child(self) -> None:
        """In a child process, which has not got the memory that gradients lie in."""
        self.end(ForkedError("the DistributedDataParallel belongs to the parent process; in a child, use its "
                             ".module"))
        if self._layout is not None:
            for slot, view in zip(self.slots, self._layout.views, strict=True):
                if _lies_at(slot.param.grad, view.data_ptr()):
                    slot.param.grad = None

    def __del__(self) -> None:
        """Removes the hooks, since others may refer to the nodes, too. The plan is freed later, since that
        waits for the daemon."""
        self.close()
        if self._memory is not None:
            self.world.left_over.append((self._layout.plan if self._layout is not None else None,
                                         self._memory))

    # ---- the plan

    @property
    def layout(self) -> Layout:
        """The layout of the present plan."""
        assert self._layout is not None
        return self._layout

    @property
    def planned(self) -> bool:
        """Whether there is a plan. A process that has come late gets it with the state of the others."""
        return self._layout is not None

    @property
    def wanted(self) -> list[int] | None:
        """The order of the present plan, or of the one that is to be made after a loss has ended make_plan().
        None in a process that has come late, and does not know it yet."""
        return self._wanted

    def make_plan(self, order: Sequence[int]) -> None:
        """All members together, between steps: makes a plan by `order`, in which backward passes give
        gradients.

        VoidStep if a member is lost before all have made it: no member has it then, and all make it when they
        have the same state again (make_wanted()).
        """
        self._release()
        self.postponed = False
        self._wanted = order = list(order)
        registered = [self.slots[i] for i in reversed(order)]
        offsets, size = layout.lay_out(registered)
        if self._memory is None:
            self.world.clear_away()
            self._memory = self.world.job.memory(size)
        memory = self._memory
        plan = self._plan(registered, [(memory, offset) for offset in offsets])
        views = layout.views_of(registered, offsets, memory, self.host)
        last = len(order) - 1
        where = {slot: last - at for at, slot in enumerate(order)}
        places = [where[i] for i in range(len(order))]
        self._layout = Layout(order, plan, self.world.next_plan(), self.host.ready(plan),
                              self.host.absent(plan), places, [offsets[at] for at in places],
                              [views[at] for at in places])
        self._hook()
        for slot, home, view in zip(self.slots, self._homes, self._layout.views, strict=True):
            if slot.wire is slot.dtype:
                home.view, home.address = view, view.data_ptr()

    def make_first_plan(self) -> None:
        """All members together: makes a plan in the order in which backward passes give gradients to most
        models."""
        self.make_plan(range(len(self.slots) - 1, -1, -1))

    def make_postponed(self) -> bool:
        """All members together, in a step: makes the plan that was put off. False if there is none. After
        VoidStep it is still to be made, once the members have the same state again: some may not have come
        here."""
        if not self.postponed:
            return False
        try:
            self.make_first_plan()
        except VoidStep:
            self._wanted, self.postponed = None, True
            raise
        return True

    def make_wanted(self) -> None:
        """All members together: makes the plan that a loss has kept them from making, if there is one."""
        if self._layout is None and self._wanted is not None:
            self.make_plan(self._wanted)

    def _plan(self, registered: Sequence[Slot], places: Sequence[tuple[Memory, int]]) -> Plan:
        job = self.world.job
        try:
            return job.plan([slot.describe() for slot in registered], places=places,
                            first_bucket_bytes=self.options.first_bucket_bytes,
                            bucket_bytes=self.options.bucket_bytes, void_on_loss=True)
        except PlanMismatchError as error:
            raise compare.explain(job, self.slots, error) from None

    def _release(self) -> None:
        """Gradients that were accumulated in the memory of the plan before this one move out of it."""
        if self._layout is None:
            return
        for slot, view in zip(self.slots, self._layout.views, strict=True):
            if slot.param.grad is view:
                slot.param.grad = view.clone()
        self.host.settle()      # the next plan has other things in the same memory
        self._leave_homes()
        self._layout.plan.free()
        self._layout = None

    def bring_home(self, i: int) -> None:
        """A script has given the view other memory (`.grad.data = …`, share_memory()): moves the gradient
        from there to its place in shared memory, and the view with it."""
        assert self._memory is not None
        slot, view = self.slots[i], self.layout.views[i]
        home = layout.view_of(slot, self.layout.offsets[i], self._memory, self.host)
        if slot.param.grad is view:
            home.copy_(view.detach())
        view.data = home

    def retire(self) -> None:
        """Another reducer takes over: no hooks, no plan. Gradients stay."""
        self.close()
        self._release()
        self.forget()
        if self._memory is not None:
            self._memory.unregister()
            self._memory = None

    def close(self) -> None:
        """Takes the hooks away, and leaves the layers as they were. Graphs of passes that have begun may
        outlive this: their gradients are not made in shared memory any more."""
        self.linears.remove()
        self._leave_homes()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _leave_homes(self) -> None:
        for home in self._homes:
            home.view = None

    # ---- a backward pass

    def _hook(self) -> None:
        self.close()
        make = self._counting_hook if self.options.static else self._hook_of
        self._handles = [node.register_hook(make(i)) for i, node in enumerate(self._nodes)]

    def _move_of(self, i: int) -> Callable[[], None]:
        """Brings the gradient of a parameter to where gradsync has it."""
        slot, view, flags = self.slots[i], self.layout.views[i], self.flags
        param, address, me = slot.param, view.data_ptr(), weakref.ref(self)

        def move_converted() -> None:
            grad = param.grad
            if not flags.sync:
                return
            if grad is None:
                view.zero_()
            else:
                view.copy_(grad.detach())

        def move() -> None:
            if view.data_ptr() != address:
                _alive(me).bring_home(i)
            grad = param.grad
            if grad is view:
                return
            if grad is None:
                view.zero_()
            elif grad.layout is torch.strided:
                if grad.data_ptr() != address:
                    view.copy_(grad.detach() if grad.requires_grad else grad)
            else:
                raise GradientKindError(f"parameter {slot.name} has a gradient of layout {grad.layout}: "
                                        "gradsync averages dense ones only (Embedding: sparse=False)",
                                        parameter=slot.name)
            param.grad = view

        return move if slot.wire is param.dtype else move_converted

    def _hook_of(self, i: int) -> Callable[..., None]:
        """The hot path: once per parameter and backward pass."""
        param, view, move = self.slots[i].param, self.layout.views[i], self._move_of(i)
        place, plan, ready = self.layout.places[i], self.layout.plan, self.layout.mark_ready
        flags, fired, local, me = self.flags, self._fired, self._local, weakref.ref(self)
        copy, strided = view.copy_, torch.strided
        alike, may_miss = self.slots[i].wire is param.dtype, self.options.missing is Missing.ABSENT
        address, where, home = view.data_ptr(), view.data_ptr, self._homes[i]

        def hook(*_: object) -> None:
            if where() != address:
                _alive(me).bring_home(i)
            if home.maker is not None and not home.settle() and not flags.sync:
                return  # the pass whose gradient is there comes here, too
            grad = param.grad
            if grad is not view:
                # The work of move() in the usual case.
                if alike and grad is not None and grad.layout is strided and not grad.requires_grad:
                    if grad.data_ptr() != address:
                        copy(grad)
                    param.grad = view
                elif grad is None and may_miss:
                    _alive(me).arm()
                    return  # the pass came by, and brought nothing
                else:
                    move()
            if not flags.sync:
                flags.local = True
                local[i] = 1
                return
            if not flags.queued:
                _alive(me).arm()
            if flags.order is not None:
                flags.order.append(i)
            if flags.times is not None:
                flags.times[i] = perf_counter_ns()
            fired[i] = 1
            if result := ready(plan._handle, place):
                _alive(me).refused(i, plan._failure(result))

        return hook

    def _counting_hook(self, i: int) -> Callable[..., None]:
        """For graphs that are the same in each step: a parameter is ready at the last of its gradients."""
        param, view, move = self.slots[i].param, self.layout.views[i], self._move_of(i)
        made, place, me = self.layout, self.layout.places[i], weakref.ref(self)
        flags, counts, home = self.flags, self.counts, self._homes[i]
        fired, local = self._fired, self._local
        assert counts is not None

        def hook(*_: object) -> None:
            if home.settle():
                move()
            if not flags.sync:
                flags.local = True
                local[i] = 1
                return
            if not flags.queued:
                _alive(me).arm()
            counts.now[i] += 1
            if counts.expected is None:
                fired[i] = 1
                return
            if counts.now[i] > counts.expected[i]:
                _alive(me).refused(i, StateError())
            if counts.now[i] == counts.expected[i]:
                move()
                if flags.order is not None:
                    flags.order.append(i)
                fired[i] = 1
                made.ready(place)

        return hook

    def refused(self, i: int, error: GradsyncError) -> None:
        """A parameter could not be marked."""
        name = self.slots[i].name
        if not self.layout.plan.alive:
            self.end(StateError("the job has been left, so gradients are not averaged any more: use .module"))
            raise StateError(f"parameter {name} got a gradient after the job had been left", parameter=name)
        if not isinstance(error, StateError):
            try:
                raise error
            finally:
                del error       # it refers to this frame, and so to the reducer
        if self.counts is not None:
            raise MarkedTwiceError(f"rank {self.world.job.rank}: parameter {name} got more gradients than in "
                                   "the first step: with static_graph=True the graph must be the same in "
                                   "each step",
                                   parameter=name)
        raise MarkedTwiceError(f"rank {self.world.job.rank}: parameter {name} got a gradient twice in one "
                               "step. A parameter is used in several checkpoints (use static_graph=True, or "
                               "checkpoints with use_reentrant=False), or two backward passes of one step "
                               "overlap (see no_sync())",
                               parameter=name)

    @untraced
    def arm(self) -> None:
        """Lets the end of this backward pass end the step."""
        if self.flags.sync and not self.flags.queued:
            self.flags.queued = True
            _queue_callback(self._backward_ended)

    def arm_at_output(self) -> None:
        """The pass begins with an output of a forward pass whose gradients are averaged."""
        if self.over is None:
            self.flags.sync = True
            self.flags.whole |= not self.flags.queued
            self.arm()

    @untraced
    def _backward_ended(self) -> None:
        """Called by autograd. A backward pass within another one (a checkpoint) is not the end, unless the
        model's output is within it, too."""
        inner = not self.flags.whole and torch._C._current_autograd_node() is not None
        self.flags.queued = self.flags.whole = False
        if self._fired.count(1) < len(self._fired):
            if inner:
                return
            if not self._settle_missing():
                self.flags.sync = self.flags.awaited or self.open
                return
        elif self.counts is not None and inner:
            return
        self.finish()

    def _settle_missing(self) -> bool:
        """Marks parameters that have got no gradient. False if they may still get one."""
        slots = self.slots
        missing = [i for i, fired in enumerate(self._fired) if not fired]
        if self.options.missing is Missing.AWAITED and self.counts is None:
            # Without any gradient, all are frozen (the critic of a GAN), or this was torch.autograd.grad().
            if not self.open or any(slots[i].param.requires_grad for i in missing):
                return False
        if self.counts is not None:
            expected = self.counts.expected
            if expected is None and not any(self.counts.now):
                return False    # torch.autograd.grad()
            if expected is not None and any(expected[i] for i in missing):
                return False
        for i in missing:
            self._mark_missing(i)
        return True

    def _mark_missing(self, i: int) -> None:
        """Marks a parameter without a new gradient. A gradient that is left there from before (by no_sync(),
        or because it was not cleared) counts, as with DDP."""
        layout = self.layout
        if self.slots[i].param.grad is None:
            layout.absent(layout.places[i])
        else:
            self._move_of(i)()
            layout.ready(layout.places[i])

    def mark_all_absent(self) -> None:
        """This member takes part in a step without gradients of its own."""
        for place in self.layout.places:
            self.layout.absent(place)

    def finish(self) -> None:
        """Ends the step. VoidStep if it is void: gradients are gone then."""
        if self.counts is not None and self.counts.expected is None:
            self._learn_counts(self.counts)
        computed = perf_counter_ns()
        try:
            buckets = self._watch_buckets(computed) if self.on_finish is not None else []
            self.info = self.layout.plan.finish()
        except VoidStep as error:
            self.forget()
            self._drop_gradients()
            if not self.world.kept:
                advise_state(error)
            raise
        except DeadlockError as error:
            advise(error, "the end of a backward pass, and has given its gradients")
            raise
        if self.on_finish is not None:
            self.on_finish(self, computed, perf_counter_ns(), buckets)
        self._take_averages()
        self.steps += 1
        self.forget()
        if self.optimises:
            self._optimise()

    def _watch_buckets(self, computed: int) -> Spans:
        """Waits for one bucket after the other. Returns, for each, when its last parameter was ready and when
        its average was there."""
        plan, places, times = self.layout.plan, self.layout.places, self.flags.times or {}
        last: dict[int, int] = {}
        some: dict[int, int] = {}
        for i, place in enumerate(places):
            bucket = plan.bucket_of(place)
            some[bucket] = place
            last[bucket] = max(last.get(bucket, 0), times.get(i, computed))
        seen = []
        for bucket in sorted(some):
            with contextlib.suppress(VoidStep):  # finish() says more of it
                plan.wait(some[bucket])
            seen.append((last[bucket], perf_counter_ns()))
        return seen

    def _optimise(self) -> None:
        for slot in self.slots:
            for optimiser in getattr(slot.param, "_in_backward_optimizers", ()):
                optimiser.step()
            slot.param.grad = None

    def _learn_counts(self, counts: Counts) -> None:
        """Marks the parameters at the end of the first step of a static graph, and keeps the counts."""
        for i, count in enumerate(counts.now):
            if count:
                if self.slots[i].param.grad is not None:
                    self._move_of(i)()
                self.layout.ready(self.layout.places[i])
        counts.expected = list(counts.now)

    def _take_averages(self) -> None:
        layout = self.layout
        for i, slot in enumerate(self.slots):
            if slot.wire is not slot.param.dtype:
                self._take_converted(slot, layout.views[i], layout.places[i], i)
        self._note_use(layout)
        if self._fired.count(1) == len(self._fired):
            return
        for i, slot in enumerate(self.slots):
            if self._fired[i] or layout.plan.unused(layout.places[i]):
                continue
            if slot.wire is slot.param.dtype:
                if layout.views[i].data_ptr() != layout.plan.address(layout.places[i]):
                    self.bring_home(i)
                slot.param.grad = layout.views[i]

    def _note_use(self, layout: Layout) -> None:
        used = bytes(self._fired)
        if used != self._used:
            self.same_use = self._used is None
            self._used = used
        self.unused_bytes = 0
        if used.count(1) < len(used):  # what others use may have changed
            self.unused_bytes = sum(slot.nbytes for i, slot in enumerate(self.slots)
                                    if not used[i] and layout.plan.unused(layout.places[i]))

    def _take_converted(self, slot: Slot, view: torch.Tensor, place: int, i: int) -> None:
        if not self._fired[i] and self.layout.plan.unused(place):
            return
        if slot.param.grad is None:
            slot.param.grad = torch.empty_like(slot.param)
        slot.param.grad.detach().copy_(view)

    def _drop_gradients(self) -> None:
        for slot in self.slots:
            slot.param.grad = None

    # ---- forward passes

    def enter_forward(self) -> None:
        """A forward pass begins whose gradients are averaged, also if its backward pass is within it."""
        self.flags.inside = self.flags.sync = True

    def leave_forward(self, failed: bool = False) -> None:
        """The forward pass is over, or has failed."""
        entered, self.flags.inside = self.flags.inside, False
        self.flags.sync = self.flags.awaited or self.open
        if entered and self.open and not failed:
            missing, named = self._missing()
            raise UnfinishedStepError(f"rank {self.world.job.rank}, step {self.steps + 1}: a backward pass "
                                      f"within forward() gave no gradient to {named}. What forward() needs "
                                      "for itself is computed with torch.autograd.grad(); with "
                                      "find_unused_parameters=True each such pass is a step of its own",
                                      parameter=missing, rank=self.world.job.rank)

    # ---- between steps

    def forget(self) -> None:
        """Forgets the marks of a step that is over."""
        self.linears.remove()
        self._fired[:] = bytes(len(self._fired))
        if self.flags.local:
            self._local[:] = bytes(len(self._local))
        self.flags.local = self.flags.queued = self.flags.whole = self.flags.awaited = False
        self.flags.sync = self.flags.inside
        if self.counts is not None:
            self.counts.now = [0] * len(self.slots)

    def check_finished(self) -> None:
        """Called before a forward pass: raises the reason if the step before it is not finished, or the
        reducer averages nothing any more."""
        if self.over is not None:
            # A new one: its traceback refers to this frame, and so to the reducer.
            raise type(self.over)(str(self.over), parameter=self.over.parameter)
        failed = self.flags.queued          # the end of the last backward pass did not come
        self.flags.queued = self.flags.whole = False
        self._check_types()
        if not self.open:
            return
        missing, named = self._missing()
        why = self._why_unfinished(failed or missing is None)
        raise UnfinishedStepError(f"rank {self.world.job.rank}: step {self.steps + 1} is not finished: "
                                  f"{named} got no gradient; {why}",
                                  parameter=missing, rank=self.world.job.rank)

    def _missing(self) -> tuple[str | None, str]:
        """The first parameter without gradient in the open step, and all of them in words."""
        missing = [slot.name for slot, marked in zip(self.slots, self._fired, strict=True) if not marked]
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        named = f" ({', '.join(missing[:8])}{more})" if missing else ""
        return missing[0] if missing else None, f"{len(missing)} parameters{named}"

    def _why_unfinished(self, failed: bool) -> str:
        if failed:
            return ("its backward pass has failed with an exception. The other ranks wait for the rest of "
                    "the step, so this rank cannot skip it alone: let the exception end the process, or "
                    "decide on all ranks together, before backward(), to skip a batch")
        if self.counts is not None:
            return ("with static_graph=True each parameter gets as many gradients in each step as in the "
                    "first one: wrap the model without it if the graph changes")
        return ("they are not used in what this rank has computed: wrap the model with "
                "find_unused_parameters=True if this is meant")

    def _check_types(self) -> None:
        """Autograd has forgotten the hooks of a parameter whose type has changed, and gradients are where the
        parameters were."""
        for slot in self.slots:
            if slot.param.dtype is not slot.dtype:
                raise ModelChangedError(f"rank {self.world.job.rank}: parameter {slot.name} was {slot.dtype} "
                                        f"when it was wrapped and is {slot.param.dtype}, so its gradient "
                                        "would not be averaged: convert the model first, then wrap it",
                                        parameter=slot.name, rank=self.world.job.rank)
            if slot.param.device != self.host.device:
                raise ModelChangedError(f"rank {self.world.job.rank}: parameter {slot.name} was on "
                                        f"{self.host.device} when it was wrapped and is on "
                                        f"{slot.param.device}: move the model first, then wrap it",
                                        parameter=slot.name, rank=self.world.job.rank)

    def abandon(self) -> None:
        """Drops the marks and the gradients of a step that is void for all members."""
        if self.open:
            self._drop_gradients()
        self.forget()

    @property
    def open(self) -> bool:
        """Whether a parameter is marked in a step that is not finished."""
        return self._fired.count(1) > 0

    @property
    def local(self) -> bool:
        """Whether there are gradients that were not averaged, or were not when the last step was finished."""
        return self.flags.local

    def unaveraged(self) -> Iterator[Slot]:
        """The slots whose gradient is, or may be, this member's own."""
        return (slot for slot, local, fired in zip(self.slots, self._local, self._fired, strict=True)
                if local or fired)


def _alive(me: weakref.ref[Reducer]) -> Reducer:
    """The reducer of a hook. Hooks live as long as their parameters' nodes, which the reducer keeps, so it is
    there when they run."""
    reducer = me()
    assert reducer is not None
    return reducer


def _lies_at(grad: torch.Tensor | None, address: int) -> bool:
    """Whether a gradient lies at this address, also one that the hook has not seen yet, which is not the view
    itself."""
    return grad is not None and grad.layout is torch.strided and grad.data_ptr() == address


def _end_in_child() -> None:
    for reducer in list(_reducers):
        reducer.end_in_child()


os.register_at_fork(after_in_child=_end_in_child)


def _node_of(param: torch.Tensor) -> Any:
    """The node of the graph that adds to .grad. It stays the same if a parameter is frozen for a time."""
    wanted = param.requires_grad
    with torch.enable_grad():
        node = param.requires_grad_(True).view_as(param).grad_fn
    param.requires_grad_(wanted)
    assert node is not None
    return node.next_functions[0][0]
