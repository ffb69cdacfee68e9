# SPDX-License-Identifier: Apache-2.0
"""Scripts that use a wrapped model in their own ways: each case with PyTorch's DDP first, then with
gradsync.

    usage.py FOLDER CASE...
"""
import contextlib
import copy
import io
import logging
import sys
import threading

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.optim import swa_utils

import cases
import models
import worker
from cases import batch, outcome, pictures, sgd, train, train_images, trained, wrapped

STEPS = 12


def each_step(side, optimiser):
    return cases.each_step(side, optimiser, STEPS)


def grad_data_assigned(side):
    """`.grad.data` is given another memory, after backward() and after zero_grad()."""
    model, optimiser = wrapped(side, models.mlp())
    for step in range(STEPS):
        optimiser.zero_grad(set_to_none=step % 3 == 0)
        if step % 3 == 2:
            for param in model.parameters():
                param.grad.data = torch.zeros_like(param)
        x, y = batch(side, step)
        functional.cross_entropy(model(x), y).backward()
        for param in model.parameters():
            param.grad.data = param.grad.data.clamp(-0.01, 0.01)
        optimiser.step()
    return outcome(model, optimiser)


def grad_data_assigned_in_hook(side):
    inner = models.mlp()
    model = side.wrap(inner)

    def clip(param):
        param.grad.data = param.grad.data.clamp(-0.01, 0.01)

    for param in inner.parameters():
        param.register_post_accumulate_grad_hook(clip)
    return trained(side, model, steps=STEPS, set_to_none=False)


