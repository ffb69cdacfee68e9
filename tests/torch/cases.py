# SPDX-License-Identifier: Apache-2.0
"""Trainings that are run twice, with PyTorch's DDP and with gradsync. Each returns all that a trainer can see
at its end."""
import collections
import contextlib
import io
import itertools

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import models

STEPS = 50
#: Where the first steps show everything.
FEW = 12


def batch(side, step, rows=8, width=16):
    """A batch of this rank; both sides of a comparison get the same one."""
    made = torch.Generator().manual_seed(1000 * step + side.rank)
    return torch.randn(rows, width, generator=made), torch.randint(0, 10, (rows,), generator=made)


def outcome(model, *optimisers, **more):
    """Parameters, buffers, gradients (None stays None) and the state of optimisers."""
    result = {"state": {key: value.detach().clone() for key, value in model.state_dict().items()},
              "gradients": {name: None if param.grad is None else param.grad.detach().clone()
                            for name, param in model.named_parameters()},
              "optimisers": [each.state_dict() for each in optimisers]}
    return result | more


def pictures(side, step):
    """The same with images."""
    made = torch.Generator().manual_seed(1000 * step + side.rank)
    return torch.randn(4, 3, 8, 8, generator=made), torch.randint(0, 10, (4,), generator=made)


def each_step(side, optimiser, steps=STEPS, begin=0, make=batch, **options):
    """(step, x, y) of so many steps. The gradients are cleared before each, and the optimiser steps after
    it."""
    for step in range(begin, begin + steps):
        x, y = make(side, step)
        optimiser.zero_grad(**options)
        yield step, x, y
        optimiser.step()


def train(side, model, optimiser, steps=STEPS, set_to_none=True, clip=None, forward=None, rows=8):
    losses = []
    for step in range(steps):
        x, y = batch(side, step, rows)
        optimiser.zero_grad(set_to_none=set_to_none)
        out = model(x) if forward is None else forward(model, x, step)
        loss = functional.cross_entropy(models.usual(out), y)
        loss.backward()
        if clip is not None:
            losses.append(nn.utils.clip_grad_norm_(model.parameters(), clip).detach())
        optimiser.step()
        losses.append(loss.detach())
    return losses


def sgd(model, lr=0.1, **options):
    return torch.optim.SGD(model.parameters(), lr=lr, **options)


def wrapped(side, module, **options):
    """A wrapped model, and an optimiser for it."""
    model = side.wrap(module, **options)
    return model, sgd(model)


def trained(side, model, optimiser=None, **options):
    """The outcome of a training, by plain SGD if no optimiser is given."""
    optimiser = optimiser or sgd(model)
    losses = train(side, model, optimiser, **options)
    return outcome(model, optimiser, losses=losses)


def mlp(side):
    model = side.wrap(models.mlp())
    return trained(side, model, sgd(model, momentum=0.9))


def small_buckets(side):
    model = side.wrap(models.mlp(), bucket_cap_mb=0.004)
    return trained(side, model, torch.optim.Adam(model.parameters(), lr=0.01))


def list_of_caps(side):
    return trained(side, side.wrap(models.mlp(), bucket_cap_mb_list=[0.001, 0.004]), steps=FEW)


def odd_shapes(side):
    return trained(side, side.wrap(models.Odd()), steps=FEW)


def different_beginnings(side):
    """Parameters and buffers begin as those of rank 0."""
    torch.manual_seed(side.rank)
    model = models.Cnn()
    model.first_norm.running_mean.fill_(side.rank)
    return outcome(side.wrap(model))


def without_zeroing(side):
    """Gradients are cleared by zeros, not by None."""
    return trained(side, side.wrap(models.mlp(), gradient_as_bucket_view=True), set_to_none=False)


def train_images(side, model, optimiser, step):
    for _, x, y in each_step(side, optimiser, 1, step, pictures):
        functional.cross_entropy(model(x), y).backward()


