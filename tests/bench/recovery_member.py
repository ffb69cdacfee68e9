# SPDX-License-Identifier: Apache-2.0
"""The common part of the ranks of all contenders of recovery_bench.py: the model, the samples of each step,
and the line to the driver. A script of a contender imports everything that it needs, then makes a Driver.
"""
import atexit
import contextlib
import hashlib
import os
import socket
import time

import torch
import torch._dynamo  # torch.optim imports it when the first optimiser is made
from torch_member import mlp

BATCH, LEARNING_RATE = 8, 1e-3


def model_of(width):
    """The model, equal in each process."""
    torch.manual_seed(0)
    return mlp(width)


def optimiser_of(module):
    return torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)


def samples_of(width, rank, step):
    """The samples of a rank in a step: the same ones in each process, and each time."""
    return torch.randn(BATCH, width, generator=torch.Generator().manual_seed(1000 * step + rank))


def loss_of(out, x):
    return (out - x).square().sum() / BATCH


def digest(module):
    made = hashlib.sha256()
    for param in module.parameters():
        made.update(param.detach().numpy())
    return made.hexdigest()


def age_ns():
    """The age of this process."""
    with open("/proc/self/stat") as stat:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 10**9 // os.sysconf("SC_CLK_TCK")


class Driver:
    """The line to the driver. The process reports its progress, with the time of each line; the driver says
    how far the process may go, and where it is killed. The driver's lines wait in the socket until the
    process has gone as far as it might.
    """

    def __init__(self, path):
        torch.set_num_threads(1)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        # Runs last of all, so that the driver sees when this process has left.
        atexit.register(self._socket.close)
        self._lines = self._socket.makefile("r")
        self._limit, self._doom, self._over = 0, 0, False
        self.say("started", os.getpid(), age_ns())

    def say(self, what, *values):
        line = " ".join(map(str, (what, *values, time.monotonic_ns())))
        self._socket.sendall(f"{line}\n".encode())

    def allows(self, step):
        """Waits until it is known whether the training has this step, and returns that."""
        while step > self._limit and not self._over:
            what, *numbers = self._lines.readline().split()
            self._limit, self._doom = map(int, numbers)
            self._over = what == "end"
        return step <= self._limit

    def watch(self, module, rank, step_of):
        """Lets the process be killed when a backward pass has come to the middle of the module."""
        def meet(*_):
            if step_of() != self._doom:
                return
            self.say("inside", rank, self._doom)
            while self._lines.readline():
                pass

        module[len(module) // 2].register_full_backward_pre_hook(meet)

    @contextlib.contextmanager
    def noticing(self, error, rank, step):
        """Around calls that fail when another rank is gone."""
        try:
            yield
        except error:
            self.say("noticed", rank, step)
            raise

    def end(self, rank, step, module):
        """Returns when all ranks are at the end: each may need the others until then."""
        params = sum(param.numel() for param in module.parameters())
        self.say("ended", rank, step, params, digest(module))
        self._lines.readline()
