# SPDX-License-Identifier: Apache-2.0
"""One rank of trainings in which ranks would train different models, or compute with each other's numbers,
and end with 0: cases, one after the other. Prints what it has seen.

    apart.py FOLDER CASE...
"""
import contextlib
import copy
import io
import os
import pickle
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

import gradsync
import gradsync.torch
import models
import other
from gradsync.torch import drift
from gradsync.torch.world import world_of
from other import RANK, WORLD, batch, same_everywhere

wrap = gradsync.torch.DistributedDataParallel


def say(**more):
    other.say(**more)


def loss_of(model, step=0):
    return model(batch(step)[0]).square().mean()


def train(model, optimiser, steps=3, first=0):
    """As scripts do."""
    for step in range(first, first + steps):
        optimiser.zero_grad()
        loss_of(model, step).backward()
        optimiser.step()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


@contextlib.contextmanager
def hearing():
    """Collects what gradsync says on stderr."""
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        yield told


def heard(function, *arguments, **named):
    """Collects what is said while a function runs, and what it raises."""
    error = [None, "", None]
    with hearing() as told:
        try:
            function(*arguments, **named)
        except (gradsync.GradsyncError, RuntimeError, ValueError) as raised:
            error = [type(raised).__name__, str(raised), getattr(raised, "parameter", None)]
    return {"told": told.getvalue(), "error": error}


# ---- layers that exchange something by themselves

def normalised():
    """torch's SyncBatchNorm, made by torch's function, as torchvision's --sync-bn does it."""
    whole = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8))
    layers = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole))
    layer, seen = layers[1], []
    layer.register_forward_hook(lambda *_: seen.append(1))
    model = wrap(layers, broadcast_buffers=False)
    x = torch.cat([batch(0, rank)[0] + 5 * rank for rank in range(WORLD)])
    model(x[8 * RANK:8 * RANK + 8]).sum().backward()
    whole(x)
    with torch.no_grad():               # no rank waits for another one
        model.eval()
        alone = model(x[:3]).shape if RANK == 0 else None
    copied = copy.deepcopy(model)
    say(far=(layer.running_mean - whole[1].running_mean).abs().max().item(), same=layers[1] is layer,
        hooks=len(seen), kind=[type(layer).__module__, isinstance(layer, nn.SyncBatchNorm)],
        alone=alone is not None or RANK > 0,
        job=[copied.module[1].process_group is model.job, copy.deepcopy(layer).process_group is model.job])


def normalised_types():
    """The output has the type of the input, as with BatchNorm; no second derivative is made up."""
    wide, narrow = nn.SyncBatchNorm(4), nn.SyncBatchNorm(4).bfloat16()
    model = wrap(nn.Sequential(nn.Linear(16, 4), wide, narrow), broadcast_buffers=False)
    kinds = {}
    for layer, name in ((wide, "mixed"), (narrow, "narrow")):
        x = torch.randn(3, 4, dtype=torch.bfloat16, requires_grad=True)
        made = layer(x)
        made.sum().backward()
        kinds[name] = [str(each.dtype) for each in (made, x.grad, layer.weight.grad)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        kinds["autocast"] = [str(wide(torch.randn(3, 4, dtype=torch.bfloat16)).dtype)]
    x = torch.randn(3, 4, requires_grad=True)
    first, = torch.autograd.grad(wide(x).pow(3).sum(), x, create_graph=True)
    second = heard(first.square().sum().backward)["error"]
    bare = nn.SyncBatchNorm(4)
    bare.running_mean = bare.running_var = bare.num_batches_tracked = None
    other = wrap(nn.Sequential(nn.Linear(16, 4), bare), broadcast_buffers=False)
    say(kinds=kinds, second=second, bare=heard(loss_of, other)["error"], mine=wide.process_group is model.job)


def put_in_later():
    """After the model was wrapped."""
    model = wrap(nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8, affine=False)), broadcast_buffers=False)
    loss_of(model).backward()
    model.module[1] = nn.SyncBatchNorm(8, affine=False)
    (model(batch(1)[0] + 5 * RANK).sum()).backward()
    means = torch.empty(WORLD, 8)
    model.job.allgather(model.module[1].running_mean, means)
    model.module[1] = nn.SyncBatchNorm(8)
    say(same=bool((means == means[0]).all()), refused=heard(loss_of, model)["error"])


