# SPDX-License-Identifier: Apache-2.0
"""Trainings in which something goes wrong. Cases after which the job goes on check what they are told, the
others print it. Two ranks.

    failing.py FOLDER CASE...   cases of the first kind
    failing.py "" CASE          one of the others
"""
import collections
import contextlib
import os
import pathlib
import signal
import sys
import time
import warnings

import torch
from torch import nn
from torch.nn import functional

import counters
import gradsync
import gradsync.torch
import models
import ranks
from ranks import FOLDER, RANK, batch, raised, wrap


def say(error=None, **more):
    """Tells the test which error the rank got."""
    if error is not None:
        more |= {"error": type(error).__name__, "text": str(error)}
    ranks.tell(**more)


@contextlib.contextmanager
def told(**more):
    """Tells the test which exception the block raises, or that it raises none."""
    try:
        yield
    except Exception as error:
        say(error, **more)
    else:
        say(**more)


def work(model, step=0):
    x, y = batch(step)
    return functional.cross_entropy(model(x), y)


# ---- mistakes after which the job goes on

def models_that_differ():
    """The error of each rank names the parameter, and the rank that differs."""
    other = RANK == 1
    double = models.mlp()
    if other:
        double[2] = double[2].double()
    for what, inner, parameter in (
            ("shape", models.mlp((16, 40 if other else 48, 32, 10)), "0.weight"),
            ("count", models.mlp((16, 48, 10)) if other else models.mlp(), "2.weight"),
            ("type", double, "2.weight"), ("strides", models.Cnn(channels_last=other), "first.weight")):
        kind, text, named = raised(wrap, inner)
        assert (kind, named) == ("PlanMismatchError", parameter), what
        assert "rank 1" in text and parameter in text, what


def model_changed():
    """A parameter is put into the model after it was wrapped, or in another's place."""
    def added(inner):
        inner.add_module("more", nn.Linear(10, 10))

    def replaced(inner):
        inner[0].weight = nn.Parameter(torch.zeros_like(inner[0].weight))

    for change, parameter in ((added, "more.weight"), (replaced, "0.weight")):
        model = wrap(models.mlp())
        work(model).backward()
        change(model.module)
        kind, text, named = raised(work, model)
        assert (kind, named) == ("ModelChangedError", parameter) and f"rank {RANK}" in text


def backward_again():
    """Two backward passes through one graph are averaged if the graph was kept."""
    model = wrap(models.mlp())
    loss = work(model)
    loss.backward(retain_graph=True)
    once = model.module[0].weight.grad.clone()
    loss.backward()
    both = model.module[0].weight.grad
    everyone = torch.empty(model.job.world_size, *both.shape)
    model.job.allgather(both.clone(), everyone)
    assert torch.allclose(both, 2 * once) and (everyone == both).all()
    assert raised(loss.backward)[0] == "RuntimeError"


def small_floats():
    inner = models.mlp()
    inner.register_parameter("tiny", nn.Parameter(torch.zeros(4, dtype=torch.float8_e4m3fn)))
    assert raised(wrap, inner)[::2] == ("GradientKindError", "tiny")


def refused_arguments():
    for name, value, kind in (("mixed_precision", object(), "UnsupportedError"),
                              ("device_mesh", object(), "UnsupportedError"), ("nonsense", 1, "TypeError"),
                              ("process_group", object(), "TypeError")):
        assert raised(wrap, models.mlp(), **{name: value})[0] == kind, name
    model = wrap(models.mlp())
    assert raised(model.register_comm_hook, None, lambda state, bucket: None)[0] == "UnsupportedError"


def parameters_without_gradient():
    """The next forward pass names all of them, and no others."""
    model = wrap(models.Branches())
    functional.cross_entropy(model(torch.randn(8, 16), [0, 2]), torch.zeros(8, dtype=torch.int64)).backward()
    kind, text, parameter = raised(model, torch.randn(8, 16), [0, 2])
    assert kind == "UnfinishedStepError" and parameter in text and f"rank {RANK}" in text
    named = [f"branches.{i}.{what}" in text for i in range(4) for what in ("weight", "bias")]
    assert named == [False, False, True, True] * 2, text


