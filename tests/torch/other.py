# SPDX-License-Identifier: Apache-2.0
"""Cases that PyTorch's DDP cannot do here, or does not do, and the lives of wrappers, processes and jobs. Two
ranks, except for normalised_over_all().
"""
import contextlib
import copy
import os
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import counters
import gradsync
import gradsync.torch
import models
import ranks
import streams
from ranks import FOLDER, NOTHING, RANK, WORLD, batch, equal, raised, same_everywhere, sgd, wrap

#: Elements of the parameters of models.mlp().
MLP = 16 * 48 + 48 + 48 * 32 + 32 + 32 * 10 + 10
#: Bytes of a branch of models.Branches().
BRANCH = 4 * (16 * 16 + 16)


def loss_of(model, step=0, *more, rank=RANK):
    x, y = batch(step, rank)
    return functional.cross_entropy(model(x, *more), y)


def frozen_and_unfrozen():
    """Layers that were frozen when the model was wrapped take part once they are not; others stop to."""
    inner = models.mlp()
    inner[0].requires_grad_(False)
    model = wrap(inner)
    optimiser = sgd(inner)
    for step in range(12):
        inner[0].requires_grad_(step >= 4)
        inner[2].requires_grad_(step < 8)
        optimiser.zero_grad()
        loss_of(model, step).backward()
        assert [inner[i].weight.grad is not None for i in (0, 2, 4)] == [step >= 4, step < 8, True], step
        optimiser.step()
    assert same_everywhere(model)


def frozen_in_turn():
    """Layers that were frozen when the model was wrapped take turns: no plan for each turn."""
    inner = models.mlp()
    inner[0].requires_grad_(False)
    model = wrap(inner)
    plans = []
    for step in range(8):
        inner[0].requires_grad_(step % 2 == 0)
        inner[2].requires_grad_(step % 2 == 1)
        model.zero_grad()
        loss_of(model, step).backward()
        plans.append(model._world.plans)
    inner.add_module("more", nn.Linear(10, 10).requires_grad_(False))
    loss_of(model, 9).backward()
    first, *others = plans
    assert len(set(others)) == 1 and others[0] <= first + 1, "by the observed order, if at all"
    assert inner[0].weight.grad is None and inner[2].weight.grad is not None


def all_frozen():
    """A pass through a model whose parameters are all frozen is no step of it."""
    maker, critic = wrap(models.mlp((16, 32, 16))), wrap(models.mlp((16, 32, 1)))
    for step in range(3):
        critic.requires_grad_(False)
        critic(maker(batch(step)[0])).mean().backward()
        critic.requires_grad_(True)
        critic(batch(step)[0]).mean().backward()
    assert (maker.info.step, critic.info.step) == (3, 3)


def log():
    """The data that DDP reports."""
    model = wrap(models.mlp(), bucket_cap_mb=0.002)
    for step in range(3):
        loss_of(model, step).backward()
        norm = nn.utils.get_total_norm([param.grad for param in model.parameters()]).item()
        model.zero_grad()
    data = model._get_ddp_logging_data()
    assert abs(data["gradient_norm"] - norm) < 1e-5 * norm, "the norm comes with the step"
    assert (data["iteration"], data["has_rebuilt_buckets"]) == (3, 0), "the order was the expected one"
    expected = {
        "module_name": "Sequential", "world_size": 2, "backend_name": "gradsync", "device_ids": "",
        "output_device": -1, "broadcast_buffers": 1, "find_unused_parameters": 0, "static_graph": 0,
        "comm_hook": "", "has_sync_bn": 0, "dtypes": "float32", "num_parameter_tensors": 6,
        "total_parameter_size_bytes": 4 * MLP, "bucket_cap_bytes": int(0.002 * 2 ** 20),
        "unused_parameter_size": 0, "can_set_static_graph": 1}
    assert {key: data[key] for key in expected} == expected
    sizes, buckets = [int(size) for size in data["bucket_sizes"].split(",")], data["per_bucket_times"]
    assert sum(sizes) == 4 * MLP
    assert len(sizes) == len(buckets) == data["per_bucket_param_indices"].count("[") > 1
    assert all(bucket["ready_ns"] <= bucket["done_ns"] for bucket in buckets)
    for name in ("forward_compute_time", "backward_compute_time", "backward_comm_time"):
        assert data[name] > 0, name
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        model(batch(3)[0])
    assert "gradsync.DistributedDataParallel.forward" in {event.key for event in profile.key_averages()}
    small = wrap(models.mlp())
    small.register_comm_hook(None, gradsync.torch.fp16_compress_hook)
    assert small._get_ddp_logging_data()["comm_hook"] == "fp16_compress_hook"


