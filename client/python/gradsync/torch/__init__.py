# SPDX-License-Identifier: Apache-2.0
"""gradsync for PyTorch: DistributedDataParallel, the state that a job keeps when it loses a member, and the
backend "gradsync" of torch.distributed."""
try:
    import torch as _torch  # noqa: F401
except ImportError as _problem:
    raise ImportError("gradsync.torch needs PyTorch, which is not installed: pip install torch") from _problem

from .. import _backend
from .compress import allreduce_hook, bf16_compress_hook, fp16_compress_hook
from .distributed import DistributedDataParallel
from .errors import (GradientKindError, MarkedTwiceError, ModelChangedError, NoStateError,
                     ParametersDifferError, UnfinishedStepError)
from .payload import register_state_type
from .sampler import DistributedSampler
from .state import State
from .sync_batchnorm import SyncBatchNorm
from .world import default_job

_backend.register()

__all__ = [
    "DistributedDataParallel", "DistributedSampler", "GradientKindError", "MarkedTwiceError",
    "ModelChangedError", "NoStateError", "ParametersDifferError", "State", "SyncBatchNorm",
    "UnfinishedStepError",
    "allreduce_hook", "bf16_compress_hook", "default_job", "fp16_compress_hook", "register_state_type",
]