def sparse():
    """Embeddings whose gradients are sparse when they are wrapped, or later."""
    def model(known):
        words = nn.Embedding(10, 16, sparse=known)
        return nn.Sequential(collections.OrderedDict(words=words, head=nn.Linear(16, 10)))

    refused = "GradientKindError", "words.weight"
    assert raised(wrap, model(True))[::2] == refused
    inner = model(False)
    wrapped = wrap(inner)
    inner.words.sparse = True
    assert raised(lambda: wrapped(torch.arange(8)).sum().backward())[::2] == refused


# ---- processes that end

class Failing(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return x.clone()

    @staticmethod
    def backward(_ctx, *_):
        raise ValueError("the lamp has gone out")


def exception_in_backward():
    """One rank raises in its backward pass and goes on. Its next forward pass raises; the others lose that
    rank."""
    inner = models.mlp()
    model = wrap(inner)
    if RANK == 1:
        inner[2].register_forward_hook(lambda _module, _inputs, out: Failing.apply(out))
        with told(when="backward"):
            work(model).backward()
        with told(when="forward"):
            work(model)
        os._exit(3)
    with told():
        work(model).backward()


def uncaught():
    """Models differ, and the script does not catch the exception."""
    wrap(models.mlp((16, 48 if RANK == 0 else 40, 32, 10)))


def uncaught_in_backward():
    """Rank 1 raises in its backward pass, and its process ends. Rank 0 hears of the loss, and ends."""
    inner = models.mlp()
    model = wrap(inner)
    if RANK == 1:
        inner[2].register_forward_hook(lambda _module, _inputs, out: Failing.apply(out))
    work(model).backward()


def caught():
    """A step of State ends by an exception on all ranks, which go on with the next one."""
    state = gradsync.State(model=wrap(models.mlp()))
    with contextlib.suppress(ValueError):
        for attempt in state.step():
            with attempt:
                raise ValueError("the batch is empty")
    for attempt in state.step():
        with attempt:
            work(state.parts["model"]).backward()
    say(count=state.count)


def member_gone():
    """One rank ends without a word; the job does not wait for another one."""
    model = wrap(models.mlp())
    for step in range(3):
        work(model, step).backward()
    if RANK == 1:
        os._exit(3)
    with told():
        for step in range(3, 6):
            work(model, step).backward()


def daemon_pid():
    """The daemon is a child of gradsyncctl, as this process is."""
    children = pathlib.Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
    return next(int(pid) for pid in children
                if pathlib.Path(f"/proc/{pid}/comm").read_text() == "gradsyncd\n")


def daemon_gone():
    """The daemon is killed for good; the ranks do not wait for another one."""
    with gradsync.Connection(reconnect_timeout=-1) as connection:
        job = connection.join()
        model = wrap(models.mlp(), process_group=job)
        work(model).backward()
        job.barrier()
        if RANK == 0:
            os.kill(daemon_pid(), signal.SIGKILL)
        with told():
            for step in range(1, 100000):
                work(model, step).backward()


def wait_of(rank):
    """Waits until the daemon says that the job waits for this rank. Returns the processes' ids, by rank."""
    found = counters.until(lambda job: any(wait["rank"] == rank for wait in job["waiting_for"]))
    return {each["rank"]: each["pid"] for each in found["members"]}


def interrupt(signals):
    """Rank 0 waits for rank 1, which then calls signals(pids)."""
    model = wrap(models.mlp())
    work(model).backward()
    try:
        if RANK == 1:
            signals(wait_of(1))
            while True:
                time.sleep(0.1)     # in signal.pause() a signal that came just before it would be lost
        work(model, 1).backward()
    except KeyboardInterrupt as error:
        say(error)
        raise


def interrupted():
    """SIGINT while this rank waits for the other one."""
    interrupt(lambda pids: os.kill(pids[0], signal.SIGINT))


def interrupted_all():
    """SIGINT to gradsyncctl, as by Ctrl-C: all ranks get it."""
    interrupt(lambda _: os.kill(os.getppid(), signal.SIGINT))


def threads_and_children():
    """Data loader workers live while the trainer dies."""
    rows = torch.utils.data.TensorDataset(torch.randn(64, 16))
    loader = torch.utils.data.DataLoader(rows, 8, num_workers=2)
    model = wrap(models.mlp())
    batches = iter(loader)
    for x, in batches:
        model(x).sum().backward()
        say(pid=os.getpid(), workers=[each.pid for each in batches._workers])
        model.job.barrier()             # both have said it
        if RANK == 1:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if FOLDER:
        ranks.main(globals())
    else:
        globals()[sys.argv[2]]()
