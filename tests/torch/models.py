# SPDX-License-Identifier: Apache-2.0
"""Models of the tests: small, and each with something that a wrapper can get wrong."""
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def mlp(sizes=(16, 48, 32, 10), dtype=torch.float32):
    layers = []
    for before, after in zip(sizes, sizes[1:]):
        layers += [nn.Linear(before, after, dtype=dtype), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class Cnn(nn.Module):
    """Convolutions with batch normalisation, which has buffers."""

    def __init__(self, channels_last=False):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.second_norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 10)
        if channels_last:
            self.to(memory_format=torch.channels_last)

    def forward(self, x):
        x = functional.relu(self.first_norm(self.first(x)))
        x = functional.relu(self.second_norm(self.second(x)))
        return self.head(x.mean(dim=(2, 3)))


class Transformer(nn.Module):
    """Input and output embedding are one parameter."""

    def __init__(self, words=40, width=32, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=dropout, batch_first=True)
            for _ in range(2))
        self.out = nn.Linear(width, words, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


class Branches(nn.Module):
    """Only the branches that are named take part."""

    def __init__(self, branches=4):
        super().__init__()
        self.trunk = nn.Linear(16, 16)
        self.branches = nn.ModuleList(nn.Linear(16, 16) for _ in range(branches))
        self.head = nn.Linear(16, 10)

    def forward(self, x, used):
        x = self.trunk(x).tanh()
        for i in used:
            x = x + self.branches[i](x).tanh()
        return self.head(x)


class Mixed(nn.Module):
    """Parameters of four types."""

    def __init__(self):
        super().__init__()
        self.narrow = nn.Linear(16, 12)
        self.wide = nn.Linear(12, 14, dtype=torch.float64)
        self.brain = nn.Linear(14, 10, dtype=torch.bfloat16)
        self.scale = nn.Parameter(torch.ones(10, dtype=torch.float16))
        self.last = nn.Linear(10, 10)

    def forward(self, x):
        x = self.narrow(x).tanh()
        x = self.wide(x.double()).tanh()
        x = self.brain(x.bfloat16()).float()
        return self.last((x * self.scale.float()).tanh())


class Checkpointed(nn.Module):
    """One block is used twice, each time in a checkpoint."""

    def __init__(self, reentrant, times):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.block = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
        self.unused = nn.Linear(3, 3)
        self.head = nn.Linear(16, 10)
        self.reentrant, self.times = reentrant, times

    def forward(self, x):
        x = self.first(x)
        for _ in range(self.times):
            x = checkpoint(self.block, x, use_reentrant=self.reentrant)
        return self.head(x)


class Complex(nn.Module):
    """A complex parameter."""

    def __init__(self):
        super().__init__()
        self.turn = nn.Parameter(torch.randn(16, 10, dtype=torch.complex64))
        self.bias = nn.Parameter(torch.zeros(10))

    def forward(self, x):
        return (x.to(torch.complex64) @ self.turn).abs() + self.bias
