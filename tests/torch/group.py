# SPDX-License-Identifier: Apache-2.0
"""Operations of torch.distributed on a group of the backend "gradsync", beside one of Gloo: both must give
the same. Three ranks, or two."""
import datetime
import threading

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gradsync.torch
import ranks
from ranks import FOLDER, RANK, WORLD

dist.init_process_group("gradsync", init_method=f"file://{FOLDER}/store", rank=RANK, world_size=WORLD)
OURS, GLOO = dist.group.WORLD, dist.new_group(backend="gloo")
BOTH = (OURS, GLOO)
OPS = dist.ReduceOp
INTEGERS = (torch.int8, torch.int32, torch.int64, torch.uint8)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def made(*shape, dtype=torch.float32, rank=RANK):
    """Small whole numbers, so that every order of adding is exact."""
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) % 3 + rank % 2 + 1).to(dtype)


def same(some, other):
    if isinstance(some, torch.Tensor):
        return isinstance(other, torch.Tensor) and some.dtype == other.dtype and torch.equal(some, other)
    if isinstance(some, (list, tuple)):
        return len(some) == len(other) and all(map(same, some, other))
    return some == other


def compare(function, *arguments):
    """Both groups give the same."""
    ours, gloo = [function(group, *arguments) for group in BOTH]
    assert same(ours, gloo), (arguments, ours, gloo)
    return ours


def reductions():
    def reduce(group, dtype, op):
        tensor = made(5, 3, dtype=dtype)
        dist.all_reduce(tensor, op, group=group)
        return tensor

    for op in (OPS.SUM, OPS.PRODUCT, OPS.MIN, OPS.MAX):
        for dtype in (*FLOATS, *INTEGERS):
            compare(reduce, dtype, op)
    for op in (OPS.BAND, OPS.BOR, OPS.BXOR):
        for dtype in INTEGERS:
            compare(reduce, dtype, op)
    for op in (OPS.SUM, OPS.PRODUCT, OPS.MIN, OPS.MAX, OPS.BAND, OPS.BOR):
        compare(reduce, torch.bool, op)
    compare(reduce, torch.complex64, OPS.SUM)
    product = torch.full((2,), 1 + 1j)
    dist.reduce(product, 0, OPS.PRODUCT)
    assert RANK > 0 or torch.allclose(product, torch.full((2,), (1 + 1j) ** WORLD))
    for parameter in (nn.Parameter(made(2, 3)), nn.Parameter(made(3, 2).t())):
        dist.all_reduce(parameter)
        assert torch.equal(parameter, sum(made(*parameter.shape, rank=rank) if parameter.is_contiguous()
                                          else made(3, 2, rank=rank).t() for rank in range(WORLD)))
    for op in (OPS.BAND, OPS.BOR, OPS.BXOR):
        kind, text, _ = ranks.raised(reduce, OURS, torch.float32, op)
        assert kind == "RuntimeError" and "float32" in text, text
    average = made(4)
    dist.all_reduce(average, OPS.AVG)
    assert torch.allclose(average, sum(made(4, rank=rank) for rank in range(WORLD)) / WORLD)


def layouts():
    """Views, empty tensors, and one element."""
    whole = made(4, 6)
    strided = whole.clone()
    dist.all_reduce(strided[:, ::2])
    everyone = sum(made(4, 6, rank=rank) for rank in range(WORLD))
    assert torch.equal(strided[:, ::2], everyone[:, ::2]) and torch.equal(strided[:, 1::2], whole[:, 1::2])
    for shape in ((0,), (), (1,)):
        tensor = torch.full(shape, float(RANK))
        dist.all_reduce(tensor)
        assert tensor.shape == shape and (tensor == sum(range(WORLD))).all()
    kind, text, _ = ranks.raised(dist.all_reduce, torch.eye(2).to_sparse_csr())
    assert kind == "NotImplementedError" and "layout" in text, (kind, text)


