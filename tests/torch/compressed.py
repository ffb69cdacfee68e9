# SPDX-License-Identifier: Apache-2.0
"""One rank of a training whose gradients travel in 16 bits. Prints how far they are from those in 32, as a
part of the sum of what all ranks contribute.

    compressed.py HOOK
"""
import json
import sys
import warnings

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import functional

import gradsync.torch
import models

STEPS = 20


def main(hook):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.manual_seed(7)
    plain = gradsync.torch.DistributedDataParallel(models.Branches(), find_unused_parameters=True)
    small = gradsync.torch.DistributedDataParallel(models.Branches(), find_unused_parameters=True)
    rank, world = small.job.rank, small.job.world_size
    small.register_comm_hook(None, getattr(default_hooks, hook, None) or getattr(gradsync.torch, hook))
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.05)
    worst, unset, moved = 0., [], set()
    for step in range(STEPS):
        made = torch.Generator().manual_seed(100 * step + rank)
        small.module.load_state_dict(plain.module.state_dict())
        for _ in range(2 if step % 3 == 0 else 1):
            x, y = torch.randn(8, 16, generator=made), torch.randint(0, 10, (8,), generator=made)
            again = step % 3 == 0 and _ == 0
            for model in (plain, small):
                if again:
                    with model.no_sync():
                        functional.cross_entropy(model(x, [step % 3]), y).backward()
                else:
                    functional.cross_entropy(model(x, [step % 3]), y).backward()
        for (name, a), b in zip(small.module.named_parameters(), plain.module.parameters()):
            if (a.grad is None) != (b.grad is None):
                unset.append(f"step {step}: {name}")
            elif a.grad is not None:
                assert a.grad.dtype is torch.float32
                everyone = torch.empty(world)
                small.job.allgather(b.grad.norm().reshape(1), everyone)
                worst = max(worst, ((a.grad - b.grad).norm() / everyone.max()).item())
        moved.add(small.info.bytes)
        optimiser.step()
        plain.zero_grad()
        small.zero_grad()
    same = torch.empty(world, sum(param.numel() for param in small.parameters()))
    small.job.allgather(torch.cat([param.detach().flatten() for param in small.parameters()]), same)
    print("RESULT " + json.dumps({"rank": rank, "worst": worst, "unset": unset, "moved": sorted(moved),
                                  "size": same.shape[1], "same": bool((same == same[0]).all())}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
