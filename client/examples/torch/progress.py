# SPDX-License-Identifier: Apache-2.0
"""The parts that the examples share: the flag that switches to plain DDP, the rank of this process, and a
line that says how far the training is."""
import argparse
import statistics
import sys
import time
import warnings

import torch


def parser(about):
    """The parser of the options that all examples have; each adds its own."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--ddp", action="store_true",
                      help="PyTorch's DistributedDataParallel instead of gradsync's")
    made.add_argument("--batch", type=int, default=16, help="of each process (%(default)s)")
    return made


def begin(ddp):
    """Returns the class that wraps a model, this process's rank, and the number of processes."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if ddp:
        torch.distributed.init_process_group("gloo")
        return (torch.nn.parallel.DistributedDataParallel, torch.distributed.get_rank(),
                torch.distributed.get_world_size())
    import gradsync.torch
    # The examples do not ask torch.distributed: the job gives rank and world size.
    warnings.filterwarnings("ignore", "torch.distributed is not initialised")
    job = gradsync.torch.default_job()
    return gradsync.torch.DistributedDataParallel, job.rank, job.world_size


class Progress:
    """Prints the loss, and how long steps take, on rank 0; the other ranks are silent."""

    def __init__(self, steps, shown):
        self.steps, self.shown = steps, shown
        self.times, self.last = [], time.perf_counter()

    def step(self, count, loss):
        now = time.perf_counter()
        self.times.append(now - self.last)
        self.last = now
        if self.shown and (count % 20 == 0 or count == self.steps):
            recent = 1e3 * statistics.median(self.times[-100:])
            end = "\n" if count == self.steps or not sys.stdout.isatty() else "\r"
            print(f"step {count}/{self.steps}  loss {loss:.3f}  {recent:.1f} ms a step", end=end, flush=True)
