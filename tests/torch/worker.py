# SPDX-License-Identifier: Apache-2.0
"""One rank of parity tests: each case first with PyTorch's DDP over Gloo, then with gradsync. Says of each
case what differs, and warnings of drift that do not belong to it.

    worker.py FOLDER CASE[.f64][.copied|.streams]...

FOLDER is empty and shared by the ranks. Cases run in single precision, or in double. Gradients of linear
layers are made in shared memory, or, with .copied, are copied there, as all others. With .streams they are
lent and marked as on a GPU.
"""
import contextlib
import os
import sys
import warnings

import torch
import torch.distributed as dist

import cases
import counters
import gradsync.torch
import ranks
from gradsync.torch import direct, drift
from gradsync.torch.reducer import Missing, Reducer
from streams import pretended

#: Cases whose ranks drift apart: an optimiser's step in no_sync(), an embedding that is normalised by the
#: rank's own input, and an optimiser that follows the loss.
DRIFTS = {"uneven_inputs": {"gradients", "parameters"}, "even_inputs": {"gradients", "parameters"},
          "uneven_by_live": {"gradients", "parameters"}, "uneven_thrown": {"gradients", "parameters"},
          "lbfgs": {"losses"}, "layers": {"parameters"}}


class Torchs:
    """PyTorch's DDP."""

    name = "ddp"
    kind = torch.nn.parallel.DistributedDataParallel

    def __init__(self, folder, rank, world):
        dist.init_process_group("gloo", init_method=f"file://{folder}.store", rank=rank, world_size=world)
        self.rank, self.world = rank, world

    def wrap(self, module, **options):
        return self.kind(module, **options)

    def drop(self, model):
        """Nothing refers to it from here."""

    @staticmethod
    def end():
        dist.destroy_process_group()


class Ours:
    """gradsync's. No process group is left, so nothing else can have moved gradients."""

    name = "gradsync"
    kind = gradsync.torch.DistributedDataParallel
    #: Bytes that the daemon has reduced for the cases before this one, and that steps have said since then.
    before = told = 0

    def __init__(self, _folder, rank, world):
        assert not dist.is_initialized()
        self.rank, self.world = rank, world
        self.models = []

    def wrap(self, module, **options):
        made = self.kind(module, **options)
        assert (made.job.rank, made.job.world_size) == (self.rank, self.world)
        self.models.append(made)
        return made

    def drop(self, model):
        """Nothing refers to it from here."""
        self.models.remove(model)

    def end(self):
        """All bytes of all gradients went through the daemon: it has counted them itself."""
        assert not dist.is_initialized()
        if self.rank == 0:
            job = counters.job()
            reduced = job["bytes_reduced"] if job is not None else 0
            assert reduced - Ours.before == Ours.told, (reduced, Ours.before, Ours.told)
            Ours.before, Ours.told = reduced, 0


def finish(reducer):
    """Checks the bytes of each step: those of all gradients, except where all ranks may have left some
    out."""
    do_finish(reducer)
    Ours.told += reducer.info.bytes
    size = sum(slot.nbytes for slot in reducer.slots)
    may_miss = reducer.options.static or reducer.options.missing is Missing.ABSENT
    assert reducer.info.bytes == size or may_miss and reducer.info.bytes < size


do_finish, Reducer.finish = Reducer.finish, finish


def differences(ours, theirs, path=""):
    """Where two results differ; tensors are compared bit by bit."""
    if type(ours) is not type(theirs):
        return [f"{path}: {type(ours).__name__} instead of {type(theirs).__name__}"]
    if isinstance(ours, dict):
        found = [f"{path}: {key} is in one only" for key in ours.keys() ^ theirs.keys()]
        return found + [line for key in ours.keys() & theirs.keys()
                        for line in differences(ours[key], theirs[key], f"{path}.{key}")]
    if isinstance(ours, (list, tuple)):
        if len(ours) != len(theirs):
            return [f"{path}: {len(ours)} instead of {len(theirs)}"]
        return [line for i, pair in enumerate(zip(ours, theirs)) for line in differences(*pair,
                                                                                         f"{path}[{i}]")]
    if isinstance(ours, torch.Tensor):
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return [f"{path}: {ours.dtype} {tuple(ours.shape)} instead of {theirs.dtype} "
                    f"{tuple(theirs.shape)}"]
        same = torch.equal(bits(ours), bits(theirs))
        return [] if same else [f"{path}: differs by {(ours - theirs).abs().max().item():g}"]
    return [] if ours == theirs else [f"{path}: {ours!r} instead of {theirs!r}"]


def bits(tensor):
    return torch.view_as_real(tensor).contiguous().view(torch.uint8) if tensor.is_complex() else \
        tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def both(name, folder, rank, world):
    """The results of a case, with DDP and with gradsync; what was raised is a result, too."""
    results = []
    case, *how = name.split(".")
    torch.set_default_dtype(torch.float64 if "f64" in how else torch.float32)
    direct.LEAST_BYTES = sys.maxsize if "copied" in how else 0
    for kind in (Torchs, Ours):
        side = kind(f"{folder}/{name}", rank, world)
        torch.manual_seed(7)
        with pretended() if "streams" in how and kind is Ours else contextlib.nullcontext():
            results.append(getattr(cases, case)(side))
        side.end()
    return results


def main(folder, *names):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    told = set()
    warn = drift._warn

    def hear(reducer, kind, *rest):
        told.add(kind)
        warn(reducer, kind, *rest)

    drift._warn = hear
    for name in names:
        told.clear()
        theirs, ours = both(name, folder, ranks.RANK, ranks.WORLD)
        found = differences(ours, theirs)[:20] if theirs else ["the case has no result"]
        if told != DRIFTS.get(name.partition(".")[0], set()):
            found.append(f"warnings of drift: {sorted(told)}")
        ranks.tell(case=name, failed="\n".join(found))
    # The process exits without leaving the job: a case may end in the middle of a step.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
