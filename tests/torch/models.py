# SPDX-License-Identifier: Apache-2.0
"""Models of the tests: small, and each with something that a wrapper can get wrong. Where nothing is said of
types, they are of the default one."""
import dataclasses

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import gradsync.torch.direct

# Layers are small here: their gradients are made in shared memory, as large ones are otherwise.
gradsync.torch.direct.LEAST_BYTES = 0


def mlp(sizes=(16, 48, 32, 10)):
    layers = []
    for before, after in zip(sizes, sizes[1:]):
        layers += [nn.Linear(before, after), nn.Tanh()]
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

    def __init__(self, branches=4, width=16, classes=10):
        super().__init__()
        self.trunk = nn.Linear(16, width)
        self.branches = nn.ModuleList(nn.Linear(width, width) for _ in range(branches))
        self.head = nn.Linear(width, classes)

    def forward(self, x, used):
        x = self.trunk(x).tanh()
        for i in used:
            x = x + self.branches[i](x).tanh()
        return self.head(x)


def usual(x):
    """The tensor in the default type."""
    return x.to(torch.get_default_dtype())


class Mixed(nn.Module):
    """Parameters of four types; of three, if the default one is that of `wide`."""

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
        x = usual(self.brain(x.bfloat16()))
        return self.last((x * usual(self.scale)).tanh())


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
        self.turn = nn.Parameter(torch.randn(16, 10, dtype=torch.get_default_dtype().to_complex()))
        self.bias = nn.Parameter(torch.zeros(10))

    def forward(self, x):
        return (x.to(self.turn.dtype) @ self.turn).abs() + self.bias


class Odd(nn.Module):
    """A parameter without dimensions, and two without elements."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.nothing = nn.Linear(16, 0)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(torch.cat([x * self.scale, self.nothing(x)], 1))


@dataclasses.dataclass
class Answer:
    """A dataclass that a model may return."""

    first: torch.Tensor | None
    rest: dict


class Nested(nn.Module):
    """Its outputs lie in what `kind` names."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(16, 10), nn.Linear(16, 10)

    def forward(self, x, kind):
        one, other = self.one(x), self.other(x)
        return {"tuple": (one, (other, one)), "list": [one, [other, other]],
                "dict": {"a": one, "b": {"c": other}}, "dataclass": Answer(one, {"a": [other]}),
                "part": Answer(None, {"a": [other]})}[kind]


class Ungraphed(nn.Module):
    """Returns outputs, among them some that are in no graph, and one that was made here or comes back."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(16, 16), nn.Linear(16, 10)

    def forward(self, x, state=None):
        out = self.other(self.one(x).relu())
        return out.detach(), out, {"state": torch.ones(1, 10) if state is None else state["state"]}


class Turns(nn.Module):
    """Two layers of which each pass uses one, in a checkpoint."""

    def __init__(self, shared):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        if shared:
            self.layers[0].weight = self.layers[1].weight
        self.head = nn.Linear(16, 10)
        self.turn = 0

    def forward(self, x):
        self.turn += 1
        return self.head(checkpoint(self.layers[self.turn % 2], x, use_reentrant=False))


class Shared(nn.Module):
    """The first layer and the block have one weight; the block may be used twice, in checkpoints."""

    def __init__(self, times, reentrant):
        super().__init__()
        self.first, self.block, self.head = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 10)
        self.first.weight = self.block.weight
        self.times, self.reentrant = times, reentrant

    def forward(self, x):
        x = self.first(x)
        for _ in range(self.times):
            x = checkpoint(self.block, x, use_reentrant=self.reentrant)
        return self.head(x)


class Unused(nn.Module):
    """The output does not depend on `first`. The bias of that layer has a second name."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 10, bias=False)
        self.bias = nn.Parameter(torch.zeros(10))
        self.first.bias = self.bias
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(x)


class Buffered(nn.Module):
    """A buffer that is random at first."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 10)
        self.register_buffer("shift", torch.randn(10))

    def forward(self, x):
        return self.head(x) + self.shift
