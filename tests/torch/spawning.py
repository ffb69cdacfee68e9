# SPDX-License-Identifier: Apache-2.0
"""A script that starts its ranks by itself, as PyTorch's examples do: how they are started, how many, and
what each says of itself when it wraps its model."""
import json
import sys

import torch
from torch import multiprocessing, nn

from launch import TAG

#: The arguments by which a rank describes itself, by the name of the case.
SAY = {
    "nothing": lambda rank, world: {},
    "rank": lambda rank, world: {"rank": rank, "world_size": world},
    "name": lambda rank, world: {"job": "mine", "rank": rank, "world_size": world},
    "one": lambda rank, world: {"world_size": 1},
}


def work(rank, world, say):
    import gradsync.torch
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    model = gradsync.torch.DistributedDataParallel(nn.Linear(16, 4), **SAY[say](rank, world))
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimiser.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        optimiser.step()
    print(TAG + json.dumps({"rank": rank, "job": model.job.name,
                            "place": [model.job.rank, model.job.world_size],
                            "sum": model.module.weight.sum().item()}), flush=True)


if __name__ == "__main__":
    method, count, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    multiprocessing.start_processes(work, nprocs=count, args=(count, name), start_method=method)
