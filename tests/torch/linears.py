# SPDX-License-Identifier: Apache-2.0
"""Linear layers, whose gradients are made in shared memory, and all that may be done with them: each case
with PyTorch's DDP first, then with gradsync.

    linears.py FOLDER CASE...
"""
import concurrent.futures
import contextlib
import copy
import io
import sys
import types

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

import worker
from cases import batch, each_step, outcome
from gradsync.torch.direct import Home

STEPS = 6
#: Addresses of the gradients that were made in shared memory.
given = []


def give(home):
    made = do_give(home)
    if made is not None:
        given.append(made.data_ptr())
    return made


do_give, Home.give = Home.give, give


class Net(nn.Module):
    """Two layers, and something in between."""

    def __init__(self, between=torch.tanh, bias=True):
        super().__init__()
        self.first, self.last = nn.Linear(16, 12, bias=bias), nn.Linear(12, 10, bias=bias)
        self.between = between

    def forward(self, x):
        return self.last(self.between(self.first(x)))


def train(side, model, steps=STEPS, loss_of=None, params=None, **more):
    """`loss_of`: of the model and its input and targets."""
    optimiser = torch.optim.SGD(model.parameters() if params is None else params, lr=0.1, momentum=0.9)
    before, losses = len(given), []
    for _, x, y in each_step(side, optimiser, steps):
        loss = functional.cross_entropy(model(x), y) if loss_of is None else loss_of(model, x, y)
        loss.backward()
        losses.append(loss.detach())
        if side.name == "gradsync":
            check_plain(model.module)
    made = len(given) - before if side.name == "gradsync" else None
    return outcome(model, optimiser, losses=losses, **more), made


def check_plain(module):
    """After a step the layers have no forward() but their own."""
    for each in module.modules():
        assert "forward" not in each.__dict__ or not type(each.forward).__module__.startswith("gradsync")


def made_directly(result, at_least):
    """The result, if that many gradients were made in shared memory; with DDP there is nothing to look at."""
    outcome_of, made = result
    assert made is None or made >= at_least, made
    return outcome_of


def made_elsewhere(result):
    outcome_of, made = result
    assert not made, made
    return outcome_of


def usual(side):
    """And `.grad` is where the daemon has it, from the moment in which autograd has made it."""
    net, seen = Net(), []
    for layer in (net.first, net.last):
        layer.weight.register_post_accumulate_grad_hook(lambda param: seen.append(param.grad.data_ptr()))
    before = len(given)
    result = made_directly(train(side, side.wrap(net)), 2 * STEPS)
    assert side.name == "ddp" or seen == given[before:]
    return result


def without_bias(side):
    return made_directly(train(side, side.wrap(Net(bias=False))), 2 * STEPS)


def changed_in_place(side):
    """A layer changes the output of the layer before it in place."""
    return made_directly(train(side, side.wrap(Net(nn.ReLU(inplace=True)))), 2 * STEPS)


def used_twice(side):
    """The second gradient of a pass is added to the first."""
    class Twice(Net):
        def forward(self, x):
            x = self.first(self.first(x).tanh() @ self.turn)
            return self.last(x.tanh())

    model = Twice()
    model.register_buffer("turn", torch.linspace(-1, 1, 12 * 16).view(12, 16))
    return made_directly(train(side, side.wrap(model)), STEPS)


def within_backward(side, run):
    """In the middle of a backward pass, when a weight has one of the two gradients that it gets, `run` has
    another pass accumulate to it."""
    class Twice(Net):
        hook = None

        def forward(self, x):
            x = self.first(x).tanh() @ self.turn
            if self.hook is not None:
                x.register_hook(self.hook)
            return self.last(self.first(x).tanh())

    model = Twice()
    model.register_buffer("turn", torch.linspace(-1, 1, 12 * 16).view(12, 16))

    def loss_of(model, x, y):
        def another():
            with torch.enable_grad():
                functional.cross_entropy(model(x + 1), y).backward()

        def hook(_grad):
            model.module.hook = None
            run(another)

        with model.no_sync():
            model.module.hook = hook
            functional.cross_entropy(model(x), y).backward()
        return functional.cross_entropy(model(x), y)

    return made_directly(train(side, side.wrap(model), loss_of=loss_of), 2 * STEPS)


def pass_of_a_thread(side):
    """Both are within no_sync(): their gradients are added up."""
    def run(another):
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            thread.submit(another).result()

    return within_backward(side, run)


def pass_within_a_pass(side):
    return within_backward(side, lambda another: another())