class Act(nn.SyncBatchNorm):
    """As timm's SyncBatchNormAct."""


class Restorable(nn.Linear, Stateful):
    """As for torch.distributed.checkpoint, which asks for that protocol."""

    def __init__(self):
        super().__init__(2, 2)


def layers_refused():
    """By name; what exchanges nothing is not."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    split = nn.Linear(16, 4)
    split.weight = nn.Parameter(DTensor.from_local(split.weight.data, mesh))
    part, whole = (nn.SyncBatchNorm(4, process_group=dist.new_group(ranks)) for ranks in ([0], [0, 1]))
    found = {name: heard(wrap, nn.Sequential(nn.Linear(16, 4), layer))["error"] for name, layer in (
        ("subclass", Act(4)), ("group", part), ("ddp", nn.parallel.DistributedDataParallel(nn.Linear(4, 4))),
        ("split", split))}
    fine = [heard(wrap, module)["error"] for module in (
        nn.Sequential(checkpoint_wrapper(nn.Linear(16, 4)), nn.SyncBatchNorm(4), whole), Restorable())]
    outer = nn.parallel.DistributedDataParallel(wrap(models.mlp()))
    twice = heard(outer, batch(0)[0])["error"]
    dist.destroy_process_group()
    say(found=found, fine=fine, twice=twice)


# ---- backward passes within the forward pass

class Inside(nn.Module):
    """Computes a loss, and its gradients, as Lightning's manual optimisation does."""

    def __init__(self, layers, optimiser=None):
        super().__init__()
        self.layers, self.fails = layers, False

    def forward(self, x):
        loss = self.layers(x).square().mean()
        loss.backward()
        if self.fails:
            raise ValueError("fails")
        return loss.detach()


def backward_inside():
    """As with a backward pass outside, from the first step on."""
    torch.manual_seed(1)
    layers = models.mlp()
    usual, inside = wrap(copy.deepcopy(layers)), wrap(Inside(layers))
    first, second = sgd(usual), sgd(inside)
    told = heard(train, usual, first)
    with hearing() as more:
        for step in range(3):
            second.zero_grad()
            inside(batch(step)[0])
            second.step()
    say(equal=all(torch.equal(a, b) for a, b in zip(usual.module.parameters(), layers.parameters())),
        same=same_everywhere(inside), told=told["told"] + more.getvalue(), steps=inside._reducer.steps)


class Gan(nn.Module):
    """Two optimisers in one forward pass."""

    def __init__(self):
        super().__init__()
        self.maker, self.critic = nn.Linear(16, 8), nn.Linear(8, 1)

    def forward(self, x, step):
        made = self.maker(x)
        self.critic(made.detach()).mean().backward()
        step[0].step()
        step[0].zero_grad()
        self.critic(made).square().mean().backward()
        step[1].step()
        step[1].zero_grad()
        step[0].zero_grad()


def gan_inside():
    """Each backward pass is a step of its own."""
    inner = Gan()
    model = wrap(inner, find_unused_parameters=True)
    optimisers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (inner.critic, inner.maker)]
    with hearing() as told:
        for step in range(3):
            model(batch(step)[0], optimisers)
    say(same=same_everywhere(model), steps=model._reducer.steps, told=told.getvalue())


def twice_in_each():
    """Two steps in each forward pass, or two backward passes after it: the ranks compare all the same."""
    def twice(model, x):
        made = model(x)
        made.square().mean().backward(retain_graph=True)
        made.sum().backward()

    found = {}
    for name, run in (("inside", lambda model, x, optimisers: model(x, optimisers)),
                      ("outside", lambda model, x, _: twice(model, x))):
        inner = Gan() if name == "inside" else models.mlp()
        model = wrap(inner, find_unused_parameters=name == "inside")
        optimisers = [torch.optim.SGD(part.parameters(), lr=0.1)
                      for part in ((inner.critic, inner.maker) if name == "inside" else (inner,))]
        with torch.no_grad():
            next(inner.parameters()).add_(RANK)     # after the ranks have begun with the same
        with hearing() as told:
            for step in range(4):
                run(model, batch(step)[0], optimisers)
                model.zero_grad()
        found[name] = {"told": told.getvalue(), "checks": len(model._observer.check_ns),
                       "steps": model._reducer.steps}
    say(**found)


