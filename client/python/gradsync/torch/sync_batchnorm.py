# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the samples of all members.

PyTorch's class of that name needs a GPU and a process group; this one works on CPUs too, through gradsync.
DistributedDataParallel makes its layers of PyTorch's class into layers of this one.
Its collectives are in forward() and backward(), so all members run the same layers in the same order.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..job import Job
from ..types import DType
from .world import world_of

_TYPES = {torch.float32: DType.F32, torch.float64: DType.F64}


def _sum(job: Job, tensor: torch.Tensor) -> torch.Tensor:
    job.allreduce(tensor, _TYPES[tensor.dtype])
    return tensor


class _Normalise(torch.autograd.Function):
    """x → (x - mean) / deviation, both of all samples of all members; also gives mean, variance and their
    number."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, eps: float, job: Job) -> Any:
        """Means first and squares around them after that, so that nothing is lost by subtraction."""
        dims = [i for i in range(x.dim()) if i != 1]
        shape = [1, -1] + [1] * (x.dim() - 2)
        exact = x.to(torch.float64)
        count = x.numel() // x.shape[1]
        counted = torch.tensor([count], dtype=torch.float64, device=x.device)
        sums = _sum(job, torch.cat([exact.sum(dims), counted]))
        total = sums[-1]
        mean = sums[:-1] / total
        variance = _sum(job, (exact - mean.view(shape)).square().sum(dims)) / total
        scale = (variance + eps).rsqrt()
        normal = ((exact - mean.view(shape)) * scale.view(shape)).to(x.dtype)
        ctx.save_for_backward(normal, scale)
        ctx.job, ctx.dims, ctx.shape, ctx.total = job, dims, shape, total
        ctx.mark_non_differentiable(mean, variance, total)
        return normal, mean, variance, total

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The part of each sample in mean and deviation takes the sums over all members."""
        normal, scale = ctx.saved_tensors
        grad, exact = grads[0].to(torch.float64), normal.to(torch.float64)
        sums = _sum(ctx.job, torch.stack([grad.sum(ctx.dims), (grad * exact).sum(ctx.dims)])) / ctx.total
        mean, part = (each.view(ctx.shape) for each in sums)
        made = (grad - mean - exact * part) * scale.view(ctx.shape)
        return made.to(normal.dtype), None, None


class SyncBatchNorm(nn.SyncBatchNorm):
    """As torch.nn.SyncBatchNorm: input (N, C, …); in training, means and variances are those of all
    members' samples. In evaluation, and in a world of one, it is BatchNorm.

    process_group   the gradsync.Job; None: that of the DistributedDataParallel in which it is wrapped, or
                    else the one that the environment names
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = True, track_running_stats: bool = True, process_group: Job | None = None,
                 device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, process_group, device,
                         dtype, bias=bias)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Collective in training, if there are other members."""
        self._check_input_dim(input)
        job = world_of(self.process_group).job if self.training else None
        if job is None or job.world_size == 1:
            return nn.modules.batchnorm._BatchNorm.forward(self, input)
        apply: Callable[..., Any] = _Normalise.apply
        normal, mean, variance, total = apply(input, self.eps, job)
        if self.track_running_stats:
            self._remember(mean, variance, float(total))
        shape = [1, -1] + [1] * (input.dim() - 2)
        made: torch.Tensor = normal
        if self.weight is not None:
            made = made * self.weight.view(shape)
        return made if self.bias is None else made + self.bias.view(shape)

    def _remember(self, mean: torch.Tensor, variance: torch.Tensor, total: float) -> None:
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None and self.running_var is not None
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            part = 1. / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            unbiased = variance * (total / max(total - 1, 1))
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), part)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), part)

    def __getstate__(self) -> dict[str, Any]:
        """A copy, and what is loaded from a file, names no job."""
        return self.__dict__ | {"process_group": None}

    @classmethod
    def convert_sync_batchnorm(cls, module: nn.Module, process_group: Job | None = None) -> nn.Module:
        """All BatchNorm layers in a module, and what was learnt in them. Before the module is wrapped."""
        made = module
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            made = cls(module.num_features, module.eps, module.momentum, module.affine,
                       module.track_running_stats, process_group)
            made.weight, made.bias = module.weight, module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            made.num_batches_tracked = module.num_batches_tracked
            made.training = module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made
