# SPDX-License-Identifier: Apache-2.0
"""One rank of a training that ends in the middle of a step. Prints what it has seen.

    living.py CASE [FOLDER]...
"""
import os
import pathlib
import signal
import sys
import warnings

import torch
from torch.nn import functional

import gradsync
import gradsync.torch
import models
import ranks

RANK, batch, wrap, same_everywhere = ranks.RANK, ranks.batch, ranks.wrap, ranks.same_everywhere
model = None


def work(model, step=0):
    x, y = batch(step)
    return functional.cross_entropy(model(x), y)


def is_first(folder):
    """This is the first process of its rank."""
    life = pathlib.Path(folder) / f"rank{RANK}"
    first = not life.exists()
    life.touch()
    return first


def ends(folder):
    """The first process of rank 1 ends itself by sys.exit() in the middle of a step, as a handler of SIGTERM
    may."""
    first = is_first(folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    model = wrap(models.mlp())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    state = gradsync.State(model=model, opt=opt)
    begun = state.count
    while state.count < 10:
        for attempt in state.step():
            with attempt:
                opt.zero_grad()
                loss = work(model, state.count)
                if RANK == 1 and first and state.count == 5:
                    os.kill(os.getpid(), signal.SIGTERM)
                loss.backward()
                opt.step()
    ranks.tell(begun=begun, count=state.count, same=same_everywhere(model))


def stops_in_a_step():
    """Rank 1 does not use its last layer in its last step. The model lives as long as the process."""
    global model
    inner = models.mlp()
    model = wrap(inner)
    for step in range(2):
        work(model, step).backward()
        model.zero_grad()
    if RANK == 1:
        x, _ = batch(2)
        inner[4].forward = lambda x: x
        model(x).sum().backward()
    else:
        work(model, 2).backward()


def two_models(folder, doomed):
    """Two blocks for each batch; rank 1 is lost in the second one, of this count."""
    first = is_first(folder)
    rows = torch.utils.data.TensorDataset(torch.randn(64, 16, generator=torch.Generator().manual_seed(1)))
    sampler = gradsync.torch.DistributedSampler(rows, batch_size=4)
    maker, critic = wrap(models.mlp((8, 32, 16))), wrap(models.mlp((16, 32, 1)))
    optimisers = [torch.optim.Adam(model.parameters()) for model in (maker, critic)]
    state = gradsync.State(maker=maker, critic=critic, opt=optimisers[0], other=optimisers[1],
                           sampler=sampler, steps_per_batch=2)
    while sampler.epoch < 2:
        for x, in torch.utils.data.DataLoader(rows, 4, sampler=sampler):
            noise = x[:, :8]
            for attempt in state.step():
                with attempt:
                    critic.zero_grad()
                    with torch.no_grad():
                        made = maker(noise)
                    (critic(made).mean() - critic(x).mean()).backward()
                    optimisers[1].step()
            for attempt in state.step():
                with attempt:
                    maker.zero_grad()
                    critic.requires_grad_(False)
                    loss = -critic(maker(noise)).mean()
                    if RANK == 1 and first and state.count == int(doomed):
                        os.kill(os.getpid(), signal.SIGKILL)
                    loss.backward()
                    optimisers[0].step()
                    critic.requires_grad_(True)
        sampler.next_epoch()
    ranks.tell(count=state.count, first=first, same=same_everywhere(maker) and same_everywhere(critic),
        sums=[param.sum().item() for model in (maker, critic) for param in model.parameters()])


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.manual_seed(7)
    globals()[sys.argv[1]](*sys.argv[2:])
