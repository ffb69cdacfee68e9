# SPDX-License-Identifier: Apache-2.0
"""Trainings in which ranks would train different models, or compute with each other's numbers, and end with
0: what is averaged after all, what is refused, and what is said. Two ranks.
"""
import contextlib
import copy
import io
import os
import pickle
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
import ranks
from ranks import RANK, WORLD, batch, equal, raised, same_everywhere, sgd, wrap


def loss_of(model, step=0):
    return model(batch(step)[0]).square().mean()


def train(model, optimiser, steps=3, first=0):
    """Makes steps as scripts do."""
    for step in range(first, first + steps):
        optimiser.zero_grad()
        loss_of(model, step).backward()
        optimiser.step()


@contextlib.contextmanager
def hearing():
    """Collects what gradsync says on stderr."""
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        yield told


def heard(function, *arguments, **named):
    """Returns what gradsync says on stderr while a function runs. The function must not raise."""
    with hearing() as told:
        function(*arguments, **named)
    return told.getvalue()


def check_words(text, *words):
    for each in words:
        assert each in text, (each, text)


# ---- layers that exchange something by themselves

def normalised():
    """torch's SyncBatchNorm, made by torch's function, as torchvision's --sync-bn does it."""
    whole = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8))
    made = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole))
    layer, seen = made[1], []
    layer.register_forward_hook(lambda *_: seen.append(1))
    model = wrap(made, broadcast_buffers=False)
    x = torch.cat([batch(0, rank)[0] + 5 * rank for rank in range(WORLD)])
    model(x[8 * RANK:8 * RANK + 8]).sum().backward()
    whole(x)
    assert (layer.running_mean - whole[1].running_mean).abs().max() < 1e-6, "means of all samples"
    assert made[1] is layer and seen, "the layer stays the same object"
    assert type(layer) is gradsync.torch.SyncBatchNorm and isinstance(layer, nn.SyncBatchNorm)
    for each in (copy.deepcopy(model).module[1], copy.deepcopy(layer)):
        assert each.process_group is model.job
    if RANK == 0:
        with torch.no_grad():           # no rank waits for another one
            assert model.eval()(x[:3]).shape == (3, 8)


def normalised_types():
    """The output has the type of the input, as with BatchNorm; no second derivative is made up."""
    wide, narrow = nn.SyncBatchNorm(4), nn.SyncBatchNorm(4).bfloat16()
    model = wrap(nn.Sequential(nn.Linear(16, 4), wide, narrow), broadcast_buffers=False)
    assert wide.process_group is model.job
    for layer, of_weight in ((wide, torch.float32), (narrow, torch.bfloat16)):
        x = torch.randn(3, 4, dtype=torch.bfloat16, requires_grad=True)
        made = layer(x)
        made.sum().backward()
        assert made.dtype is x.grad.dtype is torch.bfloat16 and layer.weight.grad.dtype is of_weight
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert wide(torch.randn(3, 4, dtype=torch.bfloat16)).dtype is torch.bfloat16
    x = torch.randn(3, 4, requires_grad=True)
    first, = torch.autograd.grad(wide(x).pow(3).sum(), x, create_graph=True)
    kind, text, _ = raised(first.square().sum().backward)
    assert kind == "RuntimeError" and "twice" in text
    bare = nn.SyncBatchNorm(4)
    bare.running_mean = bare.running_var = bare.num_batches_tracked = None
    loss_of(wrap(nn.Sequential(nn.Linear(16, 4), bare), broadcast_buffers=False))


def normalised_later():
    """A layer that is put in after the model was wrapped."""
    model = wrap(nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8, affine=False)), broadcast_buffers=False)
    loss_of(model).backward()
    model.module[1] = nn.SyncBatchNorm(8, affine=False)
    model(batch(1)[0] + 5 * RANK).sum().backward()
    means = torch.empty(WORLD, 8)
    model.job.allgather(model.module[1].running_mean, means)
    assert (means == means[0]).all()
    model.module[1] = nn.SyncBatchNorm(8)
    assert raised(loss_of, model)[0] == "ModelChangedError"


class Act(nn.SyncBatchNorm):
    """A layer such as timm's SyncBatchNormAct."""


class Restorable(nn.Linear, Stateful):
    """A layer for torch.distributed.checkpoint, which asks for that protocol."""

    def __init__(self):
        super().__init__(2, 2)


