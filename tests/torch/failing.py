# SPDX-License-Identifier: Apache-2.0
"""One rank of trainings in which something goes wrong, one after the other. Prints what it was told.

    failing.py CASE...
"""
import contextlib
import json
import os
import pathlib
import signal
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional

import counters
import gradsync
import gradsync.torch
import models

RANK = int(os.environ["GRADSYNC_RANK"])
wrap = gradsync.torch.DistributedDataParallel
#: The name of the case that runs.
running = ""


def say(error=None, **more):
    told = {"rank": RANK, "case": running, **more}
    if error is not None:
        told |= {"error": type(error).__name__, "text": str(error), "parameter": getattr(error, "parameter",
                                                                                         None),
                 "kinds": [each.__name__ for each in type(error).__mro__]}
    print("RESULT " + json.dumps(told), flush=True)


@contextlib.contextmanager
def told(**more):
    """What the block raises is said; that it raises nothing, too."""
    try:
        yield
    except Exception as error:
        say(error, **more)
    else:
        say(**more)


@contextlib.contextmanager
def told_together():
    """As told(); nobody leaves before all have heard."""
    with told():
        yield
    with contextlib.suppress(gradsync.GradsyncError):
        gradsync.torch.default_job().barrier()


def work(model, step=0, rows=8):
    made = torch.Generator().manual_seed(step + 100 * RANK)
    return functional.cross_entropy(model(torch.randn(rows, 16, generator=made)),
                                    torch.randint(0, 10, (rows,), generator=made))


def other_shape():
    with told_together():
        wrap(models.mlp((16, 48 if RANK == 0 else 40, 32, 10)))


def other_count():
    with told_together():
        wrap(models.mlp((16, 48, 10)) if RANK else models.mlp())


def other_type():
    inner = models.mlp()
    if RANK == 1:
        inner[2] = inner[2].double()
    with told_together():
        wrap(inner)


def other_strides():
    with told_together():
        wrap(models.Cnn(channels_last=RANK == 1))


def added():
    """A parameter is put into the model after it was wrapped, and one is put in another's place."""
    model = wrap(models.mlp())
    work(model).backward()
    model.module.add_module("more", nn.Linear(10, 10))
    with told():
        work(model).backward()


def replaced():
    model = wrap(models.mlp())
    model.module[0].weight = nn.Parameter(torch.zeros_like(model.module[0].weight))
    with told():
        work(model).backward()


def backward_again():
    """Twice through one graph that was kept: both passes are averaged."""
    model = wrap(models.mlp())
    loss = work(model)
    loss.backward(retain_graph=True)
    once = model.module[0].weight.grad.clone()
    loss.backward()
    both = model.module[0].weight.grad
    everyone = torch.empty(model.job.world_size, *both.shape)
    model.job.allgather(both.clone(), everyone)
    say(twice=torch.allclose(both, 2 * once), same=bool((everyone == both).all()))


def graph_gone():
    model = wrap(models.mlp())
    loss = work(model)
    loss.backward()
    with told():
        loss.backward()


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return x.clone()

    @staticmethod
    def backward(_ctx, *_):
        raise ValueError("the lamp has gone out")


def exception_in_backward():
    """On one rank; the script goes on, and is told with the next forward pass. The others lose that rank."""
    inner = models.mlp()
    model = wrap(inner)
    if RANK == 1:
        inner[2].register_forward_hook(lambda _module, _inputs, out: Failing.apply(out))
        with told(when="backward"):
            work(model).backward()
        with told(when="forward"):
            work(model)
        os._exit(3)
    with told(when="backward"):
        work(model).backward()


def uncaught():
    """Nobody catches what is raised when models differ."""
    wrap(models.mlp((16, 48 if RANK == 0 else 40, 32, 10)))


def uncaught_in_backward():
    """On one rank, whose process ends by it; the other one is told of the loss, and ends by that."""
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


def unfinished():
    """Parameters without a gradient are named with the next forward pass."""
    model = wrap(models.Branches())
    functional.cross_entropy(model(torch.randn(8, 16), [0, 2]), torch.zeros(8, dtype=torch.int64)).backward()
    with told():
        model(torch.randn(8, 16), [0, 2])


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
    """gradsyncctl has started it, as it has this process."""
    children = pathlib.Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
    return next(int(pid) for pid in children
                if pathlib.Path(f"/proc/{pid}/comm").read_text() == "gradsyncd\n")


def daemon_gone():
    """The daemon is killed for good; nobody waits for another one."""
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
    """Once the daemon says that the job waits for this rank: the processes, by rank."""
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
                signal.pause()
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


def sparse():
    class Model(nn.Module):
        def __init__(self, known):
            super().__init__()
            self.words = nn.Embedding(10, 16, sparse=known)
            self.head = nn.Linear(16, 10)

        def forward(self, x):
            words = self.words(x.abs().long().clamp(0, 9)[:, 0])
            return self.head(words)

    with told(when="wrapping"):
        wrap(Model(True))
    inner = Model(False)
    model = wrap(inner)
    inner.words.sparse = True
    with told(when="backward"):
        work(model).backward()
    os._exit(0)


def small_floats():
    inner = models.mlp()
    inner.register_parameter("tiny", nn.Parameter(torch.zeros(4, dtype=torch.float8_e4m3fn)))
    with told():
        wrap(inner)


def refused():
    for options in ({"mixed_precision": object()}, {"device_mesh": object()}, {"nonsense": 1},
                    {"process_group": object()}):
        with told(given=next(iter(options))):
            wrap(models.mlp(), **options)
    model = wrap(models.mlp())
    with told(given="hook"):
        model.register_comm_hook(None, lambda state, bucket: None)


def threads_and_children():
    """Data loader workers live while the trainer dies."""
    rows = torch.utils.data.TensorDataset(torch.randn(64, 16))
    loader = torch.utils.data.DataLoader(rows, 8, num_workers=2)
    model = wrap(models.mlp())
    batches = iter(loader)
    for x, in batches:
        model(x).sum().backward()
        say(pid=os.getpid(), workers=[each.pid for each in batches._workers])
        if RANK == 1:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for running in sys.argv[1:]:
        globals()[running]()
