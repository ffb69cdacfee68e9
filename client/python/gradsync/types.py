# SPDX-License-Identifier: Apache-2.0
"""Enumerations and records that calls take and return."""
from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class DType(enum.IntEnum):
    """Element types (enum gradsync_dtype). F16 and BF16 are added in F32."""

    F32 = 1
    F64 = 2
    F16 = 3
    BF16 = 4
    I32 = 5
    I64 = 6
    U8 = 7

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return ITEM_SIZES[self]

    @property
    def format(self) -> str | None:
        """The type's name in the modules struct and array; None for BF16, for which they have none."""
        return FORMATS[self]


ITEM_SIZES = {DType.F32: 4, DType.F64: 8, DType.F16: 2, DType.BF16: 2, DType.I32: 4, DType.I64: 8,
              DType.U8: 1}
FORMATS = {DType.F32: "f", DType.F64: "d", DType.F16: "e", DType.BF16: None, DType.I32: "i", DType.I64: "q",
           DType.U8: "B"}


class Reduce(enum.IntEnum):
    """How the members' elements are combined (enum gradsync_reduce). AVG is for floating-point types only."""

    AVG = 1
    SUM = 2
    MIN = 3
    MAX = 4
    PROD = 5


class Param(NamedTuple):
    """A parameter of a plan: its name (unique in the plan), element type and shape; () for a scalar."""

    name: str
    dtype: DType
    shape: Sequence[int]

    @property
    def elements(self) -> int:
        """How many elements its gradient has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its gradient."""
        return self.elements * ITEM_SIZES[DType(self.dtype)]


class Raw(NamedTuple):
    """Memory by its address, for calls that take a buffer. The caller keeps it where it is during the
    call."""

    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Device:
    """The device that a daemon serves."""

    #: "cpu", "cuda:0", …: the daemon's name for it; "": this process is alone
    name: str
    #: UUID of the GPU, as nvidia-smi prints it; "": no GPU
    uuid: str
    #: number of the GPU in this process, as CUDA counts them here; None: no GPU
    ordinal: int | None


@dataclass(frozen=True, slots=True)
class Info:
    """The outcome of a step and its figures, as finish() returns them."""

    #: number of the step, from 1
    step: int
    #: norm of the whole result, over all buckets
    norm: float
    #: NaN and infinite elements in all members' inputs
    nonfinite: int
    #: the lowest rank that had some, or None
    nonfinite_rank: int | None
    #: payload that was reduced, without buckets whose parameters all members have called absent
    bytes: int
    #: seconds that finish() and wait() blocked in this step
    exposed_s: float
    #: seconds since the previous finish(), or the plan
    elapsed_s: float
    #: if the step is void: the rank that was lost, the pid of its process (0: none, the job has grown),
    #: and the reason
    lost_rank: int
    lost_pid: int
    cause: str


@dataclass(frozen=True, slots=True)
class BucketStats:
    """Statistics of one bucket: of one rank's input, or of the result."""

    #: square root of the sum of squares
    norm: float
    #: NaN and infinite elements
    nonfinite: int


@dataclass(frozen=True, slots=True)
class Stall:
    """A wait of a step, a collective or the agreement on a plan, and the member that it waits for."""

    #: number of the step; 0: no step waits
    step: int
    rank: int
    pid: int
    #: "running", "sleeping", "stopped", "traced", "zombie", "gone"
    process_state: str
    bucket: int
    #: the first that is not marked; "" if it is not known
    parameter: str
    #: how long the wait has lasted
    since_ms: int
    #: the whole report in one sentence
    text: str
    #: host of the member, or of the daemon that does not answer; "": it is on this daemon
    host: str = ""
