# SPDX-License-Identifier: Apache-2.0
"""A rank of a PyTorch training on a GPU, with gradsync.torch; alone, beside PyTorch's DDP over NCCL. Prints a
JSON row for each answer, as reductions.c does, on rank 0.

    gradsyncctl run --private --device cuda:0 -n N -- python3 torch_rows.py [--small]

Needs a PyTorch with CUDA. Exit status: 0 nothing is wrong; 1 an answer is "no"; 77 no GPU, or no such
PyTorch.
"""
import json
import os
import statistics
import sys
import tempfile
import time

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit(77)

failed = False


def tell(rank, fact, answer, detail):
    global failed
    failed |= answer == "no"
    if rank == 0:
        print(json.dumps({"fact": fact, "answer": answer, "detail": detail, "ms": 0.0}), flush=True)


def model_of(width, layers):
    torch.manual_seed(3)
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*parts).cuda()


def batch_of(width, rank):
    torch.manual_seed(100 + rank)
    return torch.randn(64, width, device="cuda")


def check_averages(gradsync, rank, world, width):
    """Averages are those of the gradients that each rank would have alone."""
    model = gradsync.DistributedDataParallel(model_of(width, 2))
    alone = model_of(width, 2)
    sums = None
    for other in range(world):
        alone.zero_grad()
        alone(batch_of(width, other)).square().mean().backward()
        found = [param.grad / world for param in alone.parameters()]
        sums = found if sums is None else [a + b for a, b in zip(sums, found)]
    for _ in range(3):
        model.zero_grad()
        model(batch_of(width, rank)).square().mean().backward()
        worst = max(float((param.grad - expected).abs().max() / expected.abs().max())
                    for param, expected in zip(model.parameters(), sums))
        if worst > 1e-5:
            break
    tell(rank, f"PyTorch averages of {world}", "yes" if worst <= 1e-5 else "no",
         f"largest relative difference {worst:.2g}, in three steps")
    shared = all(param.grad.data_ptr() == view.data_ptr()
                 for param, view in zip(model.parameters(), model._reducer.layout.views))
    tell(rank, f"PyTorch gradients lie in shared memory of {world}", "yes" if shared else "no", "")


def train(model, rank, width, steps):
    """Median milliseconds of a step."""
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, times = batch_of(width, rank), []
    for number in range(steps + 5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()
        torch.cuda.synchronize()
        if number >= 5:
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def measure(gradsync, rank, world, width, layers, steps):
    ours = train(gradsync.DistributedDataParallel(model_of(width, layers)), rank, width, steps)
    detail = f"{layers} layers of {width} x {width}, {steps} steps: gradsync {ours:.3f} ms a step"
    if world > 1:
        tell(rank, f"PyTorch step of {world}", f"{ours:.3f} ms", detail)
        return
    import torch.distributed as dist
    plain = train(model_of(width, layers), rank, width, steps)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
        wrapped = nn.parallel.DistributedDataParallel(model_of(width, layers), device_ids=[0])
        theirs = train(wrapped, rank, width, steps)
        dist.destroy_process_group()
    tell(rank, "PyTorch step beside DDP over NCCL", f"{ours / theirs:.2f} times DDP's",
         f"{detail}, DDP {theirs:.3f} ms, no averaging {plain:.3f} ms")


def main():
    small = "--small" in sys.argv
    if not torch.cuda.is_available():
        sys.exit(77)
    import gradsync.torch
    rank, world = int(os.environ["GRADSYNC_RANK"]), int(os.environ["GRADSYNC_WORLD_SIZE"])
    check_averages(gradsync.torch, rank, world, 64 if small else 1024)
    measure(gradsync.torch, rank, world, 64 if small else 2048, 2 if small else 8, 5 if small else 50)
    return failed


if __name__ == "__main__":
    sys.exit(main())
