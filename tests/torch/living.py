# SPDX-License-Identifier: Apache-2.0
"""One rank that wraps, forks, leaves and ends as scripts do. Prints what it has seen.

    living.py CASE [FOLDER]
"""
import os
import pathlib
import signal
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional

import gradsync
import gradsync.torch
import models
import other
from other import RANK, WORLD, batch, same_everywhere

wrap = gradsync.torch.DistributedDataParallel


case = ""
model = None


def say(**more):
    other.say(case=case, **more)


def work(model, step=0, rank=RANK):
    x, y = batch(step, rank)
    return functional.cross_entropy(model(x), y)


def raised(function, *arguments):
    """What it raises."""
    try:
        function(*arguments)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return [None, ""]


def wrapped_again():
    """The old wrapper is gone, the graph of a pass through it is not."""
    inner = models.mlp()
    model = wrap(inner)
    work(model).backward()
    loss = work(model)
    model = wrap(inner)
    work(model).backward()
    inner.zero_grad()
    loss.backward()
    first = wrap(inner)
    again = wrap(inner)
    say(grads=all(param.grad is not None for param in inner.parameters()),
        superseded=raised(work, first), same=raised(work, again))


def many():
    """Wrappers come and go: what each had is given back."""
    def count():
        maps = pathlib.Path("/proc/self/maps").read_text()
        return [maps.count("memfd:python-gradients"), len(os.listdir("/proc/self/fd"))]

    model = wrap(models.mlp())
    seen = []
    for _ in range(20):
        model = wrap(models.mlp())
        work(model).backward()
        model.zero_grad()
        seen.append(count())
    say(seen=seen, plans=len(model.job._plans), memories=len(model.job._memories))


def left():
    """After Job.leave(): a backward pass that had begun, forward passes, the module alone."""
    inner = models.mlp()
    model = wrap(inner)
    work(model).backward()
    loss = work(model, 1)
    model.job.leave()
    told = {"backward": raised(loss.backward), "forward": raised(work, model)}
    with torch.no_grad():
        model(batch(0)[0])
    del model, loss
    inner.zero_grad()
    work(inner).backward()
    say(**told, grads=all(param.grad is not None for param in inner.parameters()))


def child():
    """A forked child trains the module by itself; the wrapper refuses to."""
    inner = models.mlp()
    model = wrap(inner)
    work(model).backward()
    pid = os.fork()
    if pid == 0:
        told = raised(work, model)
        work(inner).backward()
        os._exit(0 if told[0] == "ForkedError" and inner[0].weight.grad.any() else 3)
    status = os.waitpid(pid, 0)[1]
    work(model, 1).backward()
    say(status=status, same=same_everywhere(model))


def child_in_pass():
    """A process that is forked between forward and backward ends the pass by itself: it has not got the
    memory in which gradients would be made."""
    inner = models.mlp()
    model = wrap(inner)
    work(inner).backward()
    expected = [param.grad.clone() for param in inner.parameters()]
    model.zero_grad()
    loss = work(model)
    pid = os.fork()
    if pid == 0:
        loss.backward()
        grads = [param.grad for param in inner.parameters()]
        os._exit(0 if all(torch.equal(*pair) for pair in zip(grads, expected, strict=True)) else 3)
    status = os.waitpid(pid, 0)[1]
    loss.backward()
    say(status=status, same=same_everywhere(model))


def child_in_backward():
    """One that is forked when the gradient of a weight has just been made there can read all gradients."""
    inner = models.mlp()
    model = wrap(inner)
    loss = work(model)
    pids = []

    def fork(_param):
        pids.append(os.fork())
        if pids == [0]:
            grads = [param.grad for param in inner.parameters()]
            os._exit(0 if all(grad is None or grad.isfinite().all() for grad in grads) else 3)

    handle = inner[2].weight.register_post_accumulate_grad_hook(fork)
    loss.backward()
    handle.remove()
    status = os.waitpid(*pids, 0)[1]
    say(status=status, same=same_everywhere(model))


def in_turn():
    """Layers that were frozen when the model was wrapped take turns: no plan for each turn."""
    inner = models.mlp()
    inner[0].requires_grad_(False)
    model = wrap(inner)
    plans = []
    for step in range(8):
        inner[0].requires_grad_(step % 2 == 0)
        inner[2].requires_grad_(step % 2 == 1)
        model.zero_grad()
        work(model, step).backward()
        plans.append(model._world.plans)
    inner.add_module("more", nn.Linear(10, 10).requires_grad_(False))
    work(model, 9).backward()
    say(plans=plans, moved=[layer.weight.grad is not None for layer in (inner[0], inner[2])])


def alone():
    """What one rank does with the module alone is its own business."""
    inner = models.mlp()
    model = wrap(inner)
    if RANK == 0:
        work(inner, 77).backward()
    steps = []
    for step in range(3):
        model.zero_grad()
        work(model, step).backward()
        steps.append([param.grad.clone() for param in inner.parameters()])
        if RANK == WORLD - 1:
            model.zero_grad()
            work(inner, 99).backward()
    expected = []
    for step in range(3):
        plain = models.mlp()
        plain.load_state_dict(inner.state_dict())
        (sum(work(plain, step, rank) for rank in range(WORLD)) / WORLD).backward()
        expected.append([param.grad for param in plain.parameters()])
    say(steps=model.info.step, near=all(torch.allclose(a, b, atol=1e-6) for ours, theirs in
                                        zip(steps, expected, strict=True) for a, b in zip(ours, theirs)))


