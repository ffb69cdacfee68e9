# SPDX-License-Identifier: Apache-2.0
"""One rank of what PyTorch's DDP cannot do here, or does not do: cases, one after the other. Prints what it
has seen.

    other.py FOLDER CASE...
"""
import contextlib
import copy
import json
import os
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import counters
import gradsync
import gradsync.torch
import models
import streams

RANK, WORLD = int(os.environ["GRADSYNC_RANK"]), int(os.environ["GRADSYNC_WORLD_SIZE"])
wrap = gradsync.torch.DistributedDataParallel


#: The name of the case that runs, and a folder that all ranks share.
running = folder = ""


def say(**more):
    print("RESULT " + json.dumps({"rank": RANK, "case": running, **more}), flush=True)


def batch(step, rank=RANK, rows=8, width=16):
    made = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, width, generator=made), torch.randint(0, 10, (rows,), generator=made)


def same_everywhere(model):
    mine = torch.cat([param.detach().flatten() for param in model.parameters()])
    everyone = torch.empty(WORLD, mine.numel())
    model.job.allgather(mine, everyone)
    return bool((everyone == everyone[0]).all())


def unfrozen():
    """Layers that were frozen when the model was wrapped take part once they are not; others stop to."""
    inner = models.mlp()
    inner[0].requires_grad_(False)
    model = wrap(inner)
    optimiser = torch.optim.SGD(inner.parameters(), lr=0.1)
    moved = []
    for step in range(12):
        inner[0].requires_grad_(step >= 4)
        inner[2].requires_grad_(step < 8)
        optimiser.zero_grad()
        x, y = batch(step)
        functional.cross_entropy(model(x), y).backward()
        moved.append([layer.weight.grad is not None for layer in (inner[0], inner[2], inner[4])])
        optimiser.step()
    say(moved=moved, same=same_everywhere(model))


def log():
    model = wrap(models.mlp(), bucket_cap_mb=0.002)
    for step in range(3):
        x, y = batch(step)
        functional.cross_entropy(model(x), y).backward()
        norm = nn.utils.get_total_norm([param.grad for param in model.parameters()]).item()
        model.zero_grad()
    data = model._get_ddp_logging_data()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        model(batch(3)[0])
    seen = {event.key for event in profile.key_averages()}
    small = wrap(models.mlp())
    small.register_comm_hook(None, gradsync.torch.fp16_compress_hook)
    say(hook=small._get_ddp_logging_data()["comm_hook"],
        profiled="gradsync.DistributedDataParallel.forward" in seen,
        said={key: data[key] for key in (
            "module_name", "world_size", "backend_name", "device_ids", "output_device", "broadcast_buffers",
            "find_unused_parameters", "static_graph", "comm_hook", "has_sync_bn", "dtypes",
            "num_parameter_tensors", "total_parameter_size_bytes", "bucket_cap_bytes",
            "unused_parameter_size", "can_set_static_graph")},
        norm=norm, free=data["gradient_norm"], iteration=data["iteration"],
        rebuilt=data["has_rebuilt_buckets"],
        indices=data["per_bucket_param_indices"], sizes=data["bucket_sizes"],
        buckets=data["per_bucket_times"], times=[data[name] for name in (
            "forward_compute_time", "backward_compute_time", "backward_comm_time")])


def plans_again():
    """The order in which layers are used changes: buckets follow."""
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(16, 16), nn.Linear(16, 16)
            self.turned = False

        def forward(self, x):
            layers = (self.other, self.one) if self.turned else (self.one, self.other)
            return layers[1](layers[0](x).tanh())

    model = wrap(Two())
    orders = []
    for step in range(12):
        model.module.turned = step >= 5
        model(batch(step)[0]).sum().backward()
        orders.append(model._reducer.layout.order)
        model.zero_grad(set_to_none=step % 2 == 0)
    say(orders=[orders[0], orders[4], orders[9], orders[11]], replanned=model._observer.replanned)


