# SPDX-License-Identifier: Apache-2.0
"""One rank of one contender of torch_bench.py. It trains when the driver says so, and sleeps between.

    torch_member.py CONTENDER MODEL BATCH SOCKET STORE

It answers "steps N" by the median time of N steps in ms, and "params" by how many parameters the model has.
CONTENDER: bare, ddp or gradsync.
"""
import os
import socket
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

WORDS, WIDTH, LENGTH = 8192, 512, 64


class Transformer(nn.Module):
    """23 M parameters; input and output embedding are one."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0., batch_first=True) for _ in range(6))
        self.out = nn.Linear(WIDTH, WORDS, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, words):
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def mlp(width, depth=6):
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def made(name, batch):
    """A model, its inputs, and how its loss is computed."""
    torch.manual_seed(0)
    if name == "transformer":
        words = torch.randint(0, WORDS, (batch, LENGTH))
        return Transformer(), words, lambda out: functional.cross_entropy(out.flatten(0, 1), words.flatten())
    width = {"mlp25m": 2048, "mlp100m": 4096}[name]
    return mlp(width), torch.randn(batch, width), lambda out: out.square().mean()


def wrapped(contender, model, store):
    if contender == "bare":
        return model
    if contender == "gradsync":
        import gradsync.torch
        return gradsync.torch.DistributedDataParallel(model)
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(os.environ["GRADSYNC_RANK"]),
                            world_size=int(os.environ["GRADSYNC_WORLD_SIZE"]))
    return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)


def main(contender, name, batch, path, store):
    torch.set_num_threads(1)
    model, x, loss_of = made(name, int(batch))
    params = sum(param.numel() for param in model.parameters())
    model = wrapped(contender, model, store)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        begin = time.perf_counter()
        optimiser.zero_grad()
        loss_of(model(x)).backward()
        optimiser.step()
        return 1e3 * (time.perf_counter() - begin)

    driver = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    driver.connect(path)
    lines = driver.makefile("rw")
    lines.write(f"hello {contender} {os.environ['GRADSYNC_RANK']} {os.getpid()}\n")
    lines.flush()
    for line in lines:
        what, *count = line.split()
        if what == "quit":
            break
        told = params if what == "params" else statistics.median(step() for _ in range(int(count[0])))
        lines.write(f"{told}\n")
        lines.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