def plans_by_the_observed_order():
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
    assert orders[0] == [3, 2, 1, 0], "the reverse of the order in which the model has them"
    assert sorted(orders[4][:2]) == [2, 3], "the layer that is used last"
    assert orders[9] == orders[4], "the change was in step 6; it is looked for after step 10"
    assert sorted(orders[11][:2]) == [0, 1]
    assert model._observer.replanned == 1 + (orders[4] != orders[0])


def gradients_that_a_script_keeps():
    """They can be read when the plan that they lay in is gone, and when the job is."""
    model = wrap(nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 10)))
    kept = []
    for step in range(3):
        model(batch(step)[0]).sum().backward()
        kept += [param.grad for param in model.parameters()]
        model.zero_grad()
    del model
    assert len(kept) == 12 and all(each.isfinite().all() for each in kept)


class Flat(nn.Module):
    """Normalises inputs without dimensions of their own, and learns nothing in doing so."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(6, 8), nn.BatchNorm1d(8, affine=False), nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.norm(self.first(x.flatten(1)[:, :6])))


def normalised_over_all():
    """SyncBatchNorm on parts is BatchNorm on the whole, however many samples each rank has: one, or none."""
    for kind, rows in ((models.Cnn, [2 + rank for rank in range(WORLD)]), (models.Cnn, [1] * WORLD),
                       (lambda: models.Cnn(channels_last=True), [2] * WORLD), (Flat, [3] * WORLD),
                       (models.Cnn, [4] + [0] * (WORLD - 1))):
        torch.manual_seed(7)
        if sum(rows) > 1:
            check_normalised(kind().double(), rows)
    part = wrap(gradsync.torch.SyncBatchNorm.convert_sync_batchnorm(models.Cnn()))
    if RANK == 0:
        with torch.no_grad():
            assert part.module.eval()(torch.randn(2, 3, 8, 8)).isfinite().all()
    part.job.barrier()
    assert part._get_ddp_logging_data()["has_sync_bn"] == 1
    assert sorted(part.module.state_dict()) == sorted(models.Cnn().state_dict())


def check_normalised(whole, rows):
    """Outputs, gradients and buffers."""
    part = wrap(gradsync.torch.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole)))
    mine = slice(sum(rows[:RANK]), sum(rows[:RANK + 1]))
    for step in range(5):
        images = torch.randn(sum(rows), 3, 8, 8, generator=torch.Generator().manual_seed(step)).double()
        ours, theirs = part(images[mine]), whole(images)
        assert torch.allclose(ours, theirs[mine], rtol=0, atol=1e-9)
        part.zero_grad()
        whole.zero_grad()
        (ours.square().sum() * WORLD).backward()
        theirs.square().sum().backward()
        for a, b in zip(part.module.parameters(), whole.parameters(), strict=True):
            assert (a.grad - b.grad).norm() < 1e-9 * (1e-3 + b.grad.norm())
        for a, b in zip(part.module.buffers(), whole.buffers(), strict=True):
            assert torch.allclose(a.double(), b.double(), rtol=0, atol=1e-9)


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
                loss_of(model, step).backward()
                opt.step()
    if RANK == 0:
        torch.save(state.state_dict(), f"{FOLDER}/checkpoint")
    again, optimiser, state = made()
    if RANK == 0:
        state.load_state_dict(torch.load(f"{FOLDER}/checkpoint"))
    else:
        state.agree()
    assert state.count == 4 and equal(model.parameters(), again.parameters())
    assert equal(*([each["exp_avg"] for each in one.state.values()] for one in (opt, optimiser)))


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
    first, again, second, second_again = drawn
    assert first == again and second == second_again
    assert all(one != other for one, other in zip(first, second))


def void_step():
    """It leaves nothing, neither in buffers nor in gradients."""
    model = wrap(models.Cnn())
    buffers, tried = list(model.buffers()), 0
    before = [each.clone() for each in buffers]
    for attempt in gradsync.State(model=model).step():
        with attempt:
            assert equal(buffers, before)
            loss = model(torch.randn(4, 3, 8, 8)).square().sum()
            assert not equal(buffers, before)
            tried += 1
            if tried == 1:
                raise gradsync.VoidStep
    assert tried == 2
    loss.backward(inputs=[model.module.head.bias])
    assert model.module.head.bias.grad is not None
    model._reducer.abandon()
    assert all(param.grad is None for param in model.parameters())


def two_forwards_of_normalisation():
    """Buffers are broadcast between two forward passes whose backward pass comes after both."""
    model = wrap(models.Cnn())
    optimiser = sgd(model)
    for step in range(4):
        made = torch.Generator().manual_seed(10 * step + RANK)
        optimiser.zero_grad()
        first, second = (model(torch.randn(4, 3, 8, 8, generator=made)) for _ in range(2))
        (first.square().mean() + second.square().mean()).backward()
        optimiser.step()
    assert same_everywhere(model)


def unused_beside_a_checkpoint():
    """A reentrant checkpoint beside a parameter that is not used, where PyTorch's DDP raises: as if it had
    been said that the graph is always the same."""
    ended = []
    for options in ({"find_unused_parameters": True}, {"static_graph": True}):
        torch.manual_seed(7)
        model = wrap(models.Checkpointed(reentrant=True, times=1), **options)
        optimiser = sgd(model)
        for step in range(6):
            x, y = batch(step)
            optimiser.zero_grad()
            functional.cross_entropy(model(x.requires_grad_()), y).backward()
            optimiser.step()
        ended.append(model.parameters())
    assert equal(*ended)


def daemon_moves_the_gradients():
    """By its own account the daemon has reduced the gradients of each step that was synchronised, once, to
    the byte, and nothing else has carried any: there is no process group."""
    said = []

    def ask():
        if RANK == 0:
            found = counters.job()
            assert found["void_steps"] == 0
            said.append(found["bytes_reduced"])

    model = wrap(models.mlp())
    ask()
    for options in ({}, {"bucket_cap_mb": 0.002}):
        model = wrap(models.mlp(), **options)
        for step in range(12):
            with model.no_sync() if step % 4 == 1 else contextlib.nullcontext():
                loss_of(model, step).backward()
        ask()
    small = wrap(models.mlp())
    small.register_comm_hook(None, gradsync.torch.bf16_compress_hook)
    for step in range(3):
        loss_of(small, step).backward()
    ask()
    with torch.no_grad():
        small(batch(0)[0])
    small.job.barrier()
    ask()
    assert not dist.is_initialized()
    if RANK == 0:
        steps, few = 4 * MLP * 9, 2 * MLP * 3
        assert [each - said[0] for each in said[1:]] == [steps, 2 * steps, 2 * steps + few, 2 * steps + few]


def no_sync_within_no_sync():
    """The end of the inner one is not that of the outer one."""
    model = wrap(models.mlp())
    with model.no_sync():
        with model.no_sync():
            loss_of(model).backward()
        loss_of(model).backward()
    assert model._reducer.steps == 0
    loss_of(model).backward()
    assert model._reducer.steps == 1


def accumulated_over_plans():
    """Gradients that were accumulated count when all plan again."""
    inner = models.mlp()
    inner[0].requires_grad_(False)
    model, plain = wrap(inner), copy.deepcopy(inner)
    (sum(loss_of(plain, step, rank=rank) for rank in range(WORLD) for step in (0, 1)) / WORLD).backward()
    with model.no_sync():
        loss_of(model, 0).backward()
    inner[0].requires_grad_(True)
    loss_of(model, 1).backward()
    for i in (2, 4):
        assert torch.allclose(inner[i].weight.grad, plain[i].weight.grad, atol=1e-6)


def layers_dropped():
    """All ranks agree on the dropped layers. These are not averaged; their gradients stay as they are."""
    model = wrap(models.Branches(), find_unused_parameters=True)
    for step in range(6):
        model.zero_grad()
        loss_of(model, step, [step % 2]).backward()
        unset = [branch.weight.grad is None for branch in model.module.branches]
        assert unset == [step % 2 == 1, step % 2 == 0, True, True]
    data = model._get_ddp_logging_data()
    assert data["unused_parameter_size"] == 3 * BRANCH and data["can_set_static_graph"] == 0
    for others, many in ((0, 3), (3, 2)):
        model.zero_grad()
        loss_of(model, 5, [0 if RANK == 0 else others]).backward()
        assert model._get_ddp_logging_data()["unused_parameter_size"] == many * BRANCH


def dropped_layers_move_nothing():
    """The daemon counts no bytes for a bucket of which no rank has used anything. Each parameter has a bucket
    of its own."""
    model = wrap(models.Branches(), find_unused_parameters=True, bucket_cap_mb=1e-6)
    always, before = BRANCH + 4 * (16 * 10 + 10), 0
    for used, many in (([0], 1), ([0, 1], 2), ([], 0), ([0, 1, 2, 3], 4), ([RANK], 2), ([2], 1), ([3], 1)):
        if RANK == 0:
            before = counters.job()["bytes_reduced"]
        model.job.barrier()
        loss_of(model, 0, used).backward()
        assert model.info.bytes == always + BRANCH * many, used
        if RANK == 0:
            assert counters.job()["bytes_reduced"] - before == model.info.bytes, used
        model.zero_grad()


# ---- lives

def wrapped_again():
    """The last wrapper averages; one that it has superseded says so, one that is gone does nothing, also if
    the graph of a pass through it is there."""
    inner = models.mlp()
    model = wrap(inner)
    loss_of(model).backward()
    loss = loss_of(model)
    model = wrap(inner)
    loss_of(model).backward()
    inner.zero_grad()
    loss.backward()
    assert all(param.grad is not None for param in inner.parameters())
    first, again = wrap(inner), wrap(inner)
    kind, text, _ = raised(loss_of, first)
    assert kind == "StateError" and "0.weight" in text and "made later" in text
    assert raised(loss_of, again) == NOTHING


def many_wrappers():
    """Plans, memory and descriptors of those that are gone are given back."""
    model = wrap(models.mlp())
    seen = []
    for _ in range(20):
        model = wrap(models.mlp())
        model.register_comm_hook(None, gradsync.torch.bf16_compress_hook)
        loss_of(model).backward()
        model.zero_grad()
        maps = pathlib.Path("/proc/self/maps").read_text()
        seen.append((maps.count("memfd:python-gradients"), len(os.listdir("/proc/self/fd"))))
    assert seen[-1] == seen[4]
    assert len(model.job._plans) == len(model.job._memories) <= 2


def forked(in_child):
    """Runs in a child, which must say True."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if in_child() else 3)
        finally:
            os._exit(4)
    assert os.waitpid(pid, 0)[1] == 0