def sparse():
    """Ranks have elements of their own, and some have none."""
    def reduce(group, width, count):
        rows = torch.arange(RANK, RANK + count * RANK)
        tensor = torch.sparse_coo_tensor(rows[None], made(len(rows), *width), (20, *width))
        dist.all_reduce(tensor, group=group)
        return tensor.to_dense()

    for width in ((), (3,), (2, 2)):
        compare(reduce, width, 2)
    compare(reduce, (3,), 0)
    whole = torch.eye(4).to_sparse() * (RANK + 1)
    dist.all_reduce(whole)
    assert torch.equal(whole.to_dense(), torch.eye(4) * sum(range(1, WORLD + 1)))
    kind, text, _ = ranks.raised(dist.all_reduce, torch.eye(2).to_sparse(), OPS.MAX)
    assert kind == "ValueError" and "maximum of sparse" in text, (kind, text)
    model = nn.parallel.DistributedDataParallel(nn.Embedding(10, 4, sparse=True))
    model(torch.tensor([RANK, RANK + 1])).sum().backward()
    found = model.module.weight.grad.to_dense()
    assert torch.allclose(found[:, 0].sum(), torch.tensor(2.0)) and found[RANK + 1].sum() > 0, found


def copies():
    def broadcast(group, root):
        tensor = made(7)
        dist.broadcast(tensor, root, group=group)
        return tensor

    def all_gather(group):
        places = [torch.zeros(2, 3) for _ in range(WORLD)]
        dist.all_gather(places, made(2, 3), group=group)
        return places

    def into_one(group):
        place = torch.zeros(WORLD * 3)
        dist.all_gather_into_tensor(place, made(3), group=group)
        return place

    def gather(group, root):
        places = [torch.zeros(3) for _ in range(WORLD)] if root == RANK else None
        dist.gather(made(3), places, root, group=group)
        return places

    def scatter(group, root):
        place = torch.zeros(3)
        given = [made(3) * rank for rank in range(WORLD)] if root == RANK else None
        dist.scatter(place, given, root, group=group)
        return place

    for root in range(WORLD):
        compare(broadcast, root)
        compare(gather, root)
        compare(scatter, root)
    compare(all_gather)
    compare(into_one)
    place = torch.zeros(WORLD * 4, 6)
    dist.all_gather_into_tensor(place, made(6, 4).t())
    assert same(place, torch.cat([made(6, 4, rank=rank).t() for rank in range(WORLD)]))
    places = [torch.zeros(rank + 1) for rank in range(WORLD)]
    dist.all_gather(places, made(RANK + 1))
    assert same(places, [made(rank + 1, rank=rank) for rank in range(WORLD)]), places


def scattered_sums():
    def reduce(group, root):
        tensor = made(5)
        dist.reduce(tensor, root, group=group)
        return tensor if root == RANK else None

    def scatter(group, dtype):
        place = torch.zeros(3, dtype=dtype)
        dist.reduce_scatter_tensor(place, made(WORLD * 3, dtype=dtype), group=group)
        return place

    for root in range(WORLD):
        compare(reduce, root)
    for dtype in (torch.float32, torch.int64, torch.int8):
        compare(scatter, dtype)
    parts = [made(rank + 2) for rank in range(WORLD)]
    place = torch.zeros(RANK + 2)
    dist.reduce_scatter(place, parts)
    assert torch.equal(place, sum(made(RANK + 2, rank=rank) for rank in range(WORLD)))
    place = torch.zeros(4)
    dist.reduce_scatter(place, [made(4) * part for part in range(WORLD)], OPS.MAX)
    assert torch.equal(place, torch.stack([made(4, rank=rank) for rank in range(WORLD)]).amax(0) * RANK)