def checkpoint_within_a_pass(side):
    """A weight is used before, in and after a reentrant checkpoint, whose pass runs within the other one."""
    class Within(Net):
        def forward(self, x):
            def block(x):
                return self.first(x).tanh() @ self.turn

            x = checkpoint(block, block(x), use_reentrant=True)
            return self.last(self.first(x).tanh())

    model = Within()
    model.register_buffer("turn", torch.linspace(-1, 1, 12 * 16).view(12, 16))
    return made_directly(train(side, side.wrap(model, static_graph=True)), 2 * STEPS)


def shared_weight(side):
    """Two layers have one weight."""
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.last = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 10)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.last(self.second(self.first(x).tanh()).tanh())

    return made_directly(train(side, side.wrap(Shared())), STEPS)


def shapes(side):
    """Inputs of one to four dimensions, some that do not lie in order, and empty ones."""
    def loss_of(model, x, y):
        module = model.module.first
        model.module.between = lambda out: torch.tanh(
            out + module(x[0]) + module(x.view(2, 4, 16)).mean((0, 1))
            + module(x.view(2, 2, 2, 16)).mean((0, 1, 2)) + module(x.t().contiguous().t())
            + module(x[:, None].expand(8, 3, 16)).sum(1)
            + module(x[:0]).sum(0) + module(x.view(1, 8, 16))[0])
        return functional.cross_entropy(model(x), y)

    return made_directly(train(side, side.wrap(Net()), loss_of=loss_of), STEPS)


def wrong_width(side):
    """Errors are those of functional.linear()."""
    def loss_of(model, x, y):
        told.append([raised(functional.linear, each, model.module.last.weight, model.module.last.bias)
                     for each in wrong])
        out = model(x)
        assert [raised(model.module.last, each) for each in wrong] == told[-1]
        return functional.cross_entropy(out, y)

    told, wrong = [], [torch.zeros(shape) for shape in ((2, 4, 16), (3, 12, 5), (12, 5), (4, 3, 4), (5, 6))]
    return made_directly(train(side, side.wrap(Net()), loss_of=loss_of, told=told), 2 * STEPS)


def raised(function, *arguments):
    """The text of the RuntimeError that a function raises."""
    try:
        function(*arguments)
    except RuntimeError as error:
        return str(error)
    raise AssertionError("nothing was raised")


def sequences(side):
    """Inputs of three dimensions only."""
    def loss_of(model, x, y):
        return functional.cross_entropy(model(x.view(2, 4, 16)).flatten(0, 1), y)

    return made_directly(train(side, side.wrap(Net(nn.ReLU(inplace=True))), loss_of=loss_of), 2 * STEPS)


def gradients_of_the_caller(side):
    """torch.autograd.grad() gives gradients to its caller, who keeps them over later steps."""
    kept = []

    def loss_of(model, x, y):
        alone = functional.cross_entropy(model.module(x), y)
        found = torch.autograd.grad(alone, [model.module.first.weight, model.module.last.weight])
        kept.append((found, [each.clone() for each in found]))
        return functional.cross_entropy(model(x), y)

    result = made_directly(train(side, side.wrap(Net()), loss_of=loss_of), 2 * STEPS)
    for found, copied in kept:
        assert all(torch.equal(*pair) for pair in zip(found, copied))
    return result | {"kept": [copied for _, copied in kept]}


def gradients_of_the_wrapper(side):
    """The same, of the loss that is averaged afterwards."""
    kept = []

    def loss_of(model, x, y):
        loss = functional.cross_entropy(model(x), y)
        found = torch.autograd.grad(loss, [model.module.first.weight, model.module.last.weight],
                                    retain_graph=True)
        kept.append((found, [each.clone() for each in found]))
        return loss

    result = made_directly(train(side, side.wrap(Net()), loss_of=loss_of), 2 * STEPS)
    for found, copied in kept:
        assert all(torch.equal(*pair) for pair in zip(found, copied))
    return result | {"kept": [copied for _, copied in kept]}


def graph_kept(side):
    """Two backward passes over one graph: the second one adds."""
    def loss_of(model, x, y):
        with model.no_sync():
            loss = functional.cross_entropy(model(x), y)
            loss.backward(retain_graph=True)
            loss.backward()
        return functional.cross_entropy(model(x), y)

    return made_directly(train(side, side.wrap(Net()), loss_of=loss_of), 2 * STEPS)