def images(side, model, steps=STEPS, evaluate=False):
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)
    seen = []
    for step in range(steps):
        train_images(side, model, optimiser, step)
        if evaluate and step % 10 == 9:
            x, _ = pictures(side, step)
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
    for step, x, y in each_step(side, optimiser, set_to_none=set_to_none):
        functional.cross_entropy(model(x, choose(step)), y).backward()
        unset.append([param.grad is None for param in model.parameters()])
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
    optimiser = sgd(model, momentum=0.9)
    for step, x, y in each_step(side, optimiser):
        out = model(x)
        functional.cross_entropy(out["one"] if step % 2 else out["rest"][0], y).backward()
    return outcome(model, optimiser)


def mixed_types(side):
    model = side.wrap(models.Mixed())
    return trained(side, model, sgd(model, lr=0.05))


def complex_numbers(side):
    model = side.wrap(models.Complex())
    return trained(side, model, sgd(model, lr=0.05))


def accumulation(side):
    """Three passes within no_sync(), the fourth after it."""
    model, optimiser = wrapped(side, models.mlp())
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
    optimiser = sgd(model, lr=0.01)
    for step in range(STEPS):
        x, y = batch(side, step)
        functional.cross_entropy(model(x), y).backward()
        if step % 3 == 2:
            optimiser.step()
            optimiser.zero_grad(set_to_none=step % 2 == 0)
    return outcome(model, optimiser)


def accumulation_with_unused(side):
    """A branch that was used only within no_sync() counts as used."""
    model, optimiser = wrapped(side, models.Branches(), find_unused_parameters=True)
    unset = []
    for step in range(STEPS):
        x, y = batch(side, step)
        with model.no_sync() if step % 2 == 0 else contextlib.nullcontext():
            functional.cross_entropy(model(x, [(step + side.rank) % 4]), y).backward()
        if step % 2:
            unset.append([param.grad is None for param in model.parameters()])
            optimiser.step()
            optimiser.zero_grad()
    return outcome(model, optimiser, unset=unset)


def uneven(side, more=7, **options):
    model, optimiser = wrapped(side, models.Cnn())
    steps = 10 + more * ((side.rank + 1) % side.world)
    with model.join(**options):
        for step, x, y in each_step(side, optimiser, steps, make=pictures):
            with model.no_sync() if step % 3 == 0 else contextlib.nullcontext():
                functional.cross_entropy(model(x), y).backward()
    result = outcome(model)
    del result["gradients"]  # those of a rank that has finished may differ
    return result


def uneven_inputs(side):
    return uneven(side)


def even_inputs(side):
    """All ranks are among the last that train: the model of the highest one stays."""
    return uneven(side, more=0)


def uneven_by_live(side):
    return uneven(side, divide_by_initial_world_size=False)


def uneven_thrown(side):
    with contextlib.suppress(RuntimeError):
        uneven(side, throw_on_early_termination=True)
        return {"thrown": False}
    return {"thrown": True}


def checkpoints(side):
    inner = models.Checkpointed(reentrant=False, times=2)
    return trained(side, side.wrap(inner, find_unused_parameters=True))