def layers_refused():
    """The error names the layer; a layer that exchanges nothing is taken."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    split = nn.Linear(16, 4)
    split.weight = nn.Parameter(DTensor.from_local(split.weight.data, init_device_mesh("cpu", (2,))))
    part, whole = (nn.SyncBatchNorm(4, process_group=dist.new_group(some)) for some in ([0], [0, 1]))
    for layer, where, word in (
            (Act(4), "layer 1 ", "Derive it from gradsync.torch.SyncBatchNorm"),
            (part, "layer 1 ", "process_group"),
            (nn.parallel.DistributedDataParallel(nn.Linear(4, 4)), "layer 1 ",
             "Give gradsync.torch.DistributedDataParallel its .module"),
            (split, "parameter 1.weight", "DTensor")):
        kind, text, _ = raised(wrap, nn.Sequential(nn.Linear(16, 4), layer))
        assert kind == "UnsupportedError" and "communicates" not in text, text
        check_words(text, where, word)
    wrap(nn.Sequential(checkpoint_wrapper(nn.Linear(16, 4)), nn.SyncBatchNorm(4), whole))
    wrap(Restorable())
    kind, text, _ = raised(nn.parallel.DistributedDataParallel(wrap(models.mlp())), batch(0)[0])
    assert kind == "UnsupportedError" and "has wrapped this wrapper" in text, text
    dist.destroy_process_group()


# ---- backward passes within the forward pass

class Inside(nn.Module):
    """Computes a loss, and its gradients, as Lightning's manual optimisation does."""

    def __init__(self, layers):
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
    optimiser = sgd(inside)
    with hearing() as told:
        train(usual, sgd(usual))
        for step in range(3):
            optimiser.zero_grad()
            inside(batch(step)[0])
            optimiser.step()
    assert equal(usual.module.parameters(), layers.parameters()) and same_everywhere(inside)
    assert told.getvalue() == "" and inside._reducer.steps == 3


class Gan(nn.Module):
    """Two optimisers in one forward pass."""

    def __init__(self):
        super().__init__()
        self.maker, self.critic = nn.Linear(16, 8), nn.Linear(8, 1)
        self.optimisers = [sgd(part) for part in (self.critic, self.maker)]

    def forward(self, x):
        one, other = self.optimisers
        made = self.maker(x)
        self.critic(made.detach()).mean().backward()
        one.step()
        one.zero_grad()
        self.critic(made).square().mean().backward()
        other.step()
        other.zero_grad()
        one.zero_grad()


def gan_inside():
    """Each backward pass is a step of its own."""
    model = wrap(Gan(), find_unused_parameters=True)
    with hearing() as told:
        for step in range(3):
            model(batch(step)[0])
    assert same_everywhere(model) and model._reducer.steps == 6 and told.getvalue() == ""


def twice_in_each():
    """Two steps in each forward pass, or two backward passes after it: the ranks compare all the same."""
    def twice(model, x):
        made = model(x)
        made.square().mean().backward(retain_graph=True)
        made.sum().backward()

    for inner, run in ((Gan(), lambda model, x: model(x)), (models.mlp(), twice)):
        model = wrap(inner, find_unused_parameters=isinstance(inner, Gan))
        with torch.no_grad():
            next(inner.parameters()).add_(RANK)     # after the ranks have begun with the same
        with hearing() as told:
            for step in range(4):
                run(model, batch(step)[0])
                model.zero_grad()
        assert model._reducer.steps == 8 and len(model._observer.check_ns) >= 1
        assert "the ranks train different models" in told.getvalue()


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

    kind, text, parameter = raised(wrap(Adversarial()), batch(0)[0])
    assert (kind, parameter) == ("UnfinishedStepError", "second.weight")
    check_words(text, "within forward()", "second.weight, second.bias", "torch.autograd.grad()",
                "find_unused_parameters=True")


def inside_without_sync():
    """Accumulated, and averaged with the next pass. After a forward pass that fails, one of .module is
    local."""
    inner = Inside(models.mlp())
    model = wrap(inner)
    with model.no_sync():
        model(batch(0)[0])
    assert model._reducer.steps == 0
    model(batch(1)[0])
    assert model._reducer.steps == 1
    model.zero_grad()
    inner.fails = True
    assert raised(model, batch(2)[0])[0] == "ValueError" and model._reducer.steps == 2
    inner.layers(batch(3)[0]).sum().backward()
    assert model._reducer.steps == 2


# ---- what is broadcast

class Tables(nn.Module):
    """Buffers, or parameters without gradient, in the given order."""

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


