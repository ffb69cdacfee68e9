# SPDX-License-Identifier: Apache-2.0
"""One rank of recovery_bench.py's contender torchrun: PyTorch's DistributedDataParallel over Gloo. Rank 0
saves a checkpoint after each step, which all ranks read when torchrun has started them again.

    recovery_torchrun.py WIDTH SOCKET CHECKPOINT
"""
import os
import sys

import torch
import torch.distributed as dist
from recovery_member import Driver, loss_of, model_of, optimiser_of, samples_of
from torch.nn.parallel import DistributedDataParallel


def save(checkpoint, step, module, opt):
    """Saves a checkpoint. A reader finds this one or the one before it, as a whole."""
    torch.save({"step": step, "model": module.state_dict(), "opt": opt.state_dict()}, f"{checkpoint}.new")
    os.replace(f"{checkpoint}.new", checkpoint)


def restore(checkpoint, module, opt):
    if not os.path.exists(checkpoint):
        return 0
    state = torch.load(checkpoint, mmap=True)
    module.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    return state["step"]


def main(width, path, checkpoint):
    driver, width = Driver(path), int(width)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    module = model_of(width)
    opt = optimiser_of(module)
    count = restore(checkpoint, module, opt)
    model = DistributedDataParallel(module, gradient_as_bucket_view=True)
    driver.watch(module, rank, lambda: count + 1)
    while driver.allows(count + 1):
        step = count + 1
        x = samples_of(width, rank, step)
        opt.zero_grad()
        loss = loss_of(model(x), x)
        with driver.noticing(RuntimeError, rank, step):
            loss.backward()
        opt.step()
        if rank == 0:
            save(checkpoint, step, module, opt)
        count = step
        driver.say("committed", rank, step, dist.get_world_size())
    driver.end(rank, count, module)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
