# SPDX-License-Identifier: Apache-2.0
"""One rank of a training that loses a member. Prints hashes of what it has in the end.

    recovering.py FOLDER KILL EPOCHS [MORE]

The first process of rank KILL (-1: none) ends itself by SIGKILL in the middle of an epoch. FOLDER tells
processes of a rank apart. MORE:

    forward     it does so between forward and backward
    twice       the one that follows it, too
    turning     layers change their order in the middle, so that all plan again
    plan        the same, and it ends itself when the others plan again
    plans       the one that follows it, too
    start       it ends itself when the others make their first plan
    begins      it ends itself when all prove that they begin, over several hosts
    values      it ends itself when they get the first values
    hooked      gradients travel in 16 bits
    hook        the same, and it ends itself when the others plan for that, in the first step
    thawing     a layer is frozen at first, and another one later
    thaw        the same, and it ends itself in between
    checkpoint  rank 0 keeps a checkpoint, and all begin with it
"""
import hashlib
import json
import os
import pathlib
import signal
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import gradsync
import gradsync.torch
import models

BATCH = 4
#: Passes before the layers change their order: the change is noticed after step 10.
TURN = 6
#: The call instead of which a process ends itself.
CALLS = {"plan": "plan", "plans": "plan", "start": "plan", "hook": "plan", "values": "broadcast",
         "begins": "allgather"}


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


class Turning(models.Cnn):
    """From some step on the layers are used in another order."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("passes", torch.tensor(0))
        self.head = nn.Sequential(nn.Identity(), self.head)
        self.head[0].register_forward_hook(self._between)

    def _between(self, _module, _inputs, x):
        self.passes += 1
        layers = (self.one, self.other) if self.passes <= TURN else (self.other, self.one)
        return layers[1](layers[0](x).tanh())


class Fate:
    """When this process is to end."""

    def __init__(self, folder, kill, more):
        self.rank = gradsync.torch.default_job().rank
        self.lives = pathlib.Path(folder) / f"rank{self.rank}"
        self.life = len(self.lives.read_text()) if self.lives.exists() else 0
        self.lives.write_text("x" * (self.life + 1))
        self.doomed = self.rank == kill and self.life < (2 if more in ("twice", "plans") else 1)
        self.more = more
        #: once it is made
        self.state = None
        if self.doomed and more in CALLS:
            self._meet_call(CALLS[more])

    @staticmethod
    def end():
        os.kill(os.getpid(), signal.SIGKILL)

    def meet(self, place):
        # A process that has come later ends in its first step, while the others think that all is well.
        if self.doomed and self.more not in CALLS and self.state.count >= 7 and place == (
                "forward" if self.more == "forward" else "backward"):
            self.end()

    def _meet_call(self, name):
        """The process ends instead of a call: the first that a process makes which others wait for, the
        first after its state was made, or, in the middle of the training, the one after step 10."""
        called = getattr(gradsync.Job, name)
        early = self.life > 0 or self.more in ("start", "begins", "values")
        least = 0 if self.more == "hook" else 10

        def call(*arguments, **options):
            if early or (self.state is not None and self.state.count >= least):
                self.end()
            return called(*arguments, **options)

        setattr(gradsync.Job, name, call)


def keep(state, path):
    torch.save(state.state_dict(), path.with_suffix(".part"))
    path.with_suffix(".part").rename(path)


def main(folder, kill, epochs, more=""):
    torch.set_num_threads(1)
    fate = Fate(folder, int(kill), more)
    torch.manual_seed(fate.rank + 100 * fate.life)
    dataset = data()
    sampler = gradsync.torch.DistributedSampler(dataset, batch_size=BATCH)
    loader = DataLoader(dataset, BATCH, sampler=sampler)
    kind = Turning if more in ("turning", "plan", "plans") else models.Cnn
    model = gradsync.torch.DistributedDataParallel(kind())
    if more in ("hook", "hooked"):
        model.register_comm_hook(None, gradsync.torch.bf16_compress_hook)
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = fate.state = gradsync.State(model=model, opt=opt, sampler=sampler)
    checkpoint = pathlib.Path(folder) / "checkpoint"
    if more == "checkpoint" and checkpoint.exists():
        state.load_state_dict(torch.load(checkpoint))
    while sampler.epoch < int(epochs):
        for x, y in loader:
            for attempt in state.step():
                with attempt:
                    if more in ("thaw", "thawing"):
                        model.module.first.requires_grad_(state.count >= 5)
                        model.module.second.requires_grad_(state.count < 6)
                    opt.zero_grad()
                    loss = functional.cross_entropy(model(x), y)
                    fate.meet("forward")
                    loss.backward()
                    fate.meet("backward")
                    opt.step()
            if more == "checkpoint" and fate.rank == 0:
                keep(state, checkpoint)
        sampler.next_epoch()
    trained = digest({name: param.detach() for name, param in model.named_parameters()}, opt.state_dict())
    sys.stdout.write("RESULT " + json.dumps({
        "rank": fate.rank, "life": fate.life, "count": state.count, "restarts": state.restarts,
        "trained": trained, "replanned": model._get_ddp_logging_data()["has_rebuilt_buckets"],
        "buffers": digest(dict(model.named_buffers()))}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