def order_of_buffers():
    """Matched by name: each process has those of a set in an order of its own."""
    turn = 1 if RANK == 0 else -1
    inner = Tables([("full", 1.), ("sliding", 100.)][::turn])
    inner.register_buffer("same", inner.full)
    frozen = Tables([("one", 3.), ("two", 4.)][::turn], frozen=True)
    model, other = wrap(inner), wrap(frozen)
    copied = copy.deepcopy(model)
    for each in (model, other, copied):
        train(each, sgd(each), 2)
    for each, value in ((inner.full, 1), (inner.sliding, 100), (frozen.one, 3), (frozen.two, 4),
                        (copied.module.full, 1)):
        assert each[0] == value


def buffers_that_differ():
    """Refused by name, on all ranks alike, before a value moves."""
    one = RANK == 1
    types = nn.Module()
    types.layer = nn.Linear(4, 4)
    types.register_buffer("count", torch.zeros(2, dtype=torch.int64 if one else torch.float64))
    for inner, parameter, text in (
            (Tables([("kind_b" if one else "kind_a", 1.)]), "kind_a",
             "buffer kind_a is on rank 0, but not on rank 1"),
            (Tables([("table", 1.)], shape=(4, 4) if one else (16,)), "table",
             "buffer table is float32 of shape (4, 4) on rank 1, but float32 of shape (16,) on rank 0"),
            (Tables([("here", 1.)] * one, frozen=True), "here", "here"), (types, "count", "count")):
        kind, told, named = raised(wrap, inner)
        assert (kind, named) == ("PlanMismatchError", parameter) and text in told, (parameter, told)
    wrap(Tables([("b" if one else "a", 1.)]), broadcast_buffers=False, init_sync=False)


def buffers_that_change():
    """After the model was wrapped, on one rank: a rank that has something else takes nothing."""
    inner = Tables([("table", 1. + RANK)])
    model = wrap(inner)
    loss_of(model).backward()

    def broadcast(on_other, words):
        """Rank 0's go to rank 1, which has changed its own and hears so."""
        model._look_at_changes()
        kind, text, _ = raised(model._sync_buffers, 0)
        assert kind == ("ModelChangedError" if RANK == 1 else None), text
        if RANK == 1:
            check_words(text, words)
            assert on_other is None or inner.other[0] == on_other, "nothing was taken"
        model.job.barrier()

    if RANK == 1:
        del inner.table
        inner.register_buffer("other", torch.full((16,), 7.))
    broadcast(7., "buffer other is on this rank, but not on all ranks when they compared")
    if RANK == 1:
        del inner.other
        inner.register_buffer("table", torch.zeros(4, 4))
    broadcast(None, "buffer table is float32 of shape (4, 4) on this rank")
    if RANK == 1:
        inner.table = torch.zeros(5)
    kind, text, _ = raised(model._sync_buffers, 0)      # as many bytes as the others it has not got
    assert kind == "OperationMismatchError"
    check_words(text, ("the other one has changed",
                       "buffer table is float32 of shape (5,) on this rank")[RANK])
    inner.table = torch.zeros(0) if RANK == 0 else torch.zeros(0, 2)
    broadcast(None, "table")


def late():
    """A process that comes late finds that its model has other buffers."""
    model = wrap(Tables([("table", 1.)]))
    agreed = dict(model._broadcaster.agreed)
    agreed["other"] = agreed.pop("table")
    kind, text, parameter = raised(model._broadcaster.adopt, model.job, agreed, model._broadcast_later())
    assert (kind, parameter) == ("PlanMismatchError", "other")
    assert "buffer other is on the other ranks, but not on rank" in text


# ---- parameters that drift apart

def check_difference(text, parameter, step=1):
    check_words(text, f"after step {step} the ranks train different models",
                f"parameter {parameter} of rank 1 differs from that of rank 0", "Usual causes",
                "GRADSYNC_CHECK_PARAMETERS=off")


def loaded_by_one():
    """A checkpoint, after the model was wrapped."""
    def loaded(mode):
        model = wrap(models.mlp(), check_parameters=mode)
        if RANK == 0:
            with torch.no_grad():
                for param in list(model.parameters())[2:]:
                    param.add_(1)
        return model, sgd(model)

    told = heard(train, *loaded(None))
    assert told.count("warning") == 1
    check_difference(told, "2.weight")
    model, optimiser = loaded("error")
    kind, text, parameter = raised(train, model, optimiser)
    assert (kind, parameter) == ("ParametersDifferError", "2.weight")
    check_difference(text, "2.weight")
    model.job.barrier()
    model, optimiser = loaded("off")
    assert heard(train, model, optimiser) == "" and model._observer.check_ns == []


