# SPDX-License-Identifier: Apache-2.0
"""A sampler that knows how far the training is, not how far the loader has read ahead."""
from __future__ import annotations

import copy
from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch.utils import data

from ..job import Job
from .world import world_of


class DistributedSampler(data.DistributedSampler[int]):
    """Each rank's share of a data set: torch.utils.data.DistributedSampler, with its arguments and its order.

    With gradsync.State it goes on where the training is: `batch_size` samples of this rank belong to a step
    that is committed. Unlike PyTorch's, it can count epochs itself: next_epoch().

    num_replicas, rank   if both are given: share `rank` of `num_replicas`, whatever the job is. If neither
    is:
                         those of the job, also after these have changed
    batch_size           samples of a step, by which State counts; without it the sampler cannot be a part of
                         a State
    job                  None: the one that the environment names, which is joined here. A script that trains
                         on a GPU calls torch.cuda.set_device() and moves its module there before, or sets
                         GRADSYNC_DEVICE
    """

    def __init__(self, dataset: Sized, num_replicas: int | None = None, rank: int | None = None,
                 shuffle: bool = True, seed: int = 0, drop_last: bool = False, *,
                 batch_size: int | None = None, job: Job | None = None) -> None:
        # PyTorch's sampler keeps the numbers, and these change with the job.
        self._share: tuple[int, int] | Job
        if num_replicas is not None and rank is not None:
            if not 0 <= rank < num_replicas:
                raise ValueError(f"rank {rank} does not exist among {num_replicas} replicas")
            self._share = num_replicas, rank
        else:
            self._share = world_of(job).job
            _check(self._share, num_replicas, rank)
        self.dataset = dataset  # type: ignore[assignment]
        self._size, self.batch_size = len(dataset), batch_size
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0
        #: samples of this rank in this epoch that are in committed steps
        self.position = 0

    @property
    def num_replicas(self) -> int:      # type: ignore[override]
        """How many shares there are."""
        return self._share.world_size if isinstance(self._share, Job) else self._share[0]

    @property
    def rank(self) -> int:              # type: ignore[override]
        """The number of this share."""
        return self._share.rank if isinstance(self._share, Job) else self._share[1]

    @property
    def num_samples(self) -> int:       # type: ignore[override]
        """The number of samples of a share, in a whole epoch."""
        world = self.num_replicas
        if self.drop_last and self._size % world:
            return -(-(self._size - world) // world)
        return -(-self._size // world)

    @property
    def total_size(self) -> int:        # type: ignore[override]
        """The number of samples of all shares."""
        return self.num_samples * self.num_replicas

    def __len__(self) -> int:
        """The length of a whole epoch, as with PyTorch's sampler, wherever in it the training is."""
        return self.num_samples

    def _indices(self) -> list[int]:
        world, total = self.num_replicas, self.total_size
        if self.shuffle:
            order = torch.randperm(self._size,
                                   generator=torch.Generator().manual_seed(self.seed + self.epoch)).tolist()
        else:
            order = list(range(self._size))
        while len(order) < total:
            order += order[:total - len(order)]
        return order[self.rank:total:world]

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices()[self.position:])

    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedSampler:
        """The copy belongs to the same job."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        share = self._share
        vars(made).update({name: copy.deepcopy(value, memo) for name, value in vars(self).items()
                           if name != "_share"}, _share=share)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """A sampler that is loaded from a file has the share that this rank had."""
        return vars(self) | {"_share": (self.num_replicas, self.rank)}

    def advance(self) -> None:
        """A step was committed."""
        self.position += self.batch_size or 0

    def next_epoch(self) -> None:
        """Begins the next epoch, in another order."""
        self.epoch += 1
        self.position = 0

    def set_epoch(self, epoch: int) -> None:
        """As PyTorch's: goes to the beginning of this epoch, unless the training is in it already."""
        if epoch != self.epoch:
            self.epoch, self.position = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Epoch and position."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there with the next iterator."""
        self.epoch, self.position = state["epoch"], state["position"]


def _check(job: Job, num_replicas: int | None, rank: int | None) -> None:
    """Refuses one of the two alone, unless it is the job's: it would make a share that fits no other."""
    if num_replicas not in (None, job.world_size) or rank not in (None, job.rank):
        raise ValueError(f"num_replicas={num_replicas} and rank={rank}, but this process is rank {job.rank} "
                         f"of {job.world_size} in job '{job.name}': give both, or neither. The number of "
                         "samples of a step is batch_size")
