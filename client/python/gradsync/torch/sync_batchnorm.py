# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the samples of all members.

PyTorch's class of that name needs a GPU and a process group; this one works on CPUs too, through gradsync.
DistributedDataParallel makes its layers of PyTorch's class into layers of this one.
Its collectives are in forward() and backward(), so all members run the same layers in the same order.
"""
from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from ..job import Job
from ..types import DType
from .world import world_of


def _sum(job: Job, tensor: torch.Tensor) -> torch.Tensor:
    job.allreduce(tensor, DType.F64)
    return tensor


def _exact(kind: torch.dtype) -> torch.dtype:
    """The type of the figures that are computed for each channel of such an input."""
    return torch.float64 if kind is torch.float64 else torch.float32


class _Normalise(torch.autograd.Function):
    """x → (x - mean) / deviation · weight + bias, with mean and deviation of all samples of all members; also
    gives mean, variance and the number of samples, which members add up in double precision. Each element is
    computed as BatchNorm does in evaluation."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float,
                job: Job) -> Any:
        """Means first and squares around them after that, so that nothing is lost by subtraction (Chan,
        Golub, LeVeque: Algorithms for computing the sample variance, 1983)."""
        kind = _exact(x.dtype)
        count = x.numel() // x.shape[1]
        mine, squares = _moments(x.to(kind), count)
        sums = _sum(job, torch.cat([mine * count, mine.new_tensor([count])]))
        total = sums[-1]
        mean = sums[:-1] / total
        variance = _sum(job, squares + (mine - mean).square() * count) / total
        found = mean.to(kind), variance.to(kind)
        made = torch.empty_like(x)      # torch's own kernels take no empty batch
        if count > 0:
            made = torch.nn.functional.batch_norm(x, *found, _as(kind, weight), _as(kind, bias), eps=eps)
        ctx.save_for_backward(x, weight, *found)
        ctx.job, ctx.eps, ctx.total = job, eps, total
        ctx.kinds = [None if each is None else each.dtype for each in (weight, bias)]
        ctx.mark_non_differentiable(mean, variance, total)
        return made, mean, variance, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradient of x includes the effect of each sample on mean and deviation. That effect is computed
        from the gradients of bias and weight, summed over all members. The gradients of bias and weight that
        are returned stay this member's own."""
        x, weight, mean, variance = ctx.saved_tensors
        kind, factor = mean.dtype, torch.ones_like(mean) if weight is None else _as(mean.dtype, weight)
        made, by_weight, by_bias = torch.zeros_like(x), torch.zeros_like(mean), torch.zeros_like(mean)
        if x.numel() > 0:
            made, by_weight, by_bias = torch.ops.aten.native_batch_norm_backward(
                grads[0].to(x.dtype), x, factor, mean, variance, None, None, False, ctx.eps, [True] * 3)
        sums = _sum(ctx.job, torch.cat([by_weight, by_bias]).to(torch.float64)) / ctx.total
        of_weight, of_bias = sums.to(kind).chunk(2)
        scale = (variance + ctx.eps).rsqrt()
        slope = factor * of_weight * scale.square()
        shape = [1, -1] + [1] * (x.dim() - 2)
        made -= (x * slope.view(shape) + (factor * scale * of_bias - slope * mean).view(shape)).to(made.dtype)
        return (made, *(None if kind is None else each.to(kind)
                        for each, kind in zip((by_weight, by_bias), ctx.kinds, strict=True)), None, None)


def _as(kind: torch.dtype, tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.to(kind)


def _moments(x: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """For each channel of this member's samples: the mean, and the sum of squares around it, in double
    precision. Both are 0 without a sample."""
    if count == 0:
        return (x.new_zeros(x.shape[1], dtype=torch.float64),) * 2
    variance, mean = torch.var_mean(x, [i for i in range(x.dim()) if i != 1], correction=0)
    return mean.to(torch.float64), variance.to(torch.float64) * count


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

    #: the layer's job is that of a wrapper, and was not named by the user
    _adopted = False

    def adopt(self, job: Job) -> None:
        """Called by a wrapper of this job: the job is the layer's, unless another one was named."""
        if self.process_group is None or self._adopted:
            self.process_group, self._adopted = job, True

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
        made, mean, variance, total = apply(input, self.weight, self.bias, self.eps, job)
        if self.track_running_stats:
            self._remember(mean, variance, float(total))
        return made  # type: ignore[no-any-return]

    def _remember(self, mean: torch.Tensor, variance: torch.Tensor, total: float) -> None:
        """Updates the running means, as BatchNorm does; those that are None are left out."""
        part = 0. if self.momentum is None else self.momentum
        with torch.no_grad():
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
                part = 1. / float(self.num_batches_tracked) if self.momentum is None else part
            unbiased = variance * (total / max(total - 1, 1))
            for kept, new in ((self.running_mean, mean), (self.running_var, unbiased)):
                if kept is not None:
                    kept.lerp_(new.to(kept.dtype), part)

    def __getstate__(self) -> dict[str, Any]:
        """A layer that is loaded from a file names no job."""
        return self.__dict__ | {"process_group": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> SyncBatchNorm:
        """A copy belongs to the same job."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        state = copy.deepcopy(self.__getstate__(), memo)
        nn.Module.__setstate__(made, state)     # type: ignore[no-untyped-call]
        made.process_group = self.process_group
        return made

    @classmethod
    def convert_sync_batchnorm(cls, module: nn.Module, process_group: Job | None = None) -> nn.Module:
        """Converts all BatchNorm layers in a module, with their parameters and running means. Call it before
        the module is wrapped."""
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
