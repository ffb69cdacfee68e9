# SPDX-License-Identifier: Apache-2.0
"""A sampler that knows how far the training is, not how far the loader has read ahead."""
from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch.utils.data import Sampler

from ..job import Job
from .world import world_of


class DistributedSampler(Sampler[int]):
    """Each rank's share of a data set, in the order of torch.utils.data.DistributedSampler.

    With gradsync.State it goes on where the training is: `batch_size` samples of this rank belong to a step
    that is committed. Unlike PyTorch's, it counts epochs itself: next_epoch().

    Without `job` it joins the job that the environment names. A script that trains on a GPU calls
    torch.cuda.set_device() and moves its module there before, or sets GRADSYNC_DEVICE.
    """

    def __init__(self, dataset: Sized, batch_size: int, *, shuffle: bool = True, seed: int = 0,
                 drop_last: bool = False,
                 job: Job | None = None) -> None:
        self._job = world_of(job).job
        self._size, self._batch_size = len(dataset), batch_size
        self._shuffle, self._seed, self._drop_last = shuffle, seed, drop_last
        self.epoch = 0
        #: samples of this rank in this epoch that are in committed steps
        self.position = 0

    def __len__(self) -> int:
        """Of a whole epoch, as PyTorch's, wherever in it the training is."""
        world = self._job.world_size
        if self._drop_last and self._size % world:
            return -(-(self._size - world) // world)
        return -(-self._size // world)

    def _share(self) -> list[int]:
        world, rank, each = self._job.world_size, self._job.rank, len(self)
        if self._shuffle:
            order = torch.randperm(self._size,
                                   generator=torch.Generator().manual_seed(self._seed + self.epoch)).tolist()
        else:
            order = list(range(self._size))
        while len(order) < each * world:
            order += order[:each * world - len(order)]
        return order[rank:each * world:world]

    def __iter__(self) -> Iterator[int]:
        return iter(self._share()[self.position:])

    def advance(self) -> None:
        """A step was committed."""
        self.position += self._batch_size

    def next_epoch(self) -> None:
        """From the beginning, in another order."""
        self.epoch += 1
        self.position = 0

    def set_epoch(self, epoch: int) -> None:
        """As PyTorch's: from the beginning of this epoch, unless it is the one in which the training is."""
        if epoch != self.epoch:
            self.epoch, self.position = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Epoch and position."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there with the next iterator."""
        self.epoch, self.position = state["epoch"], state["position"]
