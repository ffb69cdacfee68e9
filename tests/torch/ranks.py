# SPDX-License-Identifier: Apache-2.0
"""Cases that the ranks of one job run one after the other, in the same processes. A case is a function of a
script, and raises if something is not as it should be.

    SCRIPT FOLDER CASE...
"""
import json
import os
import sys
import traceback
import warnings

import torch

import gradsync.torch
from gradsync.torch.world import world_of

RANK, WORLD = int(os.environ["GRADSYNC_RANK"]), int(os.environ["GRADSYNC_WORLD_SIZE"])
#: All ranks share it.
FOLDER = sys.argv[1] if len(sys.argv) > 1 else ""
wrap = gradsync.torch.DistributedDataParallel


def batch(step, rank=RANK, rows=8, width=16):
    made = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, width, generator=made), torch.randint(0, 10, (rows,), generator=made)


def same_everywhere(model):
    """All ranks have the same parameters."""
    mine = torch.cat([param.detach().flatten() for param in model.parameters()])
    everyone = torch.empty(WORLD, mine.numel())
    model.job.allgather(mine, everyone)
    return bool((everyone == everyone[0]).all())


def equal(some, others):
    return all(torch.equal(*pair) for pair in zip(some, others, strict=True))


def sgd(model, lr=0.1, **options):
    return torch.optim.SGD(model.parameters(), lr=lr, **options)


def raised(function, *arguments, **named):
    """The exception that a function raises: the name of its class, its text, its parameter."""
    try:
        function(*arguments, **named)
    except Exception as error:
        return type(error).__name__, str(error), getattr(error, "parameter", None)
    return NOTHING


NOTHING = (None, "", None)


def tell(**more):
    """One line for the test, at once: all ranks may write to one pipe."""
    sys.stdout.write("RESULT " + json.dumps({"rank": RANK, **more}) + "\n")
    sys.stdout.flush()


def check(name, function):
    """Runs a case. The first one that fails ends the process, since the other ranks may be anywhere in it."""
    torch.manual_seed(7)
    try:
        function()
        job = world_of(None).job        # not default_job(): a script that has asked for it is not warned
        if "left" not in repr(job):
            job.barrier()
    except Exception as error:
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
        tell(case=name, failed="".join(told.format())[-6000:])
        os._exit(1)
    tell(case=name, failed="")


def main(script):
    """Runs the cases of a script that the command line names."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in sys.argv[2:]:
        check(name, script[name])
