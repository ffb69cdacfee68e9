# SPDX-License-Identifier: Apache-2.0
"""The place where the gradients of a model lie, and the way to mark them there.

On a GPU a gradient is complete when its stream has done the work that makes it. A mark goes with the current
stream, so that it does not wait for the backward pass.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.dlpack import from_dlpack

from ..errors import UnsupportedError
from ..types import DType, Device

if TYPE_CHECKING:
    from ..memory import Memory
    from ..plan import Plan
    from .layout import Slot

#: Marks a parameter: takes the handle of the plan and the parameter's number in it; returns a Result, 0 if
#: OK.
Mark = Callable[[Any, int], int]


class Host:
    """Gradients in memory of the host."""

    #: autograd may make gradients of large layers right where they lie
    direct = True
    device = torch.device("cpu")

    def check(self, served: Device) -> None:
        """UnsupportedError if the daemon cannot average there."""
        if served.ordinal is not None:
            raise UnsupportedError(f"the module is on the CPU, and gradsyncd serves {served.name}: move the "
                                   "module to that GPU, or name another daemon (GRADSYNC_DEVICE=cpu)")

    def named(self, device_ids: Sequence[Any] | None, output_device: Any) -> list[int] | None:
        """The GPUs that the arguments name. ValueError if they are not those of the module."""
        if device_ids or output_device is not None:
            raise ValueError(f"device_ids ({device_ids}) and output_device ({output_device}) are for modules "
                             "on a GPU; this one is on the CPU")
        return None

    def current(self) -> contextlib.AbstractContextManager[object]:
        """Within it, the daemon of this device is the one that is found."""
        return contextlib.nullcontext()

    def storage(self, memory: Memory, offset: int, nbytes: int) -> torch.UntypedStorage:
        """A storage on this part of the memory, which it keeps."""
        return torch.frombuffer(memory.buffer, dtype=torch.uint8, count=nbytes,
                                offset=offset).untyped_storage()

    def ready(self, plan: Plan) -> Mark:
        """The function that marks a gradient as ready after the work that this thread has begun so far."""
        mark: Mark = plan._c_ready
        return mark

    def absent(self, plan: Plan) -> Mark:
        """The function that marks a gradient as absent: it counts as zeros."""
        mark: Mark = plan._c_absent
        return mark

    def settle(self) -> None:
        """Waits for the work that this thread has begun."""

    def random_state(self) -> Callable[[], None]:
        """Returns a function that sets the random generators of modules on this device back to their present
        state."""
        state = torch.get_rng_state()
        return lambda: torch.set_rng_state(state)


class Gpu(Host):
    """Gradients on a GPU."""

    direct = False

    def __init__(self, index: int) -> None:
        self.index = index
        self.device = torch.device("cuda", index)

    def check(self, served: Device) -> None:
        if served.ordinal == self.index:
            return
        if served.ordinal is None and served.name:
            raise UnsupportedError(f"the module is on {self.device}, and this process has joined the job "
                                   f"through the daemon of {served.name}: call torch.cuda.set_device("
                                   f"{self.index}) and move the module to that GPU before anything of "
                                   "gradsync is used (DistributedSampler and default_job() join the job, "
                                   "too), or name the GPU's daemon by GRADSYNC_DEVICE=cuda:N; if there is "
                                   "none, start gradsyncd --device cuda:N")
        known = "" if served.ordinal is None else f", which is cuda:{served.ordinal} here"
        raise UnsupportedError(f"the module is on {self.device}, and gradsyncd serves "
                               f"{served.name or 'nobody, this process is alone'}{known}: start gradsyncd "
                               "--device cuda:N for that GPU, and name it by GRADSYNC_DEVICE if it is not "
                               "found")

    def named(self, device_ids: Sequence[Any] | None, output_device: Any) -> list[int] | None:
        for each in [*(device_ids or ()), *([] if output_device is None else [output_device])]:
            if (torch.device("cuda", each) if isinstance(each, int) else torch.device(each)) != self.device:
                raise ValueError(f"device_ids ({device_ids}) and output_device ({output_device}) name "
                                 f"another device than {self.device}, where the module is")
        return [self.index] if device_ids else None

    def current(self) -> contextlib.AbstractContextManager[object]:
        return torch.cuda.device(self.index)

    def storage(self, memory: Memory, offset: int, nbytes: int) -> torch.UntypedStorage:
        return from_dlpack(memory.array(DType.U8, offset, nbytes)).untyped_storage()

    def ready(self, plan: Plan) -> Mark:
        return self._in_stream(plan._c_ready_on)

    def absent(self, plan: Plan) -> Mark:
        return self._in_stream(plan._c_absent_on)

    def _in_stream(self, function: Callable[[Any, int, int], int]) -> Mark:
        stream: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
        index = self.index

        def mark(handle: Any, place: int) -> int:
            return function(handle, place, stream(index))

        return mark

    def settle(self) -> None:
        torch.cuda.current_stream(self.index).synchronize()

    def random_state(self) -> Callable[[], None]:
        on_host, state = super().random_state(), torch.cuda.get_rng_state(self.device)

        def set_back() -> None:
            on_host()
            torch.cuda.set_rng_state(state, self.device)

        return set_back


def device_of(device: torch.device) -> Host:
    """The Host, or Gpu, of a module whose parameters are on this device. UnsupportedError for a device that
    is neither a CPU nor a GPU of CUDA."""
    if device.type == "cpu":
        return Host()
    if device.type == "cuda" and torch.version.hip is None:
        return Gpu(device.index if device.index is not None else torch.cuda.current_device())
    raise UnsupportedError(f"parameters are on {device}: gradsync averages gradients on CPUs and on GPUs of "
                           "CUDA")