def checkpoints_reentrant(side):
    class Once(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = models.Checkpointed(reentrant=True, times=1)
            del self.inner.unused

        def forward(self, x):
            return self.inner(x)

    return trained(side, side.wrap(Once()))


def static_graph(side):
    """A block in three reentrant checkpoints, and a parameter that is never used."""
    return trained(side, side.wrap(models.Checkpointed(reentrant=True, times=3), static_graph=True))


def clipping(side):
    return trained(side, side.wrap(models.mlp()), clip=0.05)


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
            loss = functional.cross_entropy(models.usual(model(x)), y)
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
    model, optimiser = wrapped(side, models.mlp())
    for step, x, y in each_step(side, optimiser):
        more, target = batch(side, step + 5000)
        (functional.cross_entropy(model(x), y) + functional.cross_entropy(model(more), target)).backward()
    return outcome(model, optimiser)


def two_backwards(side):
    """Each part of the model gets its gradients in a backward pass of its own."""
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = models.mlp(), models.mlp()

        def forward(self, x):
            return self.one(x), self.other(x)

    model, optimiser = wrapped(side, Two())
    for _, x, y in each_step(side, optimiser):
        one, other = model(x)
        functional.cross_entropy(one, y).backward()
        functional.cross_entropy(other, y).backward()
    return outcome(model, optimiser)


def ignored(side):
    """Parameters and buffers that are left alone differ between ranks."""
    torch.manual_seed(side.rank)
    inner = models.Cnn()
    names = ["second.weight", "second_norm.running_mean"]
    side.kind._set_params_and_buffers_to_ignore_for_model(inner, names)
    return images(side, side.wrap(inner))


def shared(side):
    """Two modules have one parameter."""
    inner = models.mlp((16, 16, 16, 10))
    inner[2].weight = inner[0].weight
    return trained(side, side.wrap(inner))


def frozen(side):
    inner = models.mlp()
    inner[0].requires_grad_(False)
    return trained(side, side.wrap(inner))


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
    optimiser = sgd(model)
    train(side, model, optimiser)
    return outcome(model, optimiser, seen=seen)


def optimiser_in_backward(side, ignored_names=(), wrapped_first=False):
    """PyTorch's DDP cannot do this on a CPU: there the optimiser steps after backward()."""
    inner = models.mlp()
    side.kind._set_params_and_buffers_to_ignore_for_model(inner, ignored_names)
    if side.name == "ddp":
        optimiser = torch.optim.SGD(inner.parameters(), lr=0.1, momentum=0.9)
        train(side, side.wrap(inner), optimiser)
        return {"state": inner.state_dict()}
    from torch.distributed.optim import _apply_optimizer_in_backward
    model = side.wrap(inner) if wrapped_first else None
    _apply_optimizer_in_backward(torch.optim.SGD, inner.parameters(), {"lr": 0.1, "momentum": 0.9})
    model = model or side.wrap(inner)
    for step in range(STEPS):
        x, y = batch(side, step)
        functional.cross_entropy(model(x), y).backward()
        assert all(param.grad is None for param in model.parameters())
    return {"state": inner.state_dict()}


def optimiser_in_backward_later(side):
    """Made when the model was wrapped; a parameter is left alone, and steps by gradients of its own rank."""
    return optimiser_in_backward(side, ["2.weight"], wrapped_first=True)


def compiled(side, **options):
    torch._dynamo.reset()
    model = torch.compile(side.wrap(models.mlp(), **options), backend="aot_eager")
    return trained(side, model)


def compiled_static(side):
    return compiled(side, static_graph=True)


def grad_replaced(side):
    """The script puts another tensor in the place of a gradient."""
    model, optimiser = wrapped(side, models.mlp())
    for step in range(STEPS):
        x, y = batch(side, step)
        functional.cross_entropy(model(x), y).backward()
        for param in model.parameters():
            param.grad = param.grad * 0.5
        optimiser.step()
        if step % 3 == 0:
            optimiser.zero_grad()
    return outcome(model, optimiser)


def evaluation_on_one(side):
    """Before and between steps, on one rank alone."""
    model, optimiser = wrapped(side, models.mlp())
    x, y = batch(side, 1)
    seen = [model.eval()(x).detach() for _ in range(3)] if side.rank == 0 else []
    for step in range(4):
        optimiser.zero_grad()
        functional.cross_entropy(model.train()(x), y).backward()
        optimiser.step()
        with torch.no_grad():
            seen += [model.eval()(x) for _ in range(3 * (side.rank == 0))]
    return outcome(model, optimiser, seen=seen)


def ignored_outputs(side):
    """Forward passes without a backward pass."""
    results = {}
    for name, inner, options in (("mlp", models.mlp(), {}),
                                 ("branches", models.Branches(), {"find_unused_parameters": True})):
        model, optimiser = wrapped(side, inner, **options)
        for step in range(FEW):
            x, y = batch(side, step)
            out = model(x, [step % 4]) if options else model(x)
            if step < 3 or step % 4 == 0:
                continue
            optimiser.zero_grad()
            functional.cross_entropy(out, y).backward()
            optimiser.step()
        results[name] = outcome(model, optimiser)
    return results


def leaves(thing):
    """The tensors in a nested output."""
    if isinstance(thing, models.Answer):
        thing = [thing.first, thing.rest]
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, torch.Tensor):
        return [thing]
    return [leaf for each in thing or () for leaf in leaves(each)]