def hooks_of_tensors(side):
    """A hook that changes the gradient, and one that keeps it."""
    kept = []
    net = Net()
    net.first.weight.register_hook(lambda grad: 2 * grad)
    net.last.weight.register_hook(lambda grad: kept.append((grad, grad.clone())))
    result = made_elsewhere(train(side, side.wrap(net)))
    assert all(torch.equal(*pair) for pair in kept)
    return result | {"kept": [copied for _, copied in kept]}


def hooks_of_layers(side):
    seen = []
    net = Net()
    net.first.register_forward_hook(lambda _layer, _given, out: out * 2)
    net.first.register_forward_pre_hook(lambda _layer, given: (given[0] + 1,))
    net.last.register_full_backward_hook(lambda _layer, into, out: seen.append((into[0].clone(),
                                                                                out[0].clone())))
    return made_directly(train(side, side.wrap(net)), 2 * STEPS) | {"seen": seen}


def old_hooks(side):
    """register_backward_hook() gives a hook the gradients of all that the last operation has used, the
    weight's, too, and takes others: on a layer, on a module or a wrapper that ends with it, or on all."""
    results = []
    for where in ("layer", "module", "wrapper", "all"):
        seen = []

        def double(_layer, into, out):
            seen.append([None if each is None else each.clone() for each in (*into, *out)])
            return tuple(None if each is None else 2 * each for each in into)

        net = Net()
        model = side.wrap(net)
        hooked = {"layer": net.first, "module": net, "wrapper": model}.get(where)
        handle = nn.modules.module.register_module_backward_hook(double) if hooked is None else \
            hooked.register_backward_hook(double)
        results.append(made_directly(train(side, model), STEPS))
        handle.remove()
        nn.modules.module._global_is_full_backward_hook = None
        results.append(made_directly(train(side, side.wrap(Net())), 2 * STEPS) | {"seen": seen})
    return {"all": results}


def forward_of_the_user(side):
    """A layer that has a forward() of its own keeps it; so do classes that are derived."""
    class Derived(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 1

    net = Net()
    net.first = Derived(16, 12)
    mine = net.last.forward = types.MethodType(lambda self, x: 3 * nn.Linear.forward(self, x), net.last)
    result = made_elsewhere(train(side, side.wrap(net)))
    assert net.last.__dict__["forward"] is mine
    return result


def forward_put_around(side):
    """Within a step the script puts a function around a layer's forward(). The forward() that it kept acts
    like the layer's own between steps."""
    net = Net()
    model = side.wrap(net)

    def loss_of(model, x, y):
        out = model(x)
        if "around" not in found:
            found["around"] = net.last.forward
            net.last.forward = lambda x: 2 * found["around"](x)
        return functional.cross_entropy(out, y)

    found = {}
    first = train(side, model, loss_of=loss_of)
    before = len(given)
    net.zero_grad()
    x, y = batch(side, 0)
    with model.no_sync():
        functional.cross_entropy(net(x), y).backward()
    assert len(given) == before, "a pass of the module alone"
    return {"first": first[0], "alone": [param.grad.clone() for param in net.parameters()]}


def compiled_later(side):
    """The module is compiled after steps of the wrapper: once, as without gradients in shared memory."""
    counted = []

    def count(graph, _inputs):
        counted.append(graph)
        return graph.forward

    torch._dynamo.reset()
    model = side.wrap(Net())
    first = made_directly(train(side, model, 3), 2 * 3)
    model.module.compile(backend=count)
    second = made_elsewhere(train(side, model, 3))
    return {"first": first, "second": second, "compiled": len(counted)}


def pruned(side):
    net = Net()
    prune.l1_unstructured(net.first, "weight", 0.3)
    return made_directly(train(side, side.wrap(net)), STEPS)


def frozen_weight(side):
    net = Net()
    net.first.weight.requires_grad_(False)
    return made_directly(train(side, side.wrap(net)), STEPS)


def autocast(side):
    """Weights are converted on their way."""
    def loss_of(model, x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return functional.cross_entropy(model(x), y)

    return made_elsewhere(train(side, side.wrap(Net()), loss_of=loss_of))


def saved_elsewhere(side):
    """Hooks see each tensor that is kept for the backward pass."""
    def loss_of(model, x, y):
        with torch.autograd.graph.saved_tensors_hooks(lambda each: each.clone(), lambda each: each):
            return functional.cross_entropy(model(x), y)

    return made_directly(train(side, side.wrap(Net()), loss_of=loss_of), 2 * STEPS)


def functions_of_functions(side):
    """torch.vmap() and derivatives in forward direction, within a forward pass."""
    class Mapped(Net):
        def forward(self, x):
            mapped = torch.vmap(self.first)(x)
            with forward_ad.dual_level():
                turned = self.first(forward_ad.make_dual(x, torch.ones_like(x)))
                along = forward_ad.unpack_dual(turned).tangent
            return self.last((mapped + along).tanh())

    return made_directly(train(side, side.wrap(Mapped())), STEPS)


def compiled_within(side):
    """A layer, and a function that forward() calls."""
    net = Net()
    net.first = torch.compile(net.first, backend="eager")
    first = train(side, side.wrap(net), 3)
    net = Net()
    inner = net.first
    net.between = torch.compile(lambda x: inner(functional.pad(x, (0, 4))).tanh(), backend="eager")
    second = train(side, side.wrap(net), 3)
    return {"first": made_elsewhere(first), "second": second[0]}


def checkpoints_after_the_step(side):
    """Blocks that are computed again when the step is over, and their layers have their own forward()."""
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Net(bias=False), Net()])
            self.between = nn.Linear(10, 16)

        def forward(self, x):
            x = checkpoint(self.blocks[0], x.view(2, 4, 16), use_reentrant=False).tanh()
            return checkpoint(self.blocks[1], self.between(x).view(-1, 16), use_reentrant=False)

    model = side.wrap(Checkpointed())
    kept = []
    for step in range(STEPS):
        x, y = batch(side, step)
        x.requires_grad_(step % 2 == 0)
        model.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward(retain_graph=True)
        if side.name == "gradsync":
            check_plain(model.module)
        kept.append(torch.autograd.grad(loss, list(model.module.parameters())))
    return outcome(model, kept=kept)