def child():
    """A forked child trains the module by itself; the wrapper refuses to."""
    inner = models.mlp()
    model = wrap(inner)
    loss_of(model).backward()

    def train():
        told = raised(loss_of, model)
        loss_of(inner).backward()
        return told[0] == "ForkedError" and inner[0].weight.grad.any()

    forked(train)
    loss_of(model, 1).backward()
    assert same_everywhere(model)


def child_in_pass():
    """A process that is forked between forward and backward ends the pass by itself: it has not got the
    memory in which gradients would be made."""
    inner = models.mlp()
    model = wrap(inner)
    loss_of(inner).backward()
    expected = [param.grad.clone() for param in inner.parameters()]
    model.zero_grad()
    loss = loss_of(model)
    forked(lambda: loss.backward() or equal([param.grad for param in inner.parameters()], expected))
    loss.backward()
    assert same_everywhere(model)


def child_in_backward():
    """One that is forked when the gradient of a weight has just been made there can read all gradients."""
    inner = models.mlp()
    model = wrap(inner)
    loss = loss_of(model)

    def fork(_param):
        forked(lambda: all(param.grad is None or param.grad.isfinite().all() for param in inner.parameters()))

    handle = inner[2].weight.register_post_accumulate_grad_hook(fork)
    loss.backward()
    handle.remove()
    assert same_everywhere(model)