def nested_outputs(side):
    results = {}
    for kind, options in itertools.product(("tuple", "list", "dict", "dataclass", "part"), (
            {"static_graph": True}, {"find_unused_parameters": True})):
        if kind in ("dataclass", "part") and "static_graph" in options:
            continue  # DDP does not average them
        model, optimiser = wrapped(side, models.Nested(), **options)
        train(side, model, optimiser, steps=4,
              forward=lambda model, x, _, kind=kind: sum(leaves(model(x, kind))))
        results[kind + next(iter(options))] = outcome(model, optimiser)
    return results


def outputs_without_graph(side):
    """Outputs without a graph, one of which is an input of the next step."""
    results = {}
    for found, static in itertools.product((False, True), repeat=2):
        model, optimiser = wrapped(side, models.Ungraphed(), find_unused_parameters=found,
                                   static_graph=static)
        state, graphs = None, []
        for _, x, y in each_step(side, optimiser, 4):
            bare, out, state = model(x, state=state)
            graphs.append((bare.requires_grad, state["state"].grad_fn is None))
            functional.cross_entropy(bare + out, y).backward()
        results[f"{found} {static}"] = outcome(model, optimiser, graphs=graphs)
    return results


def kinds_of_inputs(side):
    """Inputs reach the module as they are given."""
    class Kinds(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(16, 10)
            self.seen = []

        def forward(self, *things, **named):
            things = [*things, *named.values()]
            self.seen += [type(each).__name__ for each in things]
            return self.head(sum(leaf for each in things for leaf in leaves(each)))

    pair = collections.namedtuple("pair", "a b")
    model, optimiser = wrapped(side, Kinds())
    x, y = batch(side, 0)
    for inputs, named in (([x], {}), ([[x, x]], {}), ([(x, x)], {}), ([pair(x, x)], {}),
                          ([{"a": x}], {"more": [x]}), ([models.Answer(x, {"b": x})], {})):
        optimiser.zero_grad()
        functional.cross_entropy(model(*inputs, **named), y).backward()
        optimiser.step()
    return outcome(model, optimiser, seen=model.module.seen)


def unused_not_cleared(side):
    """Gradients stay from step to step, also those of branches that no rank uses any more."""
    model = side.wrap(models.Branches(), find_unused_parameters=True)
    optimiser = sgd(model, lr=0.01)
    seen = []
    for step in range(FEW):
        x, y = batch(side, step)
        used = [step // 2 * (1 + side.rank * (step % 3 == 0)) % 4]
        functional.cross_entropy(model(x, used), y).backward()
        seen.append([None if param.grad is None else param.grad.clone() for param in model.parameters()])
        optimiser.step()
    return outcome(model, optimiser, seen=seen)


def unused_shared(side):
    return {str(static): trained(side, side.wrap(models.Unused(), find_unused_parameters=True,
                                                 static_graph=static), steps=6) for static in (False, True)}


def undefined_gradients(side):
    """A backward pass that carries nothing."""
    model, optimiser = wrapped(side, models.mlp(), find_unused_parameters=True)
    x, _ = batch(side, 0)
    torch._C._functions.UndefinedGrad()(model(x).sum()).backward()
    unset = [param.grad is None for param in model.parameters()]
    train(side, model, optimiser, steps=4)
    return outcome(model, optimiser, unset=unset)


def uneven_from_nothing(side):
    """One rank has no inputs at all, or less; some branches are used by others only."""
    results = {}
    for name, inner, options in (("mlp", models.mlp(), {}),
                                 ("branches", models.Branches(), {"find_unused_parameters": True})):
        model, optimiser = wrapped(side, inner, **options)
        for mine in (0 if side.rank == 0 else 6, 4 if side.rank == 0 else 1):
            with model.join():
                train(side, model, optimiser, steps=mine, forward=lambda model, x, step, options=options: (
                    model(x, [(step + side.rank) % 4]) if options else model(x)))
        results[name] = {"state": outcome(model)["state"]}
    return results


def join_disabled(side):
    model, optimiser = wrapped(side, models.mlp())
    with model.join(enable=False):
        train(side, model, optimiser, steps=6)
    return outcome(model, optimiser)


def join_that_raises(side):
    """join() passes on the exception that the module raises."""
    model = side.wrap(models.mlp())
    model.module[0].register_forward_hook(lambda *_: {}["nothing"])
    try:
        with model.join():
            model(batch(side, 0)[0])
    except KeyError as error:
        return {"raised": error.args}
    return {"raised": None}


def buffers_replaced(side):
    """Rank 0 puts another tensor in the place of a buffer; the others get its values."""
    torch.manual_seed(side.rank)
    model, optimiser = wrapped(side, models.Buffered())
    seen = []
    for _, x, y in each_step(side, optimiser, 4):
        if side.rank == 0:
            model.module.shift = model.module.shift + 1
        functional.cross_entropy(model(x), y).backward()
        seen.append(model.module.shift.clone())
    return outcome(model, optimiser, seen=seen)


def buffers_at_first_only(side):
    """forward_sync_buffers=False: equal when the model is wrapped, each rank's own after that, also when it
    has joined."""
    torch.manual_seed(side.rank)
    model, optimiser = wrapped(side, models.Buffered(), forward_sync_buffers=False)
    seen = [model.module.shift.clone()]
    model.module.shift += side.rank
    train(side, model, optimiser, steps=3)
    seen.append(model.module.shift.clone())
    with model.join():
        train(side, model, optimiser, steps=1 + side.rank)
    return {"state": outcome(model)["state"], "seen": seen, "forward": model.forward_sync_buffers}


def static_two_forwards(side):
    model, optimiser = wrapped(side, models.mlp(), static_graph=True)
    for step, x, y in each_step(side, optimiser, FEW):
        more, target = batch(side, step + 5000)
        (functional.cross_entropy(model(x), y) + functional.cross_entropy(model(more), target)).backward()
    return outcome(model, optimiser)


def static_unused_by_some(side):
    """Each rank uses a branch of its own; no rank uses the last branch."""
    model = side.wrap(models.Branches(side.world + 1), static_graph=True, find_unused_parameters=True)
    return trained(side, model, steps=FEW, forward=lambda model, x, _: model(x, [side.rank]))


def static_checkpoints(side):
    """Reentrant checkpoints and the others, also around blocks that share a weight with another layer."""
    return {name: trained(side, side.wrap(inner, static_graph=True), steps=FEW) for name, inner in (
        ("once", models.Checkpointed(True, 1)), ("twice", models.Checkpointed(False, 2)),
        ("shared", models.Shared(2, True)), ("both", models.Shared(2, False)))}


def checkpoints_in_turn(side):
    """Each pass uses one of two layers."""
    return {str(shared): trained(side, side.wrap(models.Turns(shared), find_unused_parameters=True), steps=6,
                                 set_to_none=shared) for shared in (False, True)}


def checkpoint_around(side):
    """The wrapped model itself is in a checkpoint: its forward pass runs again within the backward pass."""
    results = {}
    for reentrant, static in itertools.product((False, True), repeat=2):
        inner = models.mlp((16, 16, 16, 10))
        inner[2].weight = inner[0].weight
        model, optimiser = wrapped(side, inner, static_graph=static)
        train(side, model, optimiser, steps=6, forward=lambda model, x, _, reentrant=reentrant: checkpoint(
            model, x.requires_grad_(), use_reentrant=reentrant))
        results[f"{reentrant} {static}"] = outcome(model, optimiser)
    return results


def hooks_of_modules(side):
    """They change inputs, outputs, and gradients on their way."""
    inner = models.mlp()
    inner[0].register_forward_pre_hook(lambda _, inputs: (inputs[0].relu(),))
    inner[0].register_forward_hook(lambda _, inputs, out: functional.gelu(out))
    inner[2].register_full_backward_hook(lambda _, grads, more: tuple(each * 0.5 for each in grads))
    return trained(side, side.wrap(inner))


def hook_of_the_wrapper(side):
    """allreduce_hook is what there is without a hook."""
    model = side.wrap(models.mlp())
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    return trained(side, model)


def graph_of_gradients(side):
    """backward(create_graph=True): the averages. PyTorch's DDP can do this for one parameter only, so there
    it is a backward pass as usual."""
    model, optimiser = wrapped(side, models.mlp())
    for _, x, y in each_step(side, optimiser, 6):
        functional.cross_entropy(model(x), y).backward(create_graph=side.name != "ddp")
    return outcome(model, optimiser)


def functional_call(side):
    """Other tensors in the place of parameters: they get the gradients, and those of this rank alone."""
    torch.manual_seed(3)
    model = side.wrap(models.Buffered())
    x, y = batch(side, 0)
    given = {name: torch.ones_like(value, requires_grad=name != "module.shift")
             for name, value in model.state_dict().items()}
    functional.cross_entropy(torch.func.functional_call(model, given, x), y).backward()
    return outcome(model, given={name: value.grad for name, value in given.items()})


def saved_and_loaded(side):
    """In the middle of a training, into another wrapped model and into one that is not wrapped."""
    def steps(model, begin):
        optimiser = sgd(model)
        for _, x, y in each_step(side, optimiser, 3, begin):
            functional.cross_entropy(model(x), y).backward()

    model, other, bare = side.wrap(models.mlp()), side.wrap(models.mlp()), models.mlp()
    steps(model, 0)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file)
    other.load_state_dict(state)
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    bare.load_state_dict(state)
    for each in (model, other, bare):
        steps(each, 3)
    same = [torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters())]
    return {"model": outcome(model), "other": outcome(other), "bare": outcome(bare), "same": same}


