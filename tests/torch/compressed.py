# SPDX-License-Identifier: Apache-2.0
"""One rank of a training whose gradients travel in 16 bits, because of a hook or since its parameters have
no more. Prints how far the averages are from those of the same gradients in 64 bits, as a part of the sum of
what all ranks contribute.

    compressed.py HOOK|TYPE...
"""
import copy
import sys
import warnings

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import functional

import gradsync.torch
import models
import ranks

STEPS = 12
wrap = gradsync.torch.DistributedDataParallel


def backward(model, step, passes, rank):
    """One step; all its passes but the last are local."""
    made = torch.Generator().manual_seed(100 * step + rank)
    for i in range(passes):
        x, y = torch.randn(8, 16, generator=made), torch.randint(0, 10, (8,), generator=made)
        if isinstance(model, wrap):
            model.require_backward_grad_sync = i == passes - 1
        dtype = next(model.parameters()).dtype
        functional.cross_entropy(model(x.to(dtype), [step % 3]).float(), y).backward()


def average(job, params):
    """Returns, by parameter, the average of all ranks' own gradients in double precision, and the sum of the
    norms of the shares that the ranks contribute."""
    made = []
    for param in params:
        if param.grad is None:
            made.append((None, None))
            continue
        mine = param.grad.double() / job.world_size
        everyone = torch.empty(job.world_size, *mine.shape, dtype=torch.float64)
        job.allgather(mine, everyone)
        made.append((everyone.sum(0), sum(each.norm().item() for each in everyone)))
    return made


def train(how):
    torch.manual_seed(7)
    inner = models.Branches()
    hook = getattr(default_hooks, how, None) or getattr(gradsync.torch, how, None)
    if hook is None:
        inner = inner.to(getattr(torch, how))
    local = copy.deepcopy(inner)
    small = wrap(inner, find_unused_parameters=True)
    if hook is not None:
        small.register_comm_hook(None, hook)
    job, optimiser = small.job, torch.optim.SGD(small.parameters(), lr=0.05)
    worst, unset, moved = 0., [], set()
    for step in range(STEPS):
        local.load_state_dict(small.module.state_dict())
        for model in (local, small):
            model.zero_grad()
            backward(model, step, 2 if step % 3 == 0 else 1, job.rank)
        averages = average(job, local.parameters())
        for (name, a), (reference, norm) in zip(small.module.named_parameters(), averages):
            if (a.grad is None) != (reference is None):
                unset.append(f"step {step}: {name}")
            elif reference is not None:
                assert a.grad.dtype is a.dtype
                worst = max(worst, (a.grad.double() - reference).norm().item() / norm)
        moved.add(small.info.bytes)
        optimiser.step()
    mine = torch.cat([param.detach().float().flatten() for param in small.parameters()])
    same = torch.empty(job.world_size, len(mine))
    job.allgather(mine, same)
    assert not unset and (same == same[0]).all(), unset
    assert moved == {2 * len(mine)}, "two bytes for each parameter"
    ranks.tell(how=how, worst=worst)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for each in sys.argv[1:]:
        train(each)
