# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits and a small convolutional network, on several processes.

    gradsyncctl run -n 2 -- python client/examples/torch/digits.py
    gradsyncctl run -n 2 --restart 3 -- python client/examples/torch/digits.py    (and kill -9 one of them)
    gradsyncctl run -n 2 -- python client/examples/torch/digits.py --ddp          PyTorch's own, over Gloo

PYTHONPATH=client/python where the package is not installed.
"""
import contextlib
import csv
import gzip
import pathlib

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from progress import Progress, begin, parser

DATA = pathlib.Path(__file__).resolve().parents[1] / "data/digits.csv.gz"
HELD_OUT = 297


def load():
    """Reads 1,797 images of 8 × 8 in 17 shades, and their digits; the last ones are held out."""
    with gzip.open(DATA, "rt") as file:
        rows = torch.tensor([[int(cell) for cell in row] for row in csv.reader(file)])
    images, digits = rows[:, :64].float().view(-1, 1, 8, 8) / 16, rows[:, 64]
    return TensorDataset(images[:-HELD_OUT], digits[:-HELD_OUT]), images[-HELD_OUT:], digits[-HELD_OUT:]


def network():
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(128, 10))


class Plain:
    """Stands in for gradsync.State in a training that does not survive a loss."""

    def __init__(self, sampler):
        self.sampler, self.count = sampler, 0

    def step(self):
        yield contextlib.nullcontext()
        self.count += 1


def main():
    made = parser(__doc__)
    made.add_argument("--epochs", type=int, default=10, help="(%(default)s)")
    options = made.parse_args()
    wrap, rank, world = begin(options.ddp)
    train, images, digits = load()

    model = wrap(network())
    if options.ddp:
        sampler = torch.utils.data.DistributedSampler(train)
    else:
        import gradsync
        sampler = gradsync.torch.DistributedSampler(train, batch_size=options.batch)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    state = Plain(sampler) if options.ddp else gradsync.State(model=model, opt=opt, sampler=sampler)

    loader = DataLoader(train, options.batch, sampler=sampler)
    per_epoch = -(-len(train) // (options.batch * world))
    progress = Progress(options.epochs * per_epoch, rank == 0)
    for epoch in range(state.count // per_epoch, options.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            for attempt in state.step():
                with attempt:
                    opt.zero_grad()
                    loss = functional.cross_entropy(model(x), y)
                    loss.backward()
                    opt.step()
            progress.step(state.count, loss.item())

    model.module.eval()
    with torch.no_grad():
        right = (model.module(images).argmax(1) == digits).float().mean().item()
    print(f"rank {rank}: accuracy {right:.3f} on {HELD_OUT} held-out images", flush=True)


if __name__ == "__main__":
    main()