def ignored_replaced(side):
    """An ignored layer has another shape on each rank, and the script replaces it after the model was
    wrapped."""
    results = {}
    for static in (False, True):
        inner = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 3 + side.rank))
        inner[1].register_buffer("memory", torch.zeros(5 + side.rank))
        side.kind._set_params_and_buffers_to_ignore_for_model(inner, ["1.weight", "1.bias", "1.memory"])
        model = side.wrap(inner, static_graph=static)
        torch.manual_seed(side.rank)
        model.module[1] = nn.Linear(16, 10)
        results[str(static)] = trained(side, model, steps=6)
    return results


def wrapped_again(side):
    """When the first wrapper is gone, the model can have another one."""
    inner = models.mlp()
    for _ in range(2):
        model = side.wrap(inner)
        optimiser = sgd(model, momentum=0.9)
        train(side, model, optimiser, steps=6)
        result = outcome(inner, optimiser)
        side.drop(model)
        del model
    return result


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
    """A parameter gets no gradient, although the model was wrapped without find_unused_parameters."""
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


def raises_hook(side):
    """register_comm_hook() refuses an object that is no hook, and a second hook."""
    model, made = side.wrap(models.mlp()), []
    for hook in (1, default_hooks.allreduce_hook, default_hooks.allreduce_hook):
        try:
            model.register_comm_hook(None, hook)
        except (RuntimeError, TypeError) as error:
            made.append(next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"))
        else:
            made.append(None)
    train(side, model, sgd(model), steps=2)
    return outcome(model, made=made)


def raises_static_late(side):
    """The graph cannot be said to be static once steps have been made."""
    model = side.wrap(models.mlp())
    train(side, model, sgd(model), steps=2)
    try:
        model._set_static_graph()
    except RuntimeError:
        return {"made": "RuntimeError"}
    return {"made": None}


def raises_static_used(side):
    """A branch that was not used in the first step is used in another one."""
    return raised(side, lambda: side.wrap(models.Branches(), static_graph=True),
                  lambda model, x, step: model(x, [0, 1] if step == 2 else [0]))


def raises_static_unused(side):
    """A branch that was used in the first step is not used in another one."""
    return raised(side, lambda: side.wrap(models.Branches(), static_graph=True),
                  lambda model, x, step: model(x, [0] if step == 2 else [0, 1, 2, 3]))