def all_to_all():
    def even(group):
        places = [torch.zeros(3) for _ in range(WORLD)]
        dist.all_to_all(places, [made(3) * (to + 1) for to in range(WORLD)], group=group)
        return places

    def single(group):
        place = torch.zeros(WORLD * 2)
        dist.all_to_all_single(place, made(WORLD * 2), group=group)
        return place

    def uneven(group):
        sizes = list(range(1, WORLD + 1))
        place = torch.zeros(WORLD * (RANK + 1))
        dist.all_to_all_single(place, made(sum(sizes)), [RANK + 1] * WORLD, sizes, group=group)
        return place

    for function in (even, single, uneven):
        compare(function)


def objects():
    def gathered(group):
        found = [None] * WORLD
        dist.all_gather_object(found, {"rank": RANK, "text": "x" * 100 * RANK}, group=group)
        return found

    def broadcast(group):
        found = [{"rank": RANK}, [RANK]]
        dist.broadcast_object_list(found, 1, group=group)
        return found

    def gather(group):
        found = [None] * WORLD if RANK == 0 else None
        dist.gather_object(RANK * 2, found, 0, group=group)
        return found

    def scatter(group):
        found = [None]
        dist.scatter_object_list(found, list("abc")[:WORLD] if RANK == 0 else None, 0, group=group)
        return found

    for function in (gathered, broadcast, gather, scatter):
        compare(function)


def later():
    """Operations that are not waited for at once: they end in their order."""
    tensors = [made(1000) * (i + 1) for i in range(5)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    works.append(dist.broadcast(gathered := made(3), 0, async_op=True))
    works.append(dist.reduce_scatter_tensor(torch.zeros(1), made(WORLD), async_op=True))
    for work in reversed(works):
        assert work.wait() and work.is_completed()
    total = sum(made(1000, rank=rank) for rank in range(WORLD))
    assert all(torch.equal(tensor, total * (i + 1)) for i, tensor in enumerate(tensors))
    assert torch.equal(gathered, made(3, rank=0))
    future = dist.all_reduce(made(10), async_op=True).get_future().then(lambda done: done.value()[0].sum())
    assert float(future.wait()) == float(sum(made(10, rank=rank).sum() for rank in range(WORLD)))


def callbacks():
    """A callback of a future waits for another operation, as PowerSGD's do."""
    def add(done):
        tensor, = done.value()
        return dist.all_reduce(tensor.clone(), async_op=True).get_future().wait()[0]

    future = dist.all_reduce(made(5), async_op=True).get_future().then(add)
    assert torch.equal(future.wait(), sum(made(5, rank=rank) for rank in range(WORLD)) * WORLD)

    def compress(group):
        torch.manual_seed(5)
        state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=1, start_powerSGD_iter=2)

        def wrap(model):
            made = nn.parallel.DistributedDataParallel(model, process_group=group)
            made.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            return made
        return trained(wrap)

    ours, gloo = map(compress, BOTH)
    assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(ours, gloo, strict=True))


def several_threads():
    """Groups of their own, each in a thread, and one group from two threads in turn."""
    groups = [dist.new_group() for _ in range(3)]
    found = {}

    def work(number):
        for turn in range(20):
            tensor = made(50) * (number + turn)
            dist.all_reduce(tensor, group=groups[number])
            found[number] = tensor
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = sum(made(50, rank=rank) for rank in range(WORLD))
    assert all(torch.equal(found[number], total * (number + 19)) for number in range(3))


