# SPDX-License-Identifier: Apache-2.0
"""The path of a GPU on a machine without one: gradients are lent by DLPack and marked in the current stream,
as gradsync.torch does it on a GPU, but they lie in memory of the host.

A CPU build of PyTorch cannot show tensors on a GPU, and work that is still under way when it is marked: the
tests leave these out.
"""
import contextlib

import torch
from torch.utils.dlpack import from_dlpack

from gradsync import DeviceArray, DType, _dlpack
from gradsync.torch import device, distributed

STREAM = 7


#: From which modules on the GPU draw.
GENERATOR = torch.Generator()


class Pretended(device.Gpu):
    marked = settled = 0

    def __init__(self):
        super().__init__(0)
        self.device = torch.device("cpu")

    def check(self, served):
        assert served.ordinal is None

    named = device.Host.named

    def current(self):
        return contextlib.nullcontext()

    def storage(self, memory, offset, nbytes):
        array = DeviceArray(memory.address + offset, DType.U8, nbytes, (_dlpack.CPU, 0), memory.buffer)
        return from_dlpack(array).untyped_storage()

    def _of(self, function):
        def mark(handle, place, stream):
            assert stream == STREAM
            Pretended.marked += 1
            return function(handle, place)
        return self._in_stream(mark)

    def ready(self, plan):
        return self._of(plan._c_ready)

    def absent(self, plan):
        return self._of(plan._c_absent)

    def settle(self):
        Pretended.settled += 1


@contextlib.contextmanager
def pretended():
    """Wrappers that are made within it take this path, and no other."""
    before, distributed.device_of = distributed.device_of, lambda _device: Pretended()
    torch._C._cuda_getCurrentRawStream = lambda index: STREAM + index
    Pretended.marked = Pretended.settled = 0
    get, put = torch.cuda.get_rng_state, torch.cuda.set_rng_state
    torch.cuda.get_rng_state = lambda device: GENERATOR.get_state()
    torch.cuda.set_rng_state = lambda state, device: GENERATOR.set_state(state)
    try:
        yield
        assert Pretended.marked > 0
    finally:
        distributed.device_of = before
        torch.cuda.get_rng_state, torch.cuda.set_rng_state = get, put
        del torch._C._cuda_getCurrentRawStream