def part_inside():
    """A backward pass within forward() that gives some gradients, and leaves the step open."""
    class Adversarial(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(16, 8), nn.Linear(8, 1)

        def forward(self, x):
            self.first(x).sum().backward()
            self.zero_grad()
            return self.second(self.first(x))

    model = wrap(Adversarial())
    say(error=heard(model, batch(0)[0])["error"])


def inside_without_sync():
    """Accumulated, and averaged with the next pass. After a forward pass that fails, one of .module is
    local."""
    inner = Inside(models.mlp())
    model = wrap(inner)
    with model.no_sync():
        model(batch(0)[0])
    local = model._reducer.steps
    model(batch(1)[0])
    steps = [local, model._reducer.steps]
    model.zero_grad()
    inner.fails = True
    failed = heard(model, batch(2)[0])["error"][0]
    steps.append(model._reducer.steps)
    inner.layers(batch(3)[0]).sum().backward()
    steps.append(model._reducer.steps)
    say(steps=steps, failed=failed)


# ---- what is broadcast

class Tables(nn.Module):
    """Buffers, and parameters without gradient, in the order of a set, which each process has in its own."""

    def __init__(self, values, frozen=False, shape=(16,)):
        super().__init__()
        self.layer = nn.Linear(16, 16)
        for name, value in values:
            if frozen:
                self.register_parameter(name, nn.Parameter(torch.full(shape, value), requires_grad=False))
            else:
                self.register_buffer(name, torch.full(shape, value), persistent=False)

    def forward(self, x):
        return self.layer(x)


def ordered(*values):
    return values if RANK == 0 else values[::-1]


def order_of_buffers():
    """Matched by name."""
    inner = Tables(ordered(("full", 1.), ("sliding", 100.)))
    inner.register_buffer("same", inner.full)
    frozen = Tables(ordered(("one", 3.), ("two", 4.)), frozen=True)
    model, other_model = wrap(inner), wrap(frozen)
    train(model, sgd(model), 2)
    train(other_model, sgd(other_model), 2)
    copied = copy.deepcopy(model)
    train(copied, sgd(copied), 1)
    say(values=[inner.full[0].item(), inner.sliding[0].item(), frozen.one[0].item(), frozen.two[0].item(),
                copied.module.full[0].item()])


def buffers_that_differ():
    """Refused by name, on all ranks alike, before a value moves."""
    one = RANK == 1
    found = {
        "names": heard(wrap, Tables([("kind_b" if one else "kind_a", 1.)])),
        "shapes": heard(wrap, Tables([("table", 1.)], shape=(4, 4) if one else (16,))),
        "frozen": heard(wrap, Tables([("here", 1.)] * one, frozen=True)),
        "not sent": heard(wrap, Tables([("b" if one else "a", 1.)]), broadcast_buffers=False,
                          init_sync=False),
    }
    types = nn.Module()
    types.layer = nn.Linear(4, 4)
    types.register_buffer("count", torch.zeros(2, dtype=torch.int64 if one else torch.float64))
    found["types"] = heard(wrap, types)
    say(found={name: each["error"] for name, each in found.items()})


def buffers_that_change():
    """After the model was wrapped, on one rank: a rank that has something else takes nothing."""
    inner = Tables([("table", 1. + RANK)])
    model = wrap(inner)
    loss_of(model).backward()
    if RANK == 1:
        del inner.table
        inner.register_buffer("other", torch.full((16,), 7.))
        model._look_at_changes()
    renamed = heard(model._sync_buffers, 0)["error"]
    left = inner.other[0].item() if RANK == 1 else None
    if RANK == 1:
        del inner.other
        inner.register_buffer("table", torch.zeros(4, 4))
        model._look_at_changes()
    model.job.barrier()
    reshaped = heard(model._sync_buffers, 0)["error"]
    if RANK == 1:
        inner.table = torch.zeros(5)
    resized = heard(model._sync_buffers, 0)["error"]
    if RANK == 0:
        inner.table = torch.zeros(0)
    elif RANK == 1:
        inner.table = torch.zeros(0, 2)
    emptied = heard(model._sync_buffers, 0)["error"]
    say(renamed=renamed, left=left, reshaped=reshaped, resized=resized, emptied=emptied)


def late():
    """A process that comes late finds that its model has other buffers."""
    model = wrap(Tables([("table", 1.)]))
    agreed = dict(model._broadcaster.agreed)
    agreed["other"] = agreed.pop("table")
    say(error=heard(model._broadcaster.adopt, model.job, agreed, model._broadcast_later())["error"])


# ---- parameters that drift apart

def loaded_by_one():
    """A checkpoint, after the model was wrapped."""
    found = {}
    for mode in (None, "error", "off"):
        model = wrap(models.mlp(), check_parameters=mode)
        if RANK == 0:
            with torch.no_grad():
                for param in list(model.parameters())[2:]:
                    param.add_(1)
        found[mode or "warn"] = heard(train, model, sgd(model)) | {"checks": len(model._observer.check_ns)}
        model.job.barrier()
    say(**found)


def left_alone():
    """Parameters that are ignored may differ, and so may all of them where there is nothing to compare."""
    inner = models.mlp()
    wrap._set_params_and_buffers_to_ignore_for_model(inner, ["0.weight"])
    with torch.no_grad():
        inner[0].weight.fill_(RANK)
    model = wrap(inner)
    say(**heard(train, model, sgd(model), 12), checks=len(model._observer.check_ns))


def frozen_ones():
    """They are the same on all ranks, too."""
    inner = models.mlp()
    inner[0].requires_grad_(False)
    model = wrap(inner)
    with torch.no_grad():
        inner[0].bias.add_(RANK)
    say(**heard(train, model, sgd(model)))


def how_often():
    """As rank 0 says, whatever the others want."""
    made = ({"check_every": 4}, {"check_parameters": "off", "check_every": 3})[RANK]
    model, due = wrap(models.mlp(), **made), []
    optimiser = sgd(model)
    for step in range(14):
        train(model, optimiser, 1, step)
        due.append(model._observer.due)
    data = model._get_ddp_logging_data()
    say(due=due, checks=data["parameter_checks"], took=data["avg_parameter_check_time"])


def by_module():
    """A method of .module computes the loss, so the wrapper's forward() never runs."""
    found = {}
    for mode in (None, "error", "off"):
        model = wrap(models.mlp(), check_parameters=mode)
        found[mode or "warn"] = heard(train, model.module, sgd(model))
    say(**found)


def accumulated_wrongly():
    """The micro batch before the optimiser's step is not averaged; nor are those at the end of an epoch."""
    model = wrap(models.mlp())
    optimiser = sgd(model)

    def off_by_one():
        for i in range(4):
            with contextlib.nullcontext() if i % 2 == 0 else model.no_sync():
                loss_of(model, i).backward()
            if i % 2:
                optimiser.step()
                optimiser.zero_grad()

    def left_over():
        for i in range(3):
            with contextlib.nullcontext() if i % 2 else model.no_sync():
                loss_of(model, i).backward()
            if i % 2 or i == 2:
                optimiser.step()
                optimiser.zero_grad()

    def flag_after_forward():
        for i in range(4):
            loss = loss_of(model, i)
            model.require_backward_grad_sync = i % 2 == 1
            loss.backward()
            if i % 2:
                optimiser.step()
                optimiser.zero_grad()
        model.require_backward_grad_sync = True

    def in_a_closure():
        def closure():
            with contextlib.nullcontext() if i == 0 else model.no_sync():
                loss = loss_of(model, i)
                loss.backward()
                return loss

        for i in range(2):
            optimiser.zero_grad()
            optimiser.step(closure)

    found = {"off_by_one": heard(off_by_one)}
    model = wrap(models.mlp())
    optimiser = sgd(model)
    found["left_over"] = heard(left_over)
    model = wrap(models.mlp())
    optimiser = sgd(model)
    found["flag"] = heard(flag_after_forward)
    model = wrap(models.mlp())
    optimiser = sgd(model)
    found["closure"] = heard(in_a_closure)
    found["second"] = heard(in_a_closure)
    say(**found)


def step_too_early():
    """An optimiser steps before all losses of the step had their backward pass."""
    model = wrap(nn.ModuleDict({"body": nn.Linear(16, 8), "one": nn.Linear(8, 1), "two": nn.Linear(8, 1)}))
    model.module.forward = lambda x: [model.module[head](model.module["body"](x)) for head in ("one", "two")]
    one, two = (torch.optim.SGD(model.module[head].parameters(), lr=0.1) for head in ("one", "two"))

    def steps():
        first, second = model(batch(0)[0])
        first.sum().backward(inputs=list(model.module["one"].parameters()))
        two.step()                      # of which nothing was computed yet
        one.step()
        second.sum().backward()
        two.step()
    say(**heard(steps))


def rightly():
    """Nothing is said: accumulation, clipping, a critic that is passed by, frozen layers, a scheduler,
    gradients that the closure of a step has averaged."""
    model, critic = wrap(models.mlp()), wrap(models.mlp((10, 8, 1)))
    first, second = torch.optim.Adam(model.parameters()), sgd(critic)
    schedule = torch.optim.lr_scheduler.StepLR(first, 2)

    def averaged(i):
        loss = loss_of(model, i)
        loss.backward()
        return loss

    def steps():
        for i in range(24):
            with model.no_sync():
                loss_of(model, i).backward()
            made = model(batch(i + 50)[0])
            # Leaves gradients in the critic, which are cleared below.
            (made.square().mean() - critic.module(made).mean()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.)
            first.step()
            first.zero_grad(set_to_none=i % 2 == 0)
            schedule.step()
            with model.no_sync():
                loss_of(model, i).backward()
            first.step(lambda i=i: averaged(i))
            first.zero_grad()
            second.zero_grad()
            critic(made.detach()).square().mean().backward()
            second.step()
            with torch.no_grad():
                model(batch(99)[0])
    say(**heard(steps), same=same_everywhere(model) and same_everywhere(critic))


class Picky(torch.optim.SGD):
    """Whose step takes something else than a closure, or a closure with arguments."""

    def step(self, given=None):
        if callable(given):
            given(backward=True)
        elif isinstance(given, dict):
            given = given["closure"]()
        return super().step()


def odd_steps():
    """Optimisers of other people, and gradients that change nothing."""
    model = wrap(models.mlp())
    optimiser = Picky(model.parameters(), lr=0.1)
    state = torch.optim.Adam(model.parameters())

    def loss(backward=True):
        optimiser.zero_grad()
        made = loss_of(model)
        if backward:
            made.backward()
        return made

    def steps():
        optimiser.step({"closure": loss})
        optimiser.step(loss().detach())
        optimiser.step(loss)
        with model.no_sync():
            loss_of(model).backward()
        model.zero_grad(set_to_none=False)
        state.step()
    say(**heard(steps), same=same_everywhere(model), steps=model._reducer.steps)


def calibrated():
    """One rank alone goes on with a part of its module; no other rank is asked for anything."""
    model = wrap(nn.Sequential(nn.Linear(16, 4), nn.Linear(4, 1)))
    loss_of(model).backward()
    optimiser = torch.optim.LBFGS(model.module[1].parameters(), max_iter=2)

    def closure():
        optimiser.zero_grad()
        made = (model.module(batch(0)[0]) - 1).square().mean()
        made.backward()
        return made
    found = heard(optimiser.step, closure) if RANK == 0 else heard(lambda: None)
    say(error=found["error"])


def followed_loss():
    """L-BFGS goes as far as the loss tells it to: that of its own rank, or that of all."""
    def run(average):
        model = wrap(nn.Sequential(nn.Linear(16, 4), nn.Tanh(), nn.Linear(4, 1)))
        optimiser = torch.optim.LBFGS(model.parameters(), max_iter=3, max_eval=3,
                                      line_search_fn="strong_wolfe")
        x = batch(1)[0] * (1 + 10 * RANK)

        def closure():
            optimiser.zero_grad()
            loss = (model(x) - 1).square().mean()
            loss.backward()
            told = loss.detach().clone()
            if average:
                model.job.allreduce(told, gradsync.DType.F32, gradsync.Reduce.AVG)
            return told if average else loss
        optimiser.step(closure)
    off = gradsync.torch.drift._MODE_VARIABLE
    found = {"own": heard(run, False), "all": heard(run, True)}
    if RANK == 0:
        os.environ[off] = "off"         # what rank 0 says holds for all
    found["off"] = heard(run, False)
    os.environ.pop(off, None)
    say(**found)


def joined():
    """A rank that has no more inputs keeps an old model until the others have finished."""
    model = wrap(models.mlp(), check_every=2)
    optimiser = sgd(model)

    def steps():
        with model.join():
            train(model, optimiser, 4 + 8 * RANK)
    say(**heard(steps), same=same_everywhere(model), checks=len(model._observer.check_ns))


def failed_backward():
    """An exception has ended a step on this rank: what is said of that."""
    class Boom(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError("boom")

    model = wrap(nn.Sequential(nn.Linear(16, 4), nn.Linear(4, 1)), find_unused_parameters=False)
    model.module.forward = lambda x: model.module[1](Boom.apply(model.module[0](x)))
    first = heard(lambda: loss_of(model).backward())["error"][1]
    say(first=first, error=heard(loss_of, model)["error"])


def helpers():
    """Those of torch.distributed take every rank for rank 0 where it is not initialised."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        wrap(models.mlp())
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        wrap(models.mlp())
        dist.destroy_process_group()
    say(told=[[str(each.message), each.category.__name__, each.filename == __file__] for each in told])


def shares():
    """The sampler takes what torch's takes, and gives the same."""
    rows, job = list(range(23)), gradsync.torch.default_job()
    ours, theirs = gradsync.torch.DistributedSampler, torch.utils.data.DistributedSampler
    equal = []
    for given in ({}, {"shuffle": False}, {"seed": 5, "drop_last": True}, {"num_replicas": 4, "rank": 3}):
        one, two = ours(rows, **given), theirs(rows, **{"num_replicas": WORLD, "rank": RANK} | given)
        for epoch in range(2):
            one.set_epoch(epoch)
            two.set_epoch(epoch)
            equal.append(list(one) == list(two) and len(one) == len(two) and isinstance(one, theirs) and
                         all(getattr(one, name) == getattr(two, name) for name in (
                             "num_replicas", "rank", "epoch", "num_samples", "total_size", "shuffle", "seed",
                             "drop_last", "dataset")))
    positional = list(ours(rows, WORLD, RANK, False)) == list(theirs(rows, WORLD, RANK, False))
    model = wrap(models.mlp())
    say(equal=equal, positional=positional, wrong=heard(ours, rows, 10)["error"],
        beyond=heard(ours, rows, 2, 2)["error"], kept=list(ours(rows, job=job)) == list(ours(rows)),
        copied=[list(each) == list(ours(rows)) for each in (copy.deepcopy(ours(rows)),
                                                            pickle.loads(pickle.dumps(ours(rows))))],
        again=[gradsync.torch.default_job(rank=RANK, world_size=WORLD) is job,
               heard(gradsync.torch.default_job, rank=1 - RANK, world_size=WORLD)["error"][0]],
        uncounted=heard(gradsync.State, model=model, sampler=ours(rows))["error"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for other.running in sys.argv[2:]:
        torch.manual_seed(7)
        globals()[other.running]()
        world_of(None).job.barrier()