def groups():
    ends = dist.new_group([0, WORLD - 1])
    if RANK in (0, WORLD - 1):
        tensor = made(4)
        dist.all_reduce(tensor, group=ends)
        assert torch.equal(tensor, made(4, rank=0) + made(4, rank=WORLD - 1))
        assert dist.get_rank(ends) == int(RANK > 0) and dist.get_backend(ends) == "gradsync"
        dist.broadcast(tensor, WORLD - 1, group=ends)
        dist.destroy_process_group(ends)
    alone = [dist.new_group([rank]) for rank in range(WORLD)][RANK]
    tensor = made(4)
    dist.all_reduce(tensor, group=alone)
    assert torch.equal(tensor, made(4))
    mesh = init_device_mesh("cpu", (WORLD,))
    assert mesh.get_rank() == RANK
    total = functional.all_reduce(made(3), "sum", OURS) + 0
    assert torch.equal(total, sum(made(3, rank=rank) for rank in range(WORLD)))
    everyone = functional.all_gather_tensor(made(3), 0, OURS) + 0
    assert torch.equal(everyone, torch.cat([made(3, rank=rank) for rank in range(WORLD)]))
    assert dist.get_rank() == RANK and dist.get_world_size() == WORLD and dist.get_backend() == "gradsync"


def trained(wrap):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
    model = wrap(model)
    optimiser = ranks.sgd(model)
    for step in range(5):
        optimiser.zero_grad()
        x, y = ranks.batch(step)
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return [getattr(param, "full_tensor", lambda it=param: it)().detach() for param in model.parameters()]


def wrapped():
    """torch's own DDP."""
    def wrap_in(group):
        return lambda model: nn.parallel.DistributedDataParallel(model, process_group=group)

    ours, gloo = [trained(wrap_in(group)) for group in BOTH]
    assert all(torch.allclose(*pair, atol=1e-6) for pair in zip(ours, gloo, strict=True))


def sharded():
    """FSDP2. The group of its mesh is the world."""
    parameters = trained(lambda model: fully_shard(model, mesh=init_device_mesh("cpu", (WORLD,))))
    gloo = trained(lambda model: nn.parallel.DistributedDataParallel(model, process_group=GLOO))
    assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(parameters, gloo, strict=True))


def wrong():
    """Mistakes are refused by name, and the group goes on."""
    for function, *arguments in ((dist.all_gather_into_tensor, torch.zeros(WORLD * 3 + 1), made(3)),
                                 (dist.reduce_scatter_tensor, torch.zeros(3), made(WORLD * 3 + 1))):
        kind, text, _ = ranks.raised(function, *arguments)
        assert kind == "ValueError" and f"world of {WORLD}" in text, (kind, text)
    kind, text, _ = ranks.raised(dist.all_reduce, made(3 + RANK))
    assert kind == "OperationMismatchError" and "bytes of f32" in text, (kind, text)
    for function, *arguments in ((dist.all_gather, [torch.zeros(4) for _ in range(WORLD)], made(2)),
                                 (dist.all_gather, [torch.zeros(2)], made(2)),
                                 (dist.all_to_all_single, torch.zeros(WORLD + 1), made(WORLD + 1))):
        kind, text, _ = ranks.raised(function, *arguments)
        assert kind in ("ValueError", "RuntimeError") and str(WORLD) in text, (kind, text)
    parts = [made(2 + (RANK == 0)) for _ in range(WORLD)]
    kind, text, _ = ranks.raised(dist.all_to_all, [torch.zeros(2) for _ in range(WORLD)], parts)
    assert kind == "ValueError" and f"3 elements for rank {RANK}, which expects 2" in text, (kind, text)
    for function, *arguments in ((dist.send, made(2), 1 - RANK % 2), (dist.recv, made(2), 1 - RANK % 2),
                                 (dist.recv, made(2))):
        kind, text, _ = ranks.raised(function, *arguments)
        assert kind == "NotImplementedError" and "send and recv" in text, (kind, text)
    if RANK == 0:
        work = dist.all_reduce(made(3), async_op=True)
        kind, text, _ = ranks.raised(work.wait, datetime.timedelta(milliseconds=20))
        assert kind == "RuntimeError" and "all_reduce" in text, (kind, text)
        dist.barrier(GLOO)
        work.wait()
    else:
        dist.barrier(GLOO)
        dist.all_reduce(made(3))


if __name__ == "__main__":
    ranks.main(globals())
    dist.destroy_process_group()
