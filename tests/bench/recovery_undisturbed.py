# SPDX-License-Identifier: Apache-2.0
"""The training of recovery_bench.py in one process, without a kill: prints the digest of its parameters.
Gradients are averaged as all contenders average those of two ranks: halved, then added, or the other way
round, which gives the same number.

    recovery_undisturbed.py WIDTH RANKS STEPS
"""
import sys

import torch
from recovery_member import digest, loss_of, model_of, optimiser_of, samples_of


def main(width, ranks, steps):
    torch.set_num_threads(1)
    module = model_of(width)
    opt = optimiser_of(module)
    for step in range(1, steps + 1):
        opt.zero_grad()
        for rank in range(ranks):
            x = samples_of(width, rank, step)
            (loss_of(module(x), x) / ranks).backward()
        opt.step()
    print(digest(module))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