def left_alone():
    """Parameters that are ignored may differ."""
    inner = models.mlp()
    wrap._set_params_and_buffers_to_ignore_for_model(inner, ["0.weight"])
    with torch.no_grad():
        inner[0].weight.fill_(RANK)
    model = wrap(inner)
    assert heard(train, model, sgd(model), 12) == "" and len(model._observer.check_ns) == 2


def frozen_ones():
    """They are the same on all ranks, too."""
    inner = models.mlp()
    inner[0].requires_grad_(False)
    model = wrap(inner)
    with torch.no_grad():
        inner[0].bias.add_(RANK)
    check_difference(heard(train, model, sgd(model)), "0.bias")


def how_often():
    """As rank 0 says, whatever the others want."""
    made = ({"check_every": 4}, {"check_parameters": "off", "check_every": 3})[RANK]
    model, due = wrap(models.mlp(), **made), []
    optimiser = sgd(model)
    for step in range(14):
        train(model, optimiser, 1, step)
        due.append(model._observer.due)
    assert due == [1, 4, 4, 4, 8, 8, 8, 8, 10, 10, 12, 12, 16, 16]
    data = model._get_ddp_logging_data()
    assert data["parameter_checks"] == 5 and data["avg_parameter_check_time"] > 0


def check_unaveraged(told, parameter="0.weight", step=0):
    check_words(told, f"after step {step}: an optimiser is about to apply a gradient of parameter "
                f"{parameter} that gradsync has not averaged", "Call the wrapper itself",
                "GRADSYNC_CHECK_PARAMETERS=off")


def by_module():
    """A method of .module computes the loss, so the wrapper's forward() never runs."""
    model = wrap(models.mlp())
    told = heard(train, model.module, sgd(model))
    check_unaveraged(told)
    assert told.count("warning") == 1 and "did not begin with an output" in told
    model = wrap(models.mlp(), check_parameters="error")
    assert raised(train, model.module, sgd(model))[::2] == ("ParametersDifferError", "0.weight")
    model = wrap(models.mlp(), check_parameters="off")
    assert heard(train, model.module, sgd(model)) == ""


def accumulated_wrongly():
    """The micro batch before the optimiser's step is not averaged; nor are those at the end of an epoch."""
    def passes(model, optimiser, many, averaged, steps):
        for i in range(many):
            with contextlib.nullcontext() if averaged(i) else model.no_sync():
                loss_of(model, i).backward()
            if steps(i):
                optimiser.step()
                optimiser.zero_grad()

    def flag_after_forward(model, optimiser):
        for i in range(4):
            loss = loss_of(model, i)
            model.require_backward_grad_sync = i % 2 == 1
            loss.backward()
            if i % 2:
                optimiser.step()
                optimiser.zero_grad()
        model.require_backward_grad_sync = True

    def in_a_closure(model, optimiser):
        def closure():
            with contextlib.nullcontext() if i == 0 else model.no_sync():
                loss = loss_of(model, i)
                loss.backward()
                return loss

        for i in range(2):
            optimiser.zero_grad()
            optimiser.step(closure)

    def said(function, *more):
        model = wrap(models.mlp())
        told = heard(function, model, sgd(model), *more)
        check_unaveraged(told, step=1)
        return told

    # The last micro batch is not averaged, but the first one.
    check_difference(said(passes, 4, lambda i: i % 2 == 0, lambda i: i % 2), "0.weight")
    # An epoch ends in the middle of an accumulation.
    said(passes, 3, lambda i: i % 2, lambda i: i % 2 or i == 2)
    said(flag_after_forward)
    said(in_a_closure)


def step_too_early():
    """An optimiser steps before all losses of the step had their backward pass."""
    model = wrap(nn.ModuleDict({"body": nn.Linear(16, 8), "one": nn.Linear(8, 1), "two": nn.Linear(8, 1)}))
    model.module.forward = lambda x: [model.module[head](model.module["body"](x)) for head in ("one", "two")]
    one, two = (sgd(model.module[head]) for head in ("one", "two"))

    def steps():
        first, second = model(batch(0)[0])
        first.sum().backward(inputs=list(model.module["one"].parameters()))
        two.step()                      # of which nothing was computed yet
        one.step()
        second.sum().backward()
        two.step()

    told = heard(steps)
    check_unaveraged(told, "one.weight")
    assert "belongs to a step that is not finished" in told and told.count("warning") == 1


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

    assert heard(steps) == "" and same_everywhere(model) and same_everywhere(critic)