def doubled(side):
    """Copies that are made between forward and backward are modules like any others."""
    copies = []

    def loss_of(model, x, y):
        out = model(x)
        module = model.module
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        copies[:] = [copy.deepcopy(module), torch.load(file, weights_only=False)]
        for each in copies:
            assert torch.equal(each(x), out)
            each.first.weight.data.zero_()
            assert not torch.equal(each(x), out), "it has weights of its own"
            assert torch.equal(copy.deepcopy(each)(x), each(x))
        return functional.cross_entropy(out, y)

    return made_directly(train(side, side.wrap(Net(nn.Tanh())), loss_of=loss_of), 2 * STEPS)


def copies_wrapped(side):
    """Copies that were made between forward and backward are wrapped, and forward() is copied alone."""
    model = side.wrap(Net(nn.Tanh()))
    x, y = batch(side, 0)
    loss = functional.cross_entropy(model(x), y)
    alone = copy.deepcopy(model.module.first.forward)
    assert torch.equal(alone(x), model.module.first(x))
    file = io.BytesIO()
    torch.save(model.module, file)
    file.seek(0)
    copies = [copy.deepcopy(model.module), torch.load(file, weights_only=False)]
    loss.backward()
    model.zero_grad()
    assert torch.equal(alone(x), model.module.first(x))
    return {str(i): made_directly(train(side, side.wrap(each)), 2 * STEPS)
            for i, each in enumerate(copies)}


def scripted(side):
    """The module between steps."""
    net = Net(nn.Tanh())
    result = made_directly(train(side, side.wrap(net)), 2 * STEPS)
    x, _ = batch(side, 0)
    assert torch.equal(torch.jit.script(net)(x), net(x))
    return result


def failed_backward(side):
    """Passes of the module alone that fail in the middle leave nothing behind."""
    class Failing(Exception):
        pass

    def fail(_grad):
        raise Failing

    def loss_of(model, x, y):
        with model.no_sync():
            out = model.module.first(x)
            out.register_hook(fail)
            with contextlib.suppress(Failing):
                model.module.last(out.tanh()).sum().backward()
        model.zero_grad()
        return functional.cross_entropy(model(x), y)

    return made_directly(train(side, side.wrap(Net()), loss_of=loss_of), 2 * STEPS)


def graph_of_graphs(side):
    """Backward passes that can be differentiated themselves."""
    def loss_of(model, x, y):
        loss = functional.cross_entropy(model(x), y)
        found = torch.autograd.grad(loss, list(model.module.parameters()), create_graph=True)
        return loss + sum(each.square().sum() for each in found)

    return train(side, side.wrap(Net()), loss_of=loss_of)[0]


if __name__ == "__main__":
    worker.cases = sys.modules[__name__]
    worker.main(*sys.argv[1:])
