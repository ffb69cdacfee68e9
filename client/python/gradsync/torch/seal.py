# SPDX-License-Identifier: Apache-2.0
"""Proofs that what members say and send in one exchange of a state came from them as it is.

The data of collectives travels between hosts in clear. The members of a generation share a secret that came
over TLS (Job.secret), and each puts random bytes of its own into what it says first (`words`). A proof is
HMAC-SHA-256 under that secret, of what it is about, of the rank that made it, of the words of all, and of the
data. So nothing that was changed has one, and neither has anything of an earlier exchange, of another rank,
or in another place.
"""
from __future__ import annotations

import hmac
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import torch

from ..errors import ProtocolError
from ..job import Job

SIZE = 32
NONCE = 16
#: So much is looked at at once; of what is on a GPU so much has a copy here.
PIECE = 16 << 20

#: What a proof is about, for people as well.
BEGINS, WORDS, SKELETON, TENSORS = b"that it begins", b"how far it is", b"skeleton", b"tensors"


def data_of(tensors: Iterable[torch.Tensor]) -> Iterator[Any]:
    """Their bytes, in order: of the host as they lie there, without a copy of those that are contiguous."""
    for each in tensors:
        flat = each.data.contiguous().view(-1).view(torch.uint8)
        for at in range(0, flat.numel(), PIECE):
            yield flat[at:at + PIECE].cpu().numpy()


def gather(job: Job, mine: bytes) -> bytes:
    """Of all members, in the order of ranks."""
    theirs = torch.empty(len(mine) * job.world_size, dtype=torch.uint8, device="cpu")
    job.allgather(torch.frombuffer(bytearray(mine), dtype=torch.uint8), theirs)
    return theirs.numpy().tobytes()


class Seal:
    """Of one exchange. `secret`: of the job when the exchange began."""

    def __init__(self, job: Job, secret: bytes, words: bytes) -> None:
        self._job, self._secret, self._words = job, secret, words

    def prove(self, what: bytes, data: Iterable[Any] = (), rank: int | None = None) -> bytes:
        """By that rank, or by this one."""
        of = struct.pack("<16sqq", what, self._job.rank if rank is None else rank, len(self._words))
        made = hmac.new(self._secret, of + self._words, "sha256")
        for each in data:
            made.update(each)
        return made.digest()

    def check(self, shown: bytes, what: bytes, rank: int, data: Iterable[Any] = ()) -> None:
        """ProtocolError: that rank has not sent this."""
        if not hmac.compare_digest(shown, self.prove(what, data, rank)):
            self.fail(what, rank)

    def compare(self, what: bytes) -> None:
        """All members together. ProtocolError: one of them does not do the same, or has heard other words."""
        proofs = gather(self._job, self.prove(what))
        for rank in range(self._job.world_size):
            self.check(proofs[rank * SIZE:(rank + 1) * SIZE], what, rank)

    def fail(self, what: bytes, rank: int) -> NoReturn:
        """What that rank has sent is not what has come."""
        raise ProtocolError(
            f"job '{self._job.name}': the state that rank {rank} sent was changed on its way between hosts "
            f"({what.decode()}), and rank {self._job.rank} has taken nothing of it. Something between the "
            "hosts writes to what Gloo or NCCL send: close that network to strangers (data_address in "
            "gradsyncd.conf(5), and the firewall), then start this rank again", rank=rank)


def compare_beginnings(job: Job) -> None:
    """All members together: all of them begin. Else a process that comes late could be kept from asking for a
    state. No member of a generation begins after a step of it, so an earlier proof is no harm."""
    secret = job.secret
    if secret:
        Seal(job, secret, b"").compare(BEGINS)
