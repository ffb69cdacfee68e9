# SPDX-License-Identifier: Apache-2.0
"""Trainings that are run twice, with PyTorch's DDP and with gradsync. Each returns all that a trainer can see
at its end."""
import contextlib

import torch
from torch import nn
from torch.nn import functional

import models

STEPS = 50


def batch(side, step, rows=8, width=16):
    """Of this rank: the same for both sides."""
    made = torch.Generator().manual_seed(1000 * step + side.rank)
    return torch.randn(rows, width, generator=made), torch.randint(0, 10, (rows,), generator=made)


def outcome(model, *optimisers, **more):
    """Parameters, buffers, gradients (None stays None) and the state of optimisers."""
    result = {"state": {key: value.detach().clone() for key, value in model.state_dict().items()},
              "gradients": {name: None if param.grad is None else param.grad.detach().clone()
                            for name, param in model.named_parameters()},
              "optimisers": [each.state_dict() for each in optimisers]}
    return result | more


def train(side, model, optimiser, steps=STEPS, set_to_none=True, clip=None, forward=None, rows=8):
    losses = []
    for step in range(steps):
        x, y = batch(side, step, rows)
        optimiser.zero_grad(set_to_none=set_to_none)
        out = model(x) if forward is None else forward(model, x, step)
        loss = functional.cross_entropy(out.float(), y)
        loss.backward()
        if clip is not None:
            losses.append(nn.utils.clip_grad_norm_(model.parameters(), clip).detach())
        optimiser.step()
        losses.append(loss.detach())
    return losses


def mlp(side):
    model = side.wrap(models.mlp())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = train(side, model, optimiser)
    return outcome(model, optimiser, losses=losses)


def mlp_f64(side):
    model = side.wrap(models.mlp(dtype=torch.float64), bucket_cap_mb=0.004)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = train(side, model, optimiser, forward=lambda model, x, _: model(x.double()))
    return outcome(model, optimiser, losses=losses)


def different_beginnings(side):
    """Parameters and buffers begin as those of rank 0."""
    torch.manual_seed(side.rank)
    model = models.Cnn()
    model.first_norm.running_mean.fill_(side.rank)
    return outcome(side.wrap(model))


def without_zeroing(side):
    """Gradients are cleared by zeros, not by None."""
    model = side.wrap(models.mlp(), gradient_as_bucket_view=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    train(side, model, optimiser, set_to_none=False)
    return outcome(model, optimiser)


def images(side, model, steps=STEPS, evaluate=False):
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)
    seen = []
    for step in range(steps):
        made = torch.Generator().manual_seed(1000 * step + side.rank)
        x, y = torch.randn(4, 3, 8, 8, generator=made), torch.randint(0, 10, (4,), generator=made)
        optimiser.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()
        if evaluate and step % 10 == 9:
            model.eval()
            with torch.no_grad():
                seen += [model(x), model(x)]
            model.train()
    return outcome(model, optimiser, seen=seen, strides=[tuple(p.grad.stride()) for p in model.parameters()])


def cnn(side):
    return images(side, side.wrap(models.Cnn()), evaluate=True)


def cnn_without_buffers(side):
    return images(side, side.wrap(models.Cnn(), broadcast_buffers=False))


def cnn_channels_last(side):
    return images(side, side.wrap(models.Cnn(channels_last=True), gradient_as_bucket_view=True))


def transformer(side):
    model = side.wrap(models.Transformer())
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    torch.manual_seed(side.rank)
    for step in range(STEPS):
        made = torch.Generator().manual_seed(1000 * step + side.rank)
        words = torch.randint(0, 40, (4, 12), generator=made)
        optimiser.zero_grad()
        functional.cross_entropy(model(words)[:, :-1].flatten(0, 1), words[:, 1:].flatten()).backward()
        optimiser.step()
    return outcome(model, optimiser)