def module_alone():
    """A pass of the module alone is a rank's own business."""
    inner = models.mlp()
    model = wrap(inner)
    if RANK == 0:
        loss_of(inner, 77).backward()
    for step in range(3):
        model.zero_grad()
        loss_of(model, step).backward()
        plain = models.mlp()
        plain.load_state_dict(inner.state_dict())
        (sum(loss_of(plain, step, rank=rank) for rank in range(WORLD)) / WORLD).backward()
        for ours, theirs in zip(inner.parameters(), plain.parameters(), strict=True):
            assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)
        if RANK == WORLD - 1:
            model.zero_grad()
            loss_of(inner, 99).backward()
    assert model.info.step == 3


def converted():
    """The model is converted after it was wrapped."""
    model = wrap(models.mlp())
    loss_of(model).backward()
    model.double()
    kind, text, _ = raised(lambda: model(torch.zeros(1, 16).double()))
    assert kind == "ModelChangedError"
    assert "0.weight" in text and f"rank {RANK}" in text and "float64" in text


def names():
    """Names that a plan cannot have as they are."""
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.all = nn.ParameterDict({name: nn.Parameter(torch.full((3,), float(RANK))) for name in (
                "1" + "x" * 300, "2" + "x" * 300, "a b\tc", "\udc80", "ü" * 200)})

        def forward(self, x):
            return sum(param.sum() for param in self.all.values()) * x.sum()

    model = wrap(Named())
    model(torch.ones(2) * RANK).backward()
    assert [param.grad.tolist() for param in model.parameters()] == [[1.] * 3] * 5 and same_everywhere(model)


