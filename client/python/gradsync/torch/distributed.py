# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel: arguments and behaviour of PyTorch's class of that name."""
from __future__ import annotations

import contextlib
import copy
import dataclasses
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from ..errors import DeadlockError, MemberLostError, UnsupportedError, VoidStep
from ..job import Job
from ..types import Info
from . import buffers, compress, drift, layers, layout, logs
from .compare import Named
from .device import device_of
from .drift import setting_of
from .errors import GradientKindError, ModelChangedError, NoStateError, advise, advise_state
from .join import Joining
from .order import Observer
from .reducer import MIB, Missing, Options, Reducer
from .untraced import untraced
from .watch import Changes
from .world import World, compare_worlds, world_of

DEFAULT_CAP_MIB = 25
#: Attributes that are not copied: a copy has its own.
_NOT_COPIED = ("_world", "_host", "_reducer", "_observer", "_changes", "_buffers_found", "_broadcaster",
               "_joining", "_log", "_frozen")
_UNSUPPORTED = ("device_mesh", "mixed_precision", "delay_all_reduce_named_params", "param_to_hook_all_reduce")


class DistributedDataParallel(nn.Module):
    """Trains a module on several processes, each on its own share of the data.

        model = gradsync.torch.DistributedDataParallel(model)

    When backward() returns, `.grad` of each parameter is the average over all members: a view into memory
    that is shared with the daemon, which has averaged while backward ran.

    module                  on the CPU, or on the GPU that the daemon serves; at least one parameter that
                            needs a gradient
    device_ids, output_device   None, or empty, for a module on the CPU; else its GPU, to which tensors among
                            the inputs are moved then, also those in lists, tuples and dictionaries
    broadcast_buffers       before each forward pass that is synchronised, buffers become those of rank 0.
                            forward_sync_buffers is its new name
    init_sync               parameters and buffers begin as those of rank 0
    process_group           the gradsync.Job whose members average; None: the one that the environment names
    job, rank, world_size   for a script that starts its ranks by itself: see default_job()
    bucket_cap_mb           MiB at which a bucket is closed; None: 25, and 1 for the first
    find_unused_parameters  parameters may be without gradient. The graph is not walked for this, and no
                            message is sent: a parameter without gradient at the end of backward() is not used
                            by this member
    static_graph            the graph is the same in each step; parameters may get several gradients in one
    check_parameters        "warn", "error" or "off": whether the parameters are compared over all ranks
                            (after step 1, 10, and then every `check_every` steps), and how a difference is
                            reported. Also whether an optimiser may apply gradients that were not averaged.
                            Rank 0's setting of the comparison counts; None: GRADSYNC_CHECK_PARAMETERS, else
                            "warn", once in a run
    check_every             steps from one comparison to the next; None: GRADSYNC_CHECK_EVERY, else 100. The
                            order of gradients is looked at then, too
    gradient_as_bucket_view, batched_grad_copy, skip_all_reduce_unused_params, check_reduction, dim
                            accepted; `.grad` is always a view

    A torch.nn.SyncBatchNorm in the module becomes a gradsync.torch.SyncBatchNorm. Other layers that exchange
    data through torch.distributed are refused by name (UnsupportedError).

    PlanMismatchError names the rank and the parameter in which models differ.
    """

    def __init__(self, module: nn.Module, device_ids: Sequence[int | torch.device] | None = None,
                 output_device: int | torch.device | None = None, dim: int = 0,
                 broadcast_buffers: bool | None = None,
                 init_sync: bool = True, process_group: Job | None = None, bucket_cap_mb: float | None = None,
                 find_unused_parameters: bool = False, check_reduction: bool = False,
                 gradient_as_bucket_view: bool = True, static_graph: bool = False, *,
                 bucket_cap_mb_list: Sequence[float] | None = None, batched_grad_copy: bool = False,
                 skip_all_reduce_unused_params: bool = False, forward_sync_buffers: bool | None = None,
                 job: str | None = None, rank: int | None = None, world_size: int | None = None,
                 check_parameters: Literal["warn", "error", "off"] | None = None,
                 check_every: int | None = None,
                 **unsupported: Any) -> None:
        super().__init__()
        _refuse(unsupported)
        self.module = module
        self.dim, self.output_device = dim, output_device
        self.device_ids: list[int] | None = None
        self.parameters_to_ignore: set[str] = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self._check_module(device_ids, output_device)
        self.forward_sync_buffers = next((each for each in (forward_sync_buffers, broadcast_buffers)
                                          if each is not None),
                                         True)
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        first, cap = _limits(bucket_cap_mb, bucket_cap_mb_list)
        self._options = Options(Missing.ABSENT if find_unused_parameters else Missing.AWAITED, static_graph,
                                first, cap)
        self._options.check = setting_of(check_parameters, check_every)
        self._comm_hook = "none"
        self._belong_to(process_group, job, rank, world_size)
        if process_group is None:
            compare_worlds(self.job, (job, rank, world_size) != (None,) * 3)
        self._start(init_sync, broadcast_buffers is not False or forward_sync_buffers is not None)

    # ---- the beginning

    def _belong_to(self, job: Job | None, *asked: Any) -> None:
        """Makes the parts of a new wrapper, or of a copy, that belong to a job."""
        self._host = device_of(next(param.device for _, param in self._parameters_of()))
        with self._host.current():
            self._world = world_of(job, *asked)
        self._host.check(self.job.connection.device)
        layers.convert(self.module, self.job)
        self._optimisers_taken = False
        self._changes = Changes(self.module)
        self._buffers_found = buffers.Buffers(self.module, self.parameters_to_ignore)
        self._broadcaster = buffers.Broadcaster()
        self._joining: Joining | None = None
        self._log = logs.Log()
        self._make_reducer()

    def _check_module(self, device_ids: Sequence[Any] | None, output_device: Any) -> None:
        for name, param in self.module.named_parameters():
            if isinstance(param, nn.parameter.UninitializedParameter):
                raise RuntimeError(f"parameter {name} is not initialised yet: run a forward pass of the "
                                   "module before it is wrapped")
        params = dict(layout.parameters_of(self.module, self.parameters_to_ignore))
        if not any(param.requires_grad and param.numel() > 0 for param in params.values()):
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any "
                               "parameter that requires a gradient")
        layers.check(self.module, params)
        devices = {str(param.device) for param in params.values()}
        if len(devices) > 1:
            raise ValueError(f"parameters are on several devices: {', '.join(sorted(devices))}; gradsync "
                             "averages those of one")
        self.device_ids = device_of(next(iter(params.values())).device).named(device_ids, output_device)
        for name, kind in layout.sparse_names(self.module).items():
            if name in params and params[name].requires_grad:
                raise GradientKindError(f"parameter {name}: {kind}(sparse=True) gives sparse gradients, and "
                                        "gradsync averages dense ones only: use sparse=False", parameter=name)

    def _parameters_of(self) -> list[tuple[str, torch.Tensor]]:
        """The parameters that can have something to average, which are those with elements."""
        return [(name, param) for name, param in layout.parameters_of(self.module, self.parameters_to_ignore)
                if param.numel() > 0]

    def _alike(self) -> drift.Named:
        """The parameters that have the same values on all ranks, also those that need no gradient. The latter
        are not in the plan, so ranks may have them in any order."""
        averaged = [(slot.name, drift.in_memory_order(slot.param, slot.stride))
                    for slot in self._reducer.slots]
        names = {name for name, _ in averaged}
        return averaged + sorted((each for each in self._parameters_of() if each[0] not in names),
                                 key=lambda each: each[0])

    def _make_reducer(self, names: Collection[str] = ()) -> None:
        """Makes a reducer for the parameters that need a gradient now, and for those of these names, which
        may need one again."""
        found = self._parameters_of()
        taken = [(name, param) for name, param in found if param.requires_grad or name in names]
        self._frozen = [param for name, param in found if not param.requires_grad and name not in names]
        slots = [layout.slot_of(name, param, self._options.compressed) for name, param in taken]
        self._reducer = Reducer(self._world, self.module, slots, self._options, self._host)
        self._observer = Observer(self._reducer)

    def _start(self, init_sync: bool, with_buffers: bool) -> None:
        world = self._world
        self._begins = init_sync, with_buffers
        world.begin()
        if world.newcomer:
            return
        world.models = [made for made in world.models if made() is not None] + [weakref.ref(self)]
        models = [self]
        while True:
            try:
                for model in models:
                    model._begin()
                return
            except VoidStep:
                # A new process begins with the first model, so all begin there again. If a model has been
                # trained already, they cannot.
                models = [each for made in world.models if (each := made()) is not None]
                if any(model._reducer.steps for model in models):
                    raise
                world.meet(0)

    def _begin(self) -> None:
        """All members together: makes the first plan, unless there is one, and takes rank 0's values."""
        init_sync, with_buffers = self._begins
        if not self._reducer.planned:
            self._reducer.make_first_plan()
        self._agree()
        if init_sync:
            self._broadcast_state(0, with_buffers)

    def _named(self, with_parameters: bool, with_buffers: bool) -> Named:
        named: list[tuple[str, str, torch.Tensor]] = []
        if with_parameters:
            named += [("parameter", name, param)
                      for name, param in layout.parameters_of(self.module, self.parameters_to_ignore)]
        return [*named, *self._buffers_found.named()] if with_buffers else named

    def _agree(self) -> None:
        """All members together: compares the tensors that are broadcast by name. The plan has neither buffers
        nor parameters that need no gradient."""
        self._broadcaster.agree(self.job, self._broadcast_later())

    def _broadcast_later(self) -> Named:
        init_sync, with_buffers = self._begins
        return self._named(init_sync, (init_sync and with_buffers) or self.forward_sync_buffers)

    def _broadcast_state(self, root: int, with_buffers: bool) -> None:
        self._broadcaster.broadcast(self.job, self._named(True, with_buffers), root)

    # ---- processes that come later

    def _reducer_state(self) -> dict[str, Any]:
        """The data that a process needs to make the plan of the others."""
        reducer = self._reducer
        # A plan that is still to be made is the last one.
        number = reducer.layout.number if reducer.planned else self._world.plans + 1
        return {"number": number, "names": [slot.name for slot in reducer.slots],
                "frozen": [name for name, param in self._parameters_of() if not param.requires_grad],
                "order": reducer.wanted, "steps": reducer.steps, "due": self._observer.due,
                "replanned": self._observer.replanned,
                "counts": reducer.counts.expected if reducer.counts is not None else None,
                "param_sync": self.require_forward_param_sync, "alike": self._broadcaster.agreed}

    def _adopt(self, state: dict[str, Any]) -> None:
        """Makes the plan of the others. Has no effect if that was done before another member was lost."""
        if self._reducer.planned or state["order"] is None:
            return
        for name, param in self._parameters_of():
            param.requires_grad_(name not in state["frozen"])
        reducer = self._reducer
        if [slot.name for slot in reducer.slots] != state["names"]:
            self._make_reducer(state["names"])
            reducer = self._reducer
        reducer.steps, self._observer.due = state["steps"], state["due"]
        self._observer.replanned = state["replanned"]
        self.require_forward_param_sync = state["param_sync"]
        self._broadcaster.adopt(self.job, state["alike"], self._broadcast_later())
        if reducer.counts is not None:
            reducer.counts.expected = state["counts"]
        reducer.make_plan(state["order"])

    # ---- settings

    @property
    def job(self) -> Job:
        """The job whose members average."""
        return self._world.job

    @property
    def process_group(self) -> Job:
        """DDP's name for the job."""
        return self._world.job

    @property
    def broadcast_buffers(self) -> bool:
        """DDP's old name of forward_sync_buffers."""
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    @property
    def info(self) -> Info | None:
        """Figures of the last step: norm of the gradients, non-finite values and the rank that had them,
        times."""
        return self._reducer.info

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """fp16_compress_hook and bf16_compress_hook (those of torch.distributed, or of gradsync.torch) let
        gradients travel in 16 bits; they are added in 32. allreduce_hook changes nothing. Call it once,
        before the first forward pass."""
        self._set_comm_hook(*compress.kind_of(hook))

    def _register_builtin_comm_hook(self, kind: Any) -> None:
        self._set_comm_hook(*compress.builtin_kind_of(kind))

    def _set_comm_hook(self, name: str, wire: torch.dtype | None) -> None:
        if self._comm_hook != "none":
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        if self._reducer.steps or self._reducer.open:
            raise RuntimeError("register_comm_hook must be called before the first backward pass")
        self._comm_hook = name
        if wire is not None:
            self._options.compressed = wire
            self._plan_later()

    def _plan_later(self) -> None:
        """Makes another reducer, because gradients travel in other types or need other hooks. Its plan is
        made in the first step, where a loss is dealt with."""
        old = self._reducer
        old.retire()
        self._make_reducer([slot.name for slot in old.slots])
        self._reducer.postponed = True

    def _plan_anew(self) -> None:
        """On all members: makes a plan for another set of parameters."""
        old, observer = self._reducer, self._observer
        planned = old.wanted is not None
        old.retire()
        self._make_reducer([slot.name for slot in old.slots])
        self._reducer.steps, self._observer.due = old.steps, observer.due
        self._observer.replanned = observer.replanned + 1
        self._reducer.postponed = old.postponed
        if planned:
            self._reducer.make_first_plan()

    def _set_static_graph(self) -> None:
        if self._reducer.steps or self._reducer.open:
            raise RuntimeError("_set_static_graph must be called before the first backward pass")
        self.static_graph = self._options.static = True
        self._plan_later()

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: nn.Module, names: Sequence[str]) -> None:
        """Names parameters and buffers that are left alone. Call it before the module is wrapped."""
        module._ddp_params_and_buffers_to_ignore = list(names)  # type: ignore[assignment]

    # ---- forward

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Calls the module; see the class."""
        if torch.compiler.is_compiling():   # it warns of profiler regions, and takes layers as they are
            return self._forward(False, inputs, kwargs)
        with torch.autograd.profiler.record_function("gradsync.DistributedDataParallel.forward"):
            try:
                return self._forward(torch.is_grad_enabled(), inputs, kwargs)
            except BaseException:
                self._reducer.leave_forward(failed=True)
                raise

    def _forward(self, direct: bool, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """torch.compile() compiles the module alone. The work before and after it depends on the step, and
        would be traced again and again. `direct`: large layers have a forward() of ours (direct.py)."""
        self._before_forward(direct)
        if self.device_ids:
            inputs, kwargs = moved_to(self._host.device, (tuple(inputs), dict(kwargs)))
        output = self.module(*inputs, **kwargs)
        self._after_forward(output)
        return output

    @untraced
    def _before_forward(self, direct: bool) -> None:
        self._reducer.make_wanted()
        if not self._reducer.planned and (self._world.newcomer or not self._reducer.postponed):
            raise NoStateError("this process has taken the place of a lost member: give the model to "
                               "gradsync.State, which brings it the state of the others")
        if not self._optimisers_taken:
            self._take_optimisers()
        syncs = torch.is_grad_enabled() and self.require_backward_grad_sync
        if torch.is_grad_enabled() and self._changes.any:
            self._look_at_changes()
        if syncs:
            layers.check_outside(self)
            self.job._check()
            self._world.clear_away()
            self._reducer.check_finished()
        if self._joining is not None:
            self._joining.present(syncs, self._will_sync_buffers())
        # This comes before the parts that only some steps have: a member that evaluates alone gets its
        # buffers here, too.
        if self._will_sync_buffers():
            self._sync_buffers(self._joining.source if self._joining is not None else 0)
        if syncs:
            if self._frozen and any(param.requires_grad for param in self._frozen):
                self._plan_anew()
            if self._reducer.make_postponed():
                self._agree()
            self._observer.before_forward(self._alike)
            if self._joining is not None:
                self._joining.divide()
            self._log.begin(self._reducer)
        if direct:
            self._reducer.linears.place()
        if syncs:
            self._reducer.enter_forward()

    @untraced
    def _after_forward(self, output: Any) -> None:
        self._reducer.leave_forward()
        if not torch.is_grad_enabled():
            self.require_forward_param_sync = False
            return
        self.require_forward_param_sync = self.require_backward_grad_sync
        flags = self._reducer.flags
        flags.awaited = flags.awaited or self.require_backward_grad_sync
        # A pass in no_sync() whose backward pass comes together with another one's takes part in that.
        flags.sync = flags.awaited
        if self.require_backward_grad_sync:
            self._log.forward_ended()
            self._arm_at(output)

    def _arm_at(self, output: Any) -> None:
        """Each backward pass that comes through these tensors is averaged. Its end ends the step, also if no
        parameter gets a gradient, or all do in checkpoints. A backward pass that does not (of `.module`) is
        this member's own business."""
        me = weakref.ref(self)

        def arm(*_: object) -> None:
            model = me()
            if model is not None:
                model._reducer.arm_at_output()

        for tensor in find_tensors(output):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(arm)

    def _will_sync_buffers(self) -> bool:
        return self.require_forward_param_sync and self.forward_sync_buffers and bool(self._buffers_found)

    def _sync_buffers(self, root: int) -> None:
        try:
            self._broadcaster.broadcast(self.job, self._buffers_found.named(), root)
        except VoidStep as error:
            if not self._world.kept:
                advise_state(error)
            raise
        except (DeadlockError, MemberLostError) as error:
            if isinstance(error, DeadlockError) or "needs all ranks" in str(error):
                advise(error, f"the broadcast of rank {root}'s buffers, as before a forward pass")
            raise

    def _look_at_changes(self) -> None:
        layers.check(self.module, {})
        layers.convert(self.module, self.job)
        self._buffers_found.look()
        known = {slot.param for slot in self._reducer.slots} | set(self._frozen)
        for name, param in self._parameters_of():
            if param in known:
                continue
            if not param.requires_grad:
                self._frozen.append(param)
            else:
                raise ModelChangedError(f"rank {self.job.rank}: parameter {name} was put into the model "
                                        "after it was wrapped, so its gradient would not be averaged: change "
                                        "the model first, then wrap it",
                                        parameter=name, rank=self.job.rank)
        self._changes = Changes(self.module)

    def _take_optimisers(self) -> None:
        """Makes optimisers that step in backward() wait for the averages (apply_optimizer_in_backward)."""
        self._optimisers_taken = True
        if not any(hasattr(slot.param, "_in_backward_optimizers") for slot in self._reducer.slots):
            return
        from torch.distributed.optim.apply_optimizer_in_backward import param_to_optim_hook_handle_map
        handles: Mapping[torch.Tensor, Any] = param_to_optim_hook_handle_map
        for slot in self._reducer.slots:
            for handle in handles[slot.param]:
                handle.remove()
        self._reducer.optimises = True

    # ---- contexts

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of forward and backward passes in this block are added up and averaged in the first pass
        after it."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextlib.contextmanager
    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True,
             throw_on_early_termination: bool = False) -> Iterator[None]:
        """For a training loop whose number of passes differs between members: a member that has finished
        takes part in the steps of the others, without gradients of its own, until all have finished. Then all
        have the model of the highest rank among those that finished last.

        divide_by_initial_world_size   gradients are divided by the number of all members, else of those that
                                       train
        throw_on_early_termination     RuntimeError on all members when the first one has finished
        """
        if not enable:
            yield
            return
        self._joining = Joining(self, divide_by_initial_world_size, throw_on_early_termination)
        try:
            yield
            self._joining.shadow()
        finally:
            self._joining = None

    # ---- reports

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """DDP's figures under DDP's names, and times of each bucket. Times are ns."""
        return logs.data_of(self)

    def _set_ddp_runtime_logging_sample_rate(self, rate: int) -> None:
        if rate < 1:
            raise ValueError("DDP runtime logging sample rate should be equal or greater than 1")
        self._log.every = rate

    # ---- copies

    def __getstate__(self) -> dict[str, Any]:
        """A copy, or a wrapper that is loaded from a file, has made no steps. All members use it alike; its
        plan is made in the first forward pass whose gradients are averaged."""
        return {name: value for name, value in self.__dict__.items() if name not in _NOT_COPIED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The loaded wrapper belongs to the job that the environment names."""
        self._restore(state, None)

    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedDataParallel:
        """The copy belongs to the same job."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made._restore(copy.deepcopy(self.__getstate__(), memo), self.job)
        return made

    def _restore(self, state: dict[str, Any], job: Job | None) -> None:
        nn.Module.__setstate__(self, state)  # type: ignore[no-untyped-call]
        self._belong_to(job)
        self._reducer.postponed = True


def _refuse(unsupported: dict[str, Any]) -> None:
    for name, value in unsupported.items():
        if name not in _UNSUPPORTED:
            raise TypeError(f"DistributedDataParallel() has no argument {name!r}")
        if value is not None:
            raise UnsupportedError(f"{name} is not supported by gradsync.torch")


def _limits(cap_mib: float | None, caps: Sequence[float] | None) -> tuple[int, int]:
    """The limits of the first bucket and of the others, in bytes. An explicit cap holds for all, as with
    DDP."""
    if caps:
        return max(int(caps[0] * MIB), 1), max(int(max(caps) * MIB), 1)
    if cap_mib is None:
        return MIB, DEFAULT_CAP_MIB * MIB
    return max(int(cap_mib * MIB), 1), max(int(cap_mib * MIB), 1)


def moved_to(device: torch.device, thing: Any) -> Any:
    """Moves tensors to the device, also those in lists, tuples and dictionaries, as DDP does. Other values
    stay as they are."""
    if isinstance(thing, (torch.Tensor, PackedSequence)):
        return thing.to(device)  # type: ignore[arg-type]
    if isinstance(thing, tuple):
        each = [moved_to(device, part) for part in thing]
        return type(thing)(*each) if hasattr(thing, "_fields") else tuple(each)
    if isinstance(thing, list):
        return [moved_to(device, part) for part in thing]
    if isinstance(thing, dict):
        made = copy.copy(thing)     # of its type, which may take other arguments than a dict
        for key, value in thing.items():
            made[key] = moved_to(device, value)
        return made
    return thing


def find_tensors(thing: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors in lists, tuples, dictionaries and dataclasses."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, (list, tuple)):
        for each in thing:
            yield from find_tensors(each)
    elif isinstance(thing, dict):
        yield from find_tensors(list(thing.values()))
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        yield from find_tensors([getattr(thing, each.name) for each in dataclasses.fields(thing)])
