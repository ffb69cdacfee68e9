# SPDX-License-Identifier: Apache-2.0
"""One rank of a comparison for more than two ranks, where the order of additions differs from that of Gloo.
Prints the largest error of a gradient, as a part of what is allowed.

    bounds.py CASE FOLDER

In each step both models begin with the parameters and buffers of DDP's.
"""
import json
import os
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import gradsync.torch
import models

STEPS = 50
BOUND = 2e-7


def mlp(made):
    return models.mlp(), lambda: torch.randn(8, 16, generator=made), {}


def cnn(made):
    return models.Cnn(), lambda: torch.randn(8, 3, 8, 8, generator=made), {}


def branches(made):
    class Some(models.Branches):
        def forward(self, x):
            return super().forward(x, [int(x[0, 0].abs() * 100) % 4])

    return Some(), lambda: torch.randn(8, 16, generator=made), {"find_unused_parameters": True}


def main(case, folder):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rank, world = int(os.environ["GRADSYNC_RANK"]), int(os.environ["GRADSYNC_WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    torch.manual_seed(7)
    made = torch.Generator().manual_seed(rank)
    local, inputs, options = globals()[case](made)
    torch.manual_seed(7)
    theirs = nn.parallel.DistributedDataParallel(globals()[case](made)[0], **options)
    torch.manual_seed(7)
    ours = gradsync.torch.DistributedDataParallel(globals()[case](made)[0], **options)
    optimiser = torch.optim.SGD(theirs.parameters(), lr=0.05, momentum=0.9)
    worst, unset = 0., []
    for step in range(STEPS):
        x, y = inputs(), torch.randint(0, 10, (8,), generator=made)
        ours.module.load_state_dict(theirs.module.state_dict())
        local.load_state_dict(theirs.module.state_dict())
        for model in (theirs, ours, local):
            model.zero_grad()
            functional.cross_entropy(model(x), y).backward()
        for (name, a), b, own in zip(ours.module.named_parameters(), theirs.parameters(), local.parameters()):
            if (a.grad is None) != (b.grad is None):
                unset.append(f"step {step}: {name}")
                continue
            norm = torch.zeros(1) if own.grad is None else (own.grad / world).norm().reshape(1)
            dist.all_reduce(norm)
            if a.grad is not None and norm.item() > 0:
                worst = max(worst, ((a.grad - b.grad).norm() / (BOUND * norm)).item())
        optimiser.step()
    print("RESULT " + json.dumps({"rank": rank, "worst": worst, "unset": unset}), flush=True)
    ours.job.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