def kept_views():
    """A script that keeps a gradient does not crash when the plan that it lay in is gone."""
    model = wrap(nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 10)))
    kept = []
    for step in range(3):
        model(batch(step)[0]).sum().backward()
        kept += [param.grad for param in model.parameters()]
        model.zero_grad()
    say(sums=[bool(each.isfinite().all()) for each in kept])
    del model
    gradsync.torch.default_job().leave()
    say(sums=[bool(each.isfinite().all()) for each in kept])


class Flat(nn.Module):
    """Normalises inputs without dimensions of their own, and learns nothing in doing so."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(6, 8), nn.BatchNorm1d(8, affine=False), nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.norm(self.first(x.flatten(1)[:, :6])))


def normalised():
    """SyncBatchNorm on parts is BatchNorm on the whole, whoever has how much of it: one sample, or none."""
    found = {}
    for name, kind, rows in (("uneven", models.Cnn, [2 + rank for rank in range(WORLD)]),
                             ("single", models.Cnn, [1] * WORLD),
                             ("channels last", lambda: models.Cnn(channels_last=True), [2] * WORLD),
                             ("without weights", Flat, [3] * WORLD),
                             ("nothing on one rank", models.Cnn, [4] + [0] * (WORLD - 1))):
        torch.manual_seed(7)
        found[name] = normalised_as_whole(kind().double(), rows) if sum(rows) > 1 else 0.
    part = wrap(gradsync.torch.SyncBatchNorm.convert_sync_batchnorm(models.Cnn()))
    finite = True
    if RANK == 0:
        with torch.no_grad():
            finite = bool(part.module.eval()(torch.randn(2, 3, 8, 8)).isfinite().all())
    part.job.barrier()
    say(far=found, finite=finite, logged=part._get_ddp_logging_data()["has_sync_bn"],
        state=sorted(part.module.state_dict()) == sorted(models.Cnn().state_dict()))


def normalised_as_whole(whole, rows):
    """The largest difference in outputs, gradients and buffers."""
    part = wrap(gradsync.torch.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole)))
    far = 0.
    for step in range(5):
        images = torch.randn(sum(rows), 3, 8, 8, generator=torch.Generator().manual_seed(step)).double()
        begin = sum(rows[:RANK])
        ours = part(images[begin:begin + rows[RANK]])
        theirs = whole(images)
        if rows[RANK]:
            far = max(far, (ours - theirs[begin:begin + rows[RANK]]).abs().max().item())
        part.zero_grad()
        whole.zero_grad()
        (ours.square().sum() * WORLD).backward()
        theirs.square().sum().backward()
        for a, b in zip(part.module.parameters(), whole.parameters()):
            far = max(far, ((a.grad - b.grad).norm() / (1e-3 + b.grad.norm())).item())
        for a, b in zip(part.module.buffers(), whole.buffers()):
            far = max(far, (a.double() - b.double()).abs().max().item())
    return far


def checkpoint():
    """Only rank 0 has read it: all go on from there. The tag says how far it is."""
    def made():
        torch.manual_seed(RANK)
        model = wrap(models.mlp())
        opt = torch.optim.Adam(model.parameters(), lr=0.01)
        return model, opt, gradsync.State(model=model, opt=opt)

    model, opt, state = made()
    for step in range(4):
        for attempt in state.step():
            with attempt:
                opt.zero_grad()
                x, y = batch(step)
                functional.cross_entropy(model(x), y).backward()
                opt.step()
    if RANK == 0:
        torch.save(state.state_dict(), f"{folder}/checkpoint")
    again, optimiser, state = made()
    if RANK == 0:
        state.load_state_dict(torch.load(f"{folder}/checkpoint"))
    else:
        state.agree()
    equal = all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters()))
    moments = [each["exp_avg"] for each in opt.state.values()], [each["exp_avg"]
                                                                 for each in optimiser.state.values()]
    equal = equal and all(torch.equal(a, b) for a, b in zip(*moments, strict=True))
    say(count=state.count, equal=equal)


def random_numbers():
    """A step that is computed again draws the numbers that it drew before, on the CPU and on a GPU."""
    drawn = []
    with streams.pretended():
        model = wrap(models.mlp())
        state = gradsync.State(model=model)
        for _ in range(2):
            for attempt in state.step():
                with attempt:
                    drawn.append([torch.rand(()).item(), torch.rand((), generator=streams.GENERATOR).item()])
                    if len(drawn) % 2:
                        raise gradsync.VoidStep
                    model(batch(0)[0]).sum().backward()
                    model.zero_grad()
    say(drawn=drawn)


def two_forwards_of_norm():
    """Buffers are broadcast between two forward passes whose backward pass comes after both."""
    model = wrap(models.Cnn())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        made = torch.Generator().manual_seed(10 * step + RANK)
        optimiser.zero_grad()
        first, second = (model(torch.randn(4, 3, 8, 8, generator=made)) for _ in range(2))
        (first.square().mean() + second.square().mean()).backward()
        optimiser.step()
    say(same=same_everywhere(model))


def unused_in_checkpoint():
    """A reentrant checkpoint beside a parameter that is not used: as if it had been said that the graph is
    always the same."""
    ended = []
    for options in ({"find_unused_parameters": True}, {"static_graph": True}):
        torch.manual_seed(7)
        model = wrap(models.Checkpointed(reentrant=True, times=1), **options)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            x, y = batch(step)
            optimiser.zero_grad()
            functional.cross_entropy(model(x.requires_grad_()), y).backward()
            optimiser.step()
        ended.append([param.detach() for param in model.parameters()])
    say(same=[torch.equal(a, b) for a, b in zip(*ended, strict=True)])


def counted():
    """By its own account the daemon has reduced the gradients of each step that was synchronised, once, and
    nothing else has carried any: there is no process group."""
    said = []

    def ask():
        if RANK == 0:
            found = counters.job()
            said.append([found["bytes_reduced"], found["void_steps"]])

    model = wrap(models.mlp())
    ask()
    for options in ({}, {"bucket_cap_mb": 0.002}):
        model = wrap(models.mlp(), **options)
        for step in range(12):
            x, y = batch(step)
            with model.no_sync() if step % 4 == 1 else contextlib.nullcontext():
                functional.cross_entropy(model(x), y).backward()
        ask()
    small = wrap(models.mlp())
    small.register_comm_hook(None, gradsync.torch.bf16_compress_hook)
    for step in range(3):
        functional.cross_entropy(small(batch(step)[0]), batch(step)[1]).backward()
    ask()
    with torch.no_grad():
        small(batch(0)[0])
    small.job.barrier()
    ask()
    say(said=said, group=dist.is_initialized(), size=sum(param.numel() for param in small.parameters()))


def layers_dropped():
    """Agreed by all: what nobody uses is not averaged, and stays as it is."""
    model = wrap(models.Branches(), find_unused_parameters=True)
    unset = []
    for step in range(6):
        x, y = batch(step)
        model.zero_grad()
        functional.cross_entropy(model(x, [step % 2]), y).backward()
        unset.append([branch.weight.grad is None for branch in model.module.branches])
    data = model._get_ddp_logging_data()
    sizes = []
    for others in (0, 3):
        model.zero_grad()
        functional.cross_entropy(model(x, [0 if RANK == 0 else others]), y).backward()
        sizes.append(model._get_ddp_logging_data()["unused_parameter_size"])
    say(unset=unset, bytes=data["unused_parameter_size"], sizes=sizes, static=data["can_set_static_graph"])


def dropped_traffic():
    """By its own account the daemon has moved nothing for a bucket of which no rank has used anything."""
    model = wrap(models.Branches(), find_unused_parameters=True, bucket_cap_mb=1e-6)
    moved, before = [], None
    for used in ([0], [0, 1], [], [0, 1, 2, 3], [RANK], [2], [3]):
        x, y = batch(len(moved))
        if RANK == 0:
            before = counters.job()["bytes_reduced"]
        model.job.barrier()
        functional.cross_entropy(model(x, used), y).backward()
        moved.append((model.info.bytes, counters.job()["bytes_reduced"] - before if RANK == 0 else None))
        model.zero_grad()
    say(moved=moved)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    folder = sys.argv[1]
    for running in sys.argv[2:]:
        torch.manual_seed(7)
        globals()[running]()