def many_dimensions(side):
    """A parameter has more dimensions than a plan can describe."""
    class Many(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = models.mlp()
            self.scale = nn.Parameter(torch.ones((1,) * 9 + (16,)))

        def forward(self, x):
            return self.inner(x * self.scale.view(16))

    return trained(side, side.wrap(Many()), steps=STEPS)


def toggled(side):
    """Layers are frozen and unfrozen in turn."""
    inner = models.mlp()
    model, optimiser = wrapped(side, inner, find_unused_parameters=True)
    for step, x, y in each_step(side, optimiser):
        inner[0].requires_grad_(step % 4 < 2)
        inner[2].requires_grad_(step % 3 != 1)
        functional.cross_entropy(model(x), y).backward()
    return outcome(model, optimiser)


def mixed_no_sync(side):
    """One backward pass of two forward passes, the second of which is in no_sync()."""
    model, optimiser = wrapped(side, models.mlp())
    for step, x, y in each_step(side, optimiser):
        more, target = batch(side, step + 5000)
        first = functional.cross_entropy(model(x), y)
        with model.no_sync():
            second = functional.cross_entropy(model(more), target)
        (first + second).backward()
    return outcome(model, optimiser)


def looked_then_no_sync(side):
    """A forward pass without a backward pass, then one of both in no_sync()."""
    model, optimiser = wrapped(side, models.mlp())
    seen = []
    for step, x, y in each_step(side, optimiser):
        more, target = batch(side, step + 5000)
        seen.append(model(x).detach())
        with model.no_sync():
            functional.cross_entropy(model(more), target).backward()
        seen += [param.grad.clone() for param in model.parameters()]
        functional.cross_entropy(model(x), y).backward()
    return outcome(model, optimiser, seen=seen)


def join_early(side):
    """Rank 1 has one batch only, and averages are over those that train."""
    model, optimiser = wrapped(side, models.Cnn())
    with model.join(divide_by_initial_world_size=False):
        for step in range(1 if side.rank else 14):
            train_images(side, model, optimiser, step)
    result = outcome(model)
    del result["gradients"]
    return result


def evaluated_by_one(side, which=0, mode=torch.no_grad):
    """One rank evaluates the wrapped model while the others go on."""
    model, optimiser = wrapped(side, models.Cnn())
    seen = []
    for step in range(STEPS):
        train_images(side, model, optimiser, step)
        if step % 4 == 1 and side.rank == which:
            x, _ = pictures(side, step)
            model.eval()
            with mode():
                seen += [model(x).clone() for _ in range(3)]
            model.train()
    return outcome(model, optimiser, seen=[torch.as_tensor(each.tolist()) for each in seen])


def evaluated_by_zero(side):
    return evaluated_by_one(side)


def evaluated_in_inference(side):
    return evaluated_by_one(side, 1, torch.inference_mode)


class Layers(nn.Module):
    """Layers whose weights are not what they seem."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 16, max_norm=1.)
        self.lstm = nn.LSTM(16, 12, 2, batch_first=True)
        self.gru = nn.GRU(12, 12, bidirectional=True, batch_first=True)
        self.normed = parametrizations.weight_norm(nn.Linear(24, 12))
        self.spectral = parametrizations.spectral_norm(nn.Linear(12, 12))
        self.old = torch.nn.utils.spectral_norm(nn.Linear(12, 12))
        self.older = torch.nn.utils.weight_norm(nn.Linear(12, 12))
        self.orthogonal = parametrizations.orthogonal(nn.Linear(12, 12))
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.last = nn.LazyLinear(10)

    def forward(self, x):
        x = self.gru(self.lstm(self.words(x))[0])[0]
        x = self.orthogonal(self.older(self.old(self.spectral(self.normed(x)))))
        x = self.attention(x, x, x)[0]
        return self.last(x.mean(1))


def layers(side):
    inner = Layers()
    inner(torch.zeros(1, 3, dtype=torch.int64))
    model = side.wrap(inner)
    optimiser = torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.5)
    for step in range(STEPS):
        made = torch.Generator().manual_seed(1000 * step + side.rank)
        x, y = torch.randint(0, 20, (4, 7), generator=made), torch.randint(0, 10, (4,), generator=made)
        optimiser.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return outcome(model, optimiser)


class Buffered(nn.Module):
    """Buffers of all kinds, one of which is made anew in each pass, and one that comes later."""

    def __init__(self, rank):
        super().__init__()
        self.inner = models.mlp()
        self.register_buffer("flag", torch.tensor([bool(rank), True]))
        self.register_buffer("count", torch.tensor(rank))
        self.register_buffer("small", torch.full((3,), rank, dtype=torch.int8))
        self.register_buffer("hidden", torch.full((2, 3), float(rank)).t(), persistent=False)
        self.register_buffer("empty", torch.empty(0))
        self.register_buffer("none", None)
        self.register_buffer("wide", torch.full((5,), rank, dtype=torch.complex128))
        self.later = None

    def forward(self, x):
        self.count = self.count + 1
        self.small += 1
        with torch.no_grad():
            self.hidden.add_(x.mean())
        return self.inner(x)


def buffers(side):
    inner = Buffered(side.rank)
    model, optimiser = wrapped(side, inner)
    seen = []
    for step in range(STEPS):
        if step == 4:
            del inner.later
            inner.register_buffer("later", torch.full((4,), float(side.rank)))
            inner.none = torch.full((4,), float(side.rank))
        if step == 7:
            inner.later = inner.later + side.rank
        x, y = batch(side, step)
        optimiser.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()
        seen += [buffer.clone() for buffer in inner.buffers()]
    return outcome(model, optimiser, seen=seen)


def lbfgs(side):
    model = side.wrap(models.mlp())
    optimiser = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    for step in range(4):
        x, y = batch(side, step)

        def closure():
            optimiser.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimiser.step(closure)
    return outcome(model)


def penalty(side):
    """The loss has the norm of a gradient in it, as in a WGAN."""
    model, optimiser = wrapped(side, models.mlp((16, 32, 1)))
    for _, x, _ in each_step(side, optimiser):
        x.requires_grad_()
        out = model(x).sum()
        grad, = torch.autograd.grad(out, x, create_graph=True)
        (out + (grad.norm(dim=1) - 1).square().mean()).backward()
    return outcome(model, optimiser)


def static_penalty(side):
    """The gradient that is a part of the loss comes before the first backward pass of a static graph.
    PyTorch's DDP takes it for that pass."""
    model, optimiser = wrapped(side, models.mlp(), static_graph=side.name != "ddp")
    for _, x, y in each_step(side, optimiser):
        x.requires_grad_()
        out = model(x)
        grad, = torch.autograd.grad(out.sum(), x, retain_graph=True)
        (functional.cross_entropy(out, y) * grad.norm()).backward()
    return outcome(model, optimiser)


def wrapped_while_alive(side):
    """The module gets a new wrapper, with other arguments, while the old one lives, and when it is gone."""
    inner = models.mlp()
    model = side.wrap(inner)
    optimiser = sgd(inner)
    train(side, model, optimiser, 4)
    again = side.wrap(inner, find_unused_parameters=True)
    train(side, again, optimiser, 4)
    side.drop(model)
    del model
    train(side, again, optimiser, 4)
    return outcome(again, optimiser)


def in_thread(side):
    """Backward passes run in a thread of their own."""
    model, optimiser = wrapped(side, models.mlp())
    for _, x, y in each_step(side, optimiser):
        loss = functional.cross_entropy(model(x), y)
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
    return outcome(model, optimiser)


def vectors(side):
    """A script takes parameters out as one vector, and puts them back: each is a part of the vector
    then."""
    model, optimiser = wrapped(side, models.mlp())
    for step in range(STEPS):
        train(side, model, optimiser, 1)
        flat = nn.utils.parameters_to_vector(model.parameters())
        nn.utils.vector_to_parameters(flat.detach() * 0.99, model.parameters())
    return outcome(model, optimiser)


def averaged(side):
    """A moving average of the wrapper is a copy of it."""
    model, optimiser = wrapped(side, models.Cnn())
    means = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    seen = []
    for step in range(STEPS):
        train_images(side, model, optimiser, step)
        means.update_parameters(model)
        with torch.no_grad():
            seen.append(means.module.module.eval()(torch.ones(2, 3, 8, 8)))
    return outcome(model, optimiser, seen=seen, means=means.state_dict())


def copied(side):
    """Copies are wrappers like others: one by deepcopy(), one by way of a file. All three train on."""
    model = side.wrap(models.mlp(), find_unused_parameters=True)
    train(side, model, sgd(model), 3)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    trained = []
    for each in (model, copy.deepcopy(model), torch.load(file, weights_only=False)):
        if side.name == "gradsync" and each is not model:
            assert each.job is model.job
            side.models.append(each)
        optimiser = sgd(each)
        train(side, each, optimiser)
        trained.append(outcome(each, optimiser))
    return {"trained": trained}


class Warned(logging.Handler):
    """Notes what dynamo warns of."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def compiled(side, backend, compile_it):
    """Trains what this makes of the wrapper's maker, a module and a backend. The module is compiled, and
    dynamo has nothing to warn of."""
    torch._dynamo.reset()
    graphs, warned, log = [], Warned(), logging.getLogger("torch._dynamo")

    def counted(graph, inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    log.addHandler(warned)
    try:
        model = compile_it(side.wrap, models.Cnn(), counted)
        optimiser = sgd(model)
        for step in range(STEPS):
            train_images(side, model, optimiser, step)
    finally:
        log.removeHandler(warned)
    assert graphs, "the module was not compiled"
    assert side.name == "ddp" or not warned.texts, warned.texts
    return outcome(model, optimiser)


def wrapper_compiled(wrap, module, backend):
    return torch.compile(wrap(module), backend=backend)


def compiled_eager(side):
    return compiled(side, "eager", wrapper_compiled)


def compiled_aot_eager(side):
    return compiled(side, "aot_eager", wrapper_compiled)


def compiled_before(side):
    def compile_it(wrap, module, backend):
        return wrap(torch.compile(module, backend=backend))

    return compiled(side, "aot_eager", compile_it)


def compiled_in_place(side):
    def compile_it(wrap, module, backend):
        model = wrap(module)
        model.compile(backend=backend)
        return model

    return compiled(side, "aot_eager", compile_it)


def static_no_sync(side):
    model, optimiser = wrapped(side, models.Checkpointed(reentrant=True, times=2), static_graph=True)
    for step in range(STEPS):
        x, y = batch(side, step)
        with model.no_sync() if step % 3 == 1 else contextlib.nullcontext():
            functional.cross_entropy(model(x), y).backward()
        if step % 3 == 2:
            optimiser.step()
            optimiser.zero_grad()
    return outcome(model, optimiser)


def retried_forward(side):
    """A forward pass fails on all ranks, and is made again."""
    class Failing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.fail = models.mlp(), False

        def forward(self, x):
            x = self.inner(x)
            if self.fail:
                raise MemoryError
            return x

    model, optimiser = wrapped(side, Failing())
    for step, x, y in each_step(side, optimiser):
        model.module.fail = step % 3 == 1
        with contextlib.suppress(MemoryError):
            model(x)
        model.module.fail = False
        functional.cross_entropy(model(x), y).backward()
    return outcome(model, optimiser)


if __name__ == "__main__":
    worker.cases = sys.modules[__name__]
    worker.main(*sys.argv[1:])
