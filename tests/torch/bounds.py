# SPDX-License-Identifier: Apache-2.0
"""One rank of comparisons for more than two ranks, where the order of additions differs from that of Gloo.

    bounds.py FOLDER SEED CASE...

Prints of each case the largest error of a gradient, as a part of what is allowed, in steps that all begin
with the state of DDP's model (`worst`), and how far training ends from where DDP's ends, as a part of how far
apart trainings with DDP end that differ by nothing but the order of additions (`apart`).
"""
import itertools
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import gradsync.torch
import models
import ranks
from ranks import RANK, WORLD

STEPS = 50
BOUND = 2e-7


# No tensor is small, so that one rounding more or less does not show; and all is smooth, so that rounding
# stays rounding for 50 steps.
CLASSES = 48


class Some(models.Branches):
    """Its inputs say which branch they take."""

    def __init__(self):
        super().__init__(width=32, classes=CLASSES)

    def forward(self, x):
        return super().forward(x, [int(x[0, 0].abs() * 100) % 4])


class Smooth(nn.Sequential):
    """Convolutions with batch normalisation."""

    def __init__(self):
        super().__init__(nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.Tanh(),
                         nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.Tanh(),
                         nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32 * 9, CLASSES))


class Case:
    """A training: every model of a case begins with the same parameters."""

    def __init__(self, name, seed):
        self.kind = {"mlp": lambda: models.mlp((16, 48, 32, CLASSES)), "cnn": Smooth, "branches": Some}[name]
        self.shape = (8, 3, 6, 6) if name == "cnn" else (8, 16)
        self.options = {"find_unused_parameters": True} if name == "branches" else {}
        self.seed = seed

    def module(self):
        torch.manual_seed(self.seed)
        return self.kind()

    def wrapped(self, kind, **options):
        return kind(self.module(), **self.options, **options)

    def batches(self, share):
        """The batches of a share of the data."""
        made = torch.Generator().manual_seed(1000 * self.seed + share)
        for _ in range(STEPS):
            yield torch.randn(self.shape, generator=made), torch.randint(0, CLASSES, (8,), generator=made)


def optimiser_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def gradients(case):
    """Compares the gradients of single steps, all of which begin with the state of DDP's model."""
    local, theirs = case.module(), case.wrapped(nn.parallel.DistributedDataParallel)
    ours = case.wrapped(gradsync.torch.DistributedDataParallel)
    optimiser = optimiser_of(theirs)
    worst, unset = 0., []
    for step, (x, y) in enumerate(case.batches(RANK)):
        ours.module.load_state_dict(theirs.module.state_dict())
        local.load_state_dict(theirs.module.state_dict())
        for model in (theirs, ours, local):
            model.zero_grad()
            functional.cross_entropy(model(x), y).backward()
        for (name, a), b, own in zip(ours.module.named_parameters(), theirs.parameters(), local.parameters()):
            if (a.grad is None) != (b.grad is None):
                unset.append(f"step {step}: {name}")
                continue
            norm = torch.zeros(1) if own.grad is None else (own.grad / WORLD).norm().reshape(1)
            dist.all_reduce(norm)
            if a.grad is not None and norm.item() > 0:
                worst = max(worst, ((a.grad - b.grad).norm() / (BOUND * norm)).item())
        optimiser.step()
    return {"worst": worst, "unset": unset}


def trajectory(case, kind, share=RANK, **options):
    """The parameters after all steps. Which rank has which share changes the order of additions only."""
    model = case.wrapped(kind, **options)
    optimiser = optimiser_of(model)
    for x, y in case.batches(share):
        optimiser.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return [param.detach().double() for param in model.parameters()]


def trajectories(case):
    """DDP with shares of the data handed round, and swapped, and with other buckets; and gradsync."""
    swapped = {1: 2, 2: 1}.get(RANK, RANK)
    ways = [((RANK + turn) % WORLD, 25) for turn in range(WORLD)] + [(RANK, 0.002), (swapped, 0.002)]
    theirs = [trajectory(case, nn.parallel.DistributedDataParallel, share, bucket_cap_mb=cap)
              for share, cap in ways]
    ours = trajectory(case, gradsync.torch.DistributedDataParallel)
    apart, spreads = [], []
    for i, mine in enumerate(ours):
        spread = max((a[i] - b[i]).norm().item() for a, b in itertools.combinations(theirs, 2))
        apart.append(((mine - theirs[0][i]).norm() / spread).item() if spread else None)
        spreads.append(spread / theirs[0][i].norm().item())
    return {"apart": apart, "spreads": spreads}


def main(folder, seed, *names):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=RANK, world_size=WORLD)
    for name in names:
        case = Case(name, int(seed))
        ranks.tell(case=name, **gradients(case), **trajectories(case))
    gradsync.torch.default_job().barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
