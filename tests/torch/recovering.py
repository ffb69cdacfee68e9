# SPDX-License-Identifier: Apache-2.0
"""One rank of a training that loses a member. Prints hashes of what it has in the end.

    recovering.py FOLDER KILL EPOCHS [MORE]

The first process of rank KILL (-1: none) ends itself by SIGKILL in the middle of an epoch; with MORE=forward
between forward and backward, with MORE=twice the one that follows it, too. FOLDER tells processes of a rank
apart.
"""
import hashlib
import json
import os
import pathlib
import signal
import sys

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import gradsync
import gradsync.torch
import models

BATCH = 4


def data():
    made = torch.Generator().manual_seed(5)
    return TensorDataset(torch.randn(96, 3, 8, 8, generator=made), torch.randint(0, 10, (96,),
                                                                                 generator=made))


def digest(*states):
    made = hashlib.sha256()
    for state in states:
        for each in torch.utils._pytree.tree_leaves(state):
            made.update(each.numpy().tobytes() if isinstance(each, torch.Tensor) else repr(each).encode())
    return made.hexdigest()


class Fate:
    """When this process is to end."""

    def __init__(self, folder, kill, more):
        self.rank = int(os.environ["GRADSYNC_RANK"])
        self.lives = pathlib.Path(folder) / f"rank{self.rank}"
        self.life = len(self.lives.read_text()) if self.lives.exists() else 0
        self.lives.write_text("x" * (self.life + 1))
        self.doomed = self.rank == kill and self.life < (2 if more == "twice" else 1)
        self.more = more

    def meet(self, count, place):
        # A process that has come later ends in its first step, while the others think that all is well.
        if self.doomed and count >= 7 and place == ("forward" if self.more == "forward" else "backward"):
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder, kill, epochs, more=""):
    torch.set_num_threads(1)
    fate = Fate(folder, int(kill), more)
    torch.manual_seed(fate.rank + 100 * fate.life)
    dataset = data()
    sampler = gradsync.torch.DistributedSampler(dataset, BATCH)
    loader = DataLoader(dataset, BATCH, sampler=sampler)
    model = gradsync.torch.DistributedDataParallel(models.Cnn())
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = gradsync.State(model=model, opt=opt, sampler=sampler)
    while sampler.epoch < int(epochs):
        for x, y in loader:
            for attempt in state.step():
                with attempt:
                    opt.zero_grad()
                    loss = functional.cross_entropy(model(x), y)
                    fate.meet(state.count, "forward")
                    loss.backward()
                    fate.meet(state.count, "backward")
                    opt.step()
        sampler.next_epoch()
    trained = digest({name: param.detach() for name, param in model.named_parameters()}, opt.state_dict())
    print("RESULT " + json.dumps({"rank": fate.rank, "life": fate.life, "count": state.count,
                                  "restarts": state.restarts, "trained": trained,
                                  "buffers": digest(dict(model.named_buffers()))}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