def length_of_sampler():
    """In the course of an epoch the length is that of PyTorch's sampler."""
    rows = list(range(23))
    for drop in (False, True):
        ours = gradsync.torch.DistributedSampler(rows, batch_size=4, drop_last=drop)
        theirs = torch.utils.data.DistributedSampler(rows, WORLD, RANK, drop_last=drop)
        for step in range(4):
            assert list(ours) == list(theirs)[4 * step:] and len(ours) == len(theirs)
            ours.advance()
        ours.next_epoch()
        theirs.set_epoch(1)
        assert list(ours) == list(theirs)


def storage_of_gradients():
    """A gradient that is saved does not take the others with it."""
    model = wrap(models.mlp())
    loss_of(model).backward()
    for param in model.parameters():
        assert param.grad.untyped_storage().nbytes() == param.grad.nbytes


def job_left():
    """After Job.leave(): a backward pass that had begun, forward passes, the module alone; and gradients that
    a script has kept. The last case: the ranks can meet no more."""
    inner = models.mlp()
    model = wrap(inner)
    loss_of(model).backward()
    kept = [param.grad for param in inner.parameters()]
    loss = loss_of(model, 1)
    model.job.leave()
    for function in (loss.backward, lambda: loss_of(model)):
        kind, text, _ = raised(function)
        assert kind == "StateError" and "left" in text
    with torch.no_grad():
        model(batch(0)[0])
    del model, loss
    inner.zero_grad()
    loss_of(inner).backward()
    assert all(param.grad is not None for param in inner.parameters()), "the module alone trains on"
    assert all(each.isfinite().all() for each in kept)


if __name__ == "__main__":
    ranks.main(globals())