def frozen_whole():
    """A pass through a model whose parameters are all frozen is no step of it."""
    maker, critic = wrap(models.mlp((16, 32, 16))), wrap(models.mlp((16, 32, 1)))
    for step in range(3):
        critic.requires_grad_(False)
        critic(maker(batch(step)[0])).mean().backward()
        critic.requires_grad_(True)
        critic(batch(step)[0]).mean().backward()
    say(steps=[maker.info.step, critic.info.step])


def converted():
    """The model is converted after it was wrapped."""
    model = wrap(models.mlp())
    work(model).backward()
    model.double()
    say(told=raised(lambda: model(torch.zeros(1, 16).double())))


def names():
    """Names that a plan cannot have as they are."""
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.all = nn.ParameterDict({name: nn.Parameter(torch.full((3,), float(RANK))) for name in (
                "x" * 300 + "1", "x" * 300 + "2", "a b\tc", "\udc80", "ü" * 200)})

        def forward(self, x):
            return sum(param.sum() for param in self.all.values()) * x.sum()

    model = wrap(Named())
    model(torch.ones(2) * RANK).backward()
    say(grads=[param.grad.tolist() for param in model.parameters()], same=same_everywhere(model))


def lengths():
    """Of a sampler in the course of an epoch, and of PyTorch's."""
    rows = list(range(23))
    told = []
    for drop in (False, True):
        ours = gradsync.torch.DistributedSampler(rows, batch_size=4, drop_last=drop)
        theirs = torch.utils.data.DistributedSampler(rows, WORLD, RANK, drop_last=drop)
        for _ in range(4):
            ours.advance()
            told.append([len(ours), len(theirs)])
        ours.next_epoch()
        theirs.set_epoch(1)
        told.append([list(ours), list(theirs)])
    say(told=told)


def strided():
    """A tensor that is alone in a message lies in another order in memory where it is received."""
    sent = torch.arange(27.).view(3, 3, 3)
    mine = sent.permute(2, 0, 1) if RANK == 0 else torch.empty(3, 3, 3)
    gradsync.torch.buffers.broadcast(gradsync.torch.default_job(), [mine], 0)
    say(same=torch.equal(mine, sent.permute(2, 0, 1)))


def storages():
    """A gradient that is saved does not take the others with it."""
    model = wrap(models.mlp())
    work(model).backward()
    say(sizes=[param.grad.untyped_storage().nbytes() == param.grad.nbytes for param in model.parameters()])


def ends(folder):
    """The first process of rank 1 ends itself by sys.exit() in the middle of a step, as a handler of SIGTERM
    may."""
    lives = pathlib.Path(folder) / f"rank{RANK}"
    first = not lives.exists()
    lives.touch()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    model = wrap(models.mlp())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    state = gradsync.State(model=model, opt=opt)
    begun = state.count
    while state.count < 10:
        for attempt in state.step():
            with attempt:
                opt.zero_grad()
                loss = work(model, state.count)
                if RANK == 1 and first and state.count == 5:
                    os.kill(os.getpid(), signal.SIGTERM)
                loss.backward()
                opt.step()
    say(begun=begun, count=state.count, same=same_everywhere(model))


def stops_in_a_step():
    """Rank 1 does not use its last layer in its last step. The model lives as long as the process."""
    global model
    inner = models.mlp()
    model = wrap(inner)
    for step in range(2):
        work(model, step).backward()
        model.zero_grad()
    if RANK == 1:
        x, _ = batch(2)
        inner[4].forward = lambda x: x
        model(x).sum().backward()
    else:
        work(model, 2).backward()


def two_models(folder, doomed):
    """Two blocks for each batch; rank 1 is lost in the second one, of this count."""
    lives = pathlib.Path(folder) / f"rank{RANK}"
    first = not lives.exists()
    lives.touch()
    rows = torch.utils.data.TensorDataset(torch.randn(64, 16, generator=torch.Generator().manual_seed(1)))
    sampler = gradsync.torch.DistributedSampler(rows, batch_size=4)
    maker, critic = wrap(models.mlp((8, 32, 16))), wrap(models.mlp((16, 32, 1)))
    optimisers = [torch.optim.Adam(model.parameters()) for model in (maker, critic)]
    state = gradsync.State(maker=maker, critic=critic, opt=optimisers[0], other=optimisers[1],
                           sampler=sampler, steps_per_batch=2)
    while sampler.epoch < 2:
        for x, in torch.utils.data.DataLoader(rows, 4, sampler=sampler):
            noise = x[:, :8]
            for attempt in state.step():
                with attempt:
                    critic.zero_grad()
                    with torch.no_grad():
                        made = maker(noise)
                    (critic(made).mean() - critic(x).mean()).backward()
                    optimisers[1].step()
            for attempt in state.step():
                with attempt:
                    maker.zero_grad()
                    critic.requires_grad_(False)
                    loss = -critic(maker(noise)).mean()
                    if RANK == 1 and first and state.count == int(doomed):
                        os.kill(os.getpid(), signal.SIGKILL)
                    loss.backward()
                    optimisers[0].step()
                    critic.requires_grad_(True)
        sampler.next_epoch()
    say(count=state.count, first=first, same=same_everywhere(maker) and same_everywhere(critic),
        sums=[param.sum().item() for model in (maker, critic) for param in model.parameters()])




CASES = ("wrapped_again many child child_in_pass child_in_backward in_turn alone frozen_whole converted "
         "names lengths strided storages left").split()

if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for case in CASES if sys.argv[1] == "all" else sys.argv[1:2]:
        torch.manual_seed(7)
        print(f"CASE {case}", flush=True)
        globals()[case](*sys.argv[2:])