class Picky(torch.optim.SGD):
    """An optimiser whose step() takes a closure that needs an argument, or a dict with the closure."""

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

    assert heard(steps) == "" and same_everywhere(model) and model._reducer.steps == 3


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

    if RANK == 0:
        with hearing():
            optimiser.step(closure)


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

    check_words(heard(run, False), "LBFGS goes as far as the loss tells it to", "on rank 0", "on rank 1")
    assert heard(run, True) == ""
    if RANK == 0:
        os.environ["GRADSYNC_CHECK_PARAMETERS"] = "off"         # what rank 0 says holds for all
    assert heard(run, False) == ""
    os.environ.pop("GRADSYNC_CHECK_PARAMETERS", None)


def joined():
    """A rank that has no more inputs keeps an old model until the others have finished."""
    model = wrap(models.mlp(), check_every=2)

    def steps():
        with model.join():
            train(model, sgd(model), 4 + 8 * RANK)

    assert heard(steps) == "" and same_everywhere(model) and len(model._observer.check_ns) > 4


def failed_backward():
    """An exception ends a step on this rank. The error of the next forward pass tells of it."""
    class Boom(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError("boom")

    model = wrap(nn.Sequential(nn.Linear(16, 4), nn.Linear(4, 1)))
    model.module.forward = lambda x: model.module[1](Boom.apply(model.module[0](x)))
    assert raised(lambda: loss_of(model).backward())[1] == "boom"
    kind, text, parameter = raised(loss_of, model)
    assert (kind, parameter) == ("UnfinishedStepError", "0.weight")
    assert "has failed with an exception" in text and "find_unused_parameters" not in text


# ---- scripts that ask torch.distributed

def helpers():
    """Helpers of torch.distributed take every rank for rank 0 where it is not initialised."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        wrap(models.mlp())
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        wrap(models.mlp())
        dist.destroy_process_group()
    states = ("is not initialised", "has a world of 1") if RANK == 0 else ()
    for each, state in zip(told, states, strict=True):
        assert each.category is RuntimeWarning and each.filename == __file__, "it names the line that wraps"
        check_words(str(each.message), f"torch.distributed {state}", "rank 0 of 1", "has 2 ranks",
                    "init_process_group()")


def shares():
    """The sampler takes what torch's takes, and gives the same."""
    rows, job = list(range(23)), gradsync.torch.default_job()
    ours, theirs = gradsync.torch.DistributedSampler, torch.utils.data.DistributedSampler
    names = ("num_replicas", "rank", "epoch", "num_samples", "total_size", "shuffle", "seed", "drop_last",
             "dataset")
    for given in ({}, {"shuffle": False}, {"seed": 5, "drop_last": True}, {"num_replicas": 4, "rank": 3}):
        one, two = ours(rows, **given), theirs(rows, **{"num_replicas": WORLD, "rank": RANK} | given)
        assert isinstance(one, theirs)
        for epoch in range(2):
            one.set_epoch(epoch)
            two.set_epoch(epoch)
            assert list(one) == list(two) and len(one) == len(two)
            assert [getattr(one, name) for name in names] == [getattr(two, name) for name in names]
    assert list(ours(rows, WORLD, RANK, False)) == list(theirs(rows, WORLD, RANK, False))
    usual = ours(rows)
    for each in (ours(rows, job=job), copy.deepcopy(usual), pickle.loads(pickle.dumps(usual))):
        assert list(each) == list(usual)
    for function, given, words in (
            (ours, {"num_replicas": 10}, "The number of samples of a step is batch_size"),
            (ours, {"num_replicas": 2, "rank": 2}, "rank 2 does not exist among 2 replicas")):
        kind, text, _ = raised(function, rows, **given)
        assert kind == "ValueError" and words in text
    kind, text, _ = raised(gradsync.State, model=wrap(models.mlp()), sampler=usual)
    assert kind == "ValueError" and "batch_size" in text
    assert gradsync.torch.default_job(rank=RANK, world_size=WORLD) is job
    assert raised(gradsync.torch.default_job, rank=1 - RANK, world_size=WORLD)[0] == "StateError"


if __name__ == "__main__":
    ranks.main(globals())