def branches(side, choose, set_to_none=True, **options):
    model = side.wrap(models.Branches(), find_unused_parameters=True, **options)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    unset = []
    for step in range(STEPS):
        x, y = batch(side, step)
        optimiser.zero_grad(set_to_none=set_to_none)
        functional.cross_entropy(model(x, choose(step)), y).backward()
        unset.append([param.grad is None for param in model.parameters()])
        optimiser.step()
    return outcome(model, optimiser, unset=unset)


def unused_by_some(side):
    return branches(side, lambda step: [(step + side.rank) % 4])


def unused_by_all(side):
    return branches(side, lambda step: [step % 3])


def unused_keeps_zeros(side):
    return branches(side, lambda step: [(step * (side.rank + 1)) % 4], set_to_none=False)


def unused_all_used(side):
    return branches(side, lambda step: [0, 1, 2, 3])


def unused_output(side):
    """An output that takes no part in the loss."""
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(16, 10), nn.Linear(16, 10)

        def forward(self, x):
            return {"one": self.one(x), "rest": [self.other(x)]}

    model = side.wrap(Two(), find_unused_parameters=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        x, y = batch(side, step)
        optimiser.zero_grad()
        out = model(x)
        functional.cross_entropy(out["one"] if step % 2 else out["rest"][0], y).backward()
        optimiser.step()
    return outcome(model, optimiser)


def mixed_types(side):
    model = side.wrap(models.Mixed())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    train(side, model, optimiser)
    return outcome(model, optimiser)


def complex_numbers(side):
    model = side.wrap(models.Complex())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    train(side, model, optimiser)
    return outcome(model, optimiser)


def accumulation(side):
    """Three passes within no_sync(), the fourth after it."""
    model = side.wrap(models.mlp())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    local = []
    for step in range(STEPS):
        x, y = batch(side, step)
        with model.no_sync() if step % 4 != 3 else contextlib.nullcontext():
            functional.cross_entropy(model(x), y).backward()
        if step % 4 == 3:
            optimiser.step()
            optimiser.zero_grad()
        else:
            local.append([param.grad.clone() for param in model.parameters()])
    return outcome(model, optimiser, local=local)


def accumulation_of_averages(side):
    """Gradients are not cleared between steps that are synchronised."""
    model = side.wrap(models.mlp())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        x, y = batch(side, step)
        functional.cross_entropy(model(x), y).backward()
        if step % 3 == 2:
            optimiser.step()
            optimiser.zero_grad(set_to_none=step % 2 == 0)
    return outcome(model, optimiser)


def accumulation_with_unused(side):
    """A branch that was used only within no_sync() counts as used."""
    model = side.wrap(models.Branches(), find_unused_parameters=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    unset = []
    for step in range(STEPS):
        x, y = batch(side, step)
        with model.no_sync() if step % 2 == 0 else contextlib.nullcontext():
            functional.cross_entropy(model(x, [step % 4]), y).backward()
        if step % 2:
            unset.append([param.grad is None for param in model.parameters()])
            optimiser.step()
            optimiser.zero_grad()
    return outcome(model, optimiser, unset=unset)


def uneven(side, **options):
    model = side.wrap(models.Cnn())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 10 + 7 * ((side.rank + 1) % side.world)
    with model.join(**options):
        for step in range(steps):
            made = torch.Generator().manual_seed(1000 * step + side.rank)
            x, y = torch.randn(4, 3, 8, 8, generator=made), torch.randint(0, 10, (4,), generator=made)
            optimiser.zero_grad()
            with model.no_sync() if step % 3 == 0 else contextlib.nullcontext():
                functional.cross_entropy(model(x), y).backward()
            optimiser.step()
    result = outcome(model)
    del result["gradients"]  # those of a rank that has finished are nobody's business
    return result


def uneven_inputs(side):
    return uneven(side)


def uneven_by_live(side):
    return uneven(side, divide_by_initial_world_size=False)


def uneven_thrown(side):
    with contextlib.suppress(RuntimeError):
        uneven(side, throw_on_early_termination=True)
        return {"thrown": False}
    return {"thrown": True}


def checkpoints(side):
    model = side.wrap(models.Checkpointed(reentrant=False, times=2), find_unused_parameters=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    train(side, model, optimiser)
    return outcome(model, optimiser)


def checkpoints_reentrant(side):
    class Once(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = models.Checkpointed(reentrant=True, times=1)
            del self.inner.unused

        def forward(self, x):
            return self.inner(x)

    model = side.wrap(Once())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    train(side, model, optimiser)
    return outcome(model, optimiser)


def static_graph(side):
    """A block in three reentrant checkpoints, and a parameter that is never used."""
    model = side.wrap(models.Checkpointed(reentrant=True, times=3), static_graph=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    train(side, model, optimiser)
    return outcome(model, optimiser)


def clipping(side):
    model = side.wrap(models.mlp())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = train(side, model, optimiser, clip=0.05)
    return outcome(model, optimiser, losses=losses)


def scaler(side):
    """The highest rank has an overflow now and then: all ranks skip those steps."""
    model = side.wrap(models.mlp())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    scale = torch.amp.GradScaler("cpu", init_scale=1024., growth_interval=5)
    for step in range(STEPS):
        x, y = batch(side, step)
        if step % 7 == 3 and side.rank == side.world - 1:
            x[0, 0] = float("inf")
        optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(x).float(), y)
        scale.scale(loss).backward()
        scale.unscale_(optimiser)
        scale.step(optimiser)
        scale.update()
    result = outcome(model, optimiser, scaler=scale.state_dict())
    return {key: value for key, value in result.items() if key != "gradients"}


def gan(side):
    """Two models, one of which steps twice as often; the other's loss goes through it."""
    generator, critic = side.wrap(models.mlp((8, 32, 16))), side.wrap(models.mlp((16, 32, 1)))
    first, second = (torch.optim.Adam(each.parameters(), lr=0.01) for each in (generator, critic))
    for step in range(STEPS):
        real, _ = batch(side, step)
        noise = torch.randn(8, 8, generator=torch.Generator().manual_seed(77 * step + side.rank))
        second.zero_grad()
        with torch.no_grad():
            fake = generator(noise)
        (critic(torch.cat([fake, real])) * torch.tensor([[1.]] * 8 + [[-1.]] * 8)).mean().backward()
        second.step()
        if step % 2:
            first.zero_grad()
            (-critic(generator(noise))).mean().backward()
            first.step()
    return {"generator": outcome(generator, first), "critic": outcome(critic, second)}


def two_forwards(side):
    """Two forward passes, the backward pass of their sum."""
    model = side.wrap(models.mlp())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        (x, y), (more, target) = batch(side, step), batch(side, step + 5000)
        optimiser.zero_grad()
        (functional.cross_entropy(model(x), y) + functional.cross_entropy(model(more), target)).backward()
        optimiser.step()
    return outcome(model, optimiser)


def two_backwards(side):
    """Each part of the model gets its gradients in a backward pass of its own."""
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = models.mlp(), models.mlp()

        def forward(self, x):
            return self.one(x), self.other(x)

    model = side.wrap(Two())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        x, y = batch(side, step)
        optimiser.zero_grad()
        one, other = model(x)
        functional.cross_entropy(one, y).backward()
        functional.cross_entropy(other, y).backward()
        optimiser.step()
    return outcome(model, optimiser)


def ignored(side):
    """Parameters and buffers that are left alone differ between ranks."""
    torch.manual_seed(side.rank)
    inner = models.Cnn()
    names = ["second.weight", "second_norm.running_mean"]
    kind = {"ddp": nn.parallel.DistributedDataParallel}.get(side.name)
    if kind is None:
        import gradsync.torch
        kind = gradsync.torch.DistributedDataParallel
    kind._set_params_and_buffers_to_ignore_for_model(inner, names)
    return images(side, side.wrap(inner))


def shared(side):
    """Two modules have one parameter."""
    inner = models.mlp((16, 16, 16, 10))
    inner[2].weight = inner[0].weight
    model = side.wrap(inner)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    train(side, model, optimiser)
    return outcome(model, optimiser)


def frozen(side):
    inner = models.mlp()
    inner[0].requires_grad_(False)
    model = side.wrap(inner)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    train(side, model, optimiser)
    return outcome(model, optimiser)


def hooks_of_the_user(side):
    """A hook on .grad sees the gradient of its own rank; one on the tensor changes it."""
    inner = models.mlp()
    model = side.wrap(inner)
    seen = []

    def double(param):
        param.grad.mul_(2)

    inner[0].weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
    inner[2].weight.register_post_accumulate_grad_hook(lambda param: seen.append(param.grad.clone()))
    inner[4].bias.register_post_accumulate_grad_hook(double)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    train(side, model, optimiser)
    return outcome(model, optimiser, seen=seen)


def optimiser_in_backward(side):
    """PyTorch's DDP cannot do this on a CPU: there the optimiser steps after backward()."""
    inner = models.mlp()
    if side.name == "ddp":
        optimiser = torch.optim.SGD(inner.parameters(), lr=0.1, momentum=0.9)
        train(side, side.wrap(inner), optimiser)
        return {"state": inner.state_dict()}
    from torch.distributed.optim import _apply_optimizer_in_backward
    _apply_optimizer_in_backward(torch.optim.SGD, inner.parameters(), {"lr": 0.1, "momentum": 0.9})
    model = side.wrap(inner)
    for step in range(STEPS):
        x, y = batch(side, step)
        functional.cross_entropy(model(x), y).backward()
        assert all(param.grad is None for param in model.parameters())
    return {"state": inner.state_dict()}


def compiled(side):
    torch._dynamo.reset()
    model = torch.compile(side.wrap(models.mlp()), backend="aot_eager")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = train(side, model, optimiser)
    return outcome(model, optimiser, losses=losses)


def grad_replaced(side):
    """The script puts another tensor in the place of a gradient."""
    model = side.wrap(models.mlp())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        x, y = batch(side, step)
        functional.cross_entropy(model(x), y).backward()
        for param in model.parameters():
            param.grad = param.grad * 0.5
        optimiser.step()
        if step % 3 == 0:
            optimiser.zero_grad()
    return outcome(model, optimiser)


def raised(side, wrap, work, steps=4):
    """In which step, in which part of it, and that it was a RuntimeError."""
    model = wrap()
    for step in range(steps):
        x, y = batch(side, step)
        part = "forward"
        try:
            loss = functional.cross_entropy(work(model, x, step), y)
            part = "backward"
            loss.backward()
        except RuntimeError:
            return {"step": step, "part": part}
    return {"step": None}


def raises_unused(side):
    """A parameter without gradient, and nobody has said that there may be some."""
    return raised(side, lambda: side.wrap(models.Branches()), lambda model, x, step: model(x, [0, 1, 2]))


def raises_twice(side):
    """A block in two reentrant checkpoints without static_graph."""
    def wrap():
        inner = models.Checkpointed(reentrant=True, times=2)
        del inner.unused
        return side.wrap(inner)

    return raised(side, wrap, lambda model, x, step: model(x))


def raises_nothing_to_do(side):
    made = []
    for module in (nn.ReLU(), models.mlp().requires_grad_(False)):
        try:
            side.wrap(module)
        except RuntimeError:
            made.append("RuntimeError")
    return {"made": made}


def raises_device_ids(side):
    try:
        side.wrap(models.mlp(), device_ids=[0])
    except ValueError:
        return {"made": "ValueError"}
    return {"made": "nothing"}
