# SPDX-License-Identifier: Apache-2.0
"""The state that a training keeps when a member is lost, and steps that survive that.

A member that is lost may be replaced by a new process. All members meet, say how far they are, and the new
process gets the state of one that is ahead. The step in which this happened is computed again by all.
"""
from __future__ import annotations

import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Protocol

import torch

from ..errors import MemberLostError, VoidStep
from . import payload
from .distributed import DistributedDataParallel
from .sampler import DistributedSampler
from .world import World

#: A member's word on its state: whether it has one, its count of steps, the size of the skeleton.
WORD = struct.Struct("<?7xqq")


class Stateful(Protocol):
    """For example a model, an optimiser, a scheduler, a scaler, or a sampler."""

    def state_dict(self) -> Any:
        """All data that is to be kept."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Goes on from this state."""


class State:
    """The data from which a training goes on, by name, and the number of steps that are in it.

        state = gradsync.State(model=model, opt=opt, sampler=sampler)
        while sampler.epoch < epochs:
            for x, y in loader:
                for attempt in state.step():
                    with attempt:
                        opt.zero_grad()
                        loss_of(model(x), y).backward()
                        opt.step()
            sampler.next_epoch()

    A part is anything with state_dict() and load_state_dict(). At least one is a DistributedDataParallel. All
    members make it at the same point, after their models. In a process that has come in the place of a lost
    member it takes the state of the others before it returns. States go to other members as plain data:
    tensors, numbers, text, bytes, and lists, tuples, dicts and sets of these. A class of the script's own is
    registered (register_state_type); TypeError if it is not. A state that was changed on its way between
    hosts is refused: ProtocolError, on the rank at which it arrives.

    steps_per_batch  how many blocks of step() each batch has; a script of two models may have one for each.
                     The sampler goes on after the last of them, and a process that comes between them
                     begins with the one that is due
    count            committed steps, of all members together
    restarts         how often a step of this process was computed again
    """

    def __init__(self, *, steps_per_batch: int = 1, **parts: Stateful) -> None:
        self.parts, self.steps_per_batch = parts, steps_per_batch
        self._models = [each for each in parts.values() if isinstance(each, DistributedDataParallel)]
        if not self._models:
            raise TypeError("gradsync.State: no part is a gradsync.torch.DistributedDataParallel, so nothing "
                            "says whose state it is")
        if any(isinstance(each, DistributedSampler) and each.batch_size is None for each in parts.values()):
            raise ValueError("gradsync.State: the sampler has to know how many samples a step takes, to go "
                             "on after them: DistributedSampler(dataset, batch_size=…)")
        self._world: World = self._models[0]._world
        self._world.kept = True
        if any(model._world is not self._world for model in self._models):
            raise ValueError("gradsync.State: the models belong to different jobs")
        self._check()
        self.count = 0
        self.restarts = 0
        #: blocks of this batch that were committed before this process had the state
        self._passed = 0
        #: this process has the state of the job, not only one to begin with
        self._whole = not self._world.newcomer
        if self._world.newcomer:
            self._repeat_until_synchronised(met=True)

    # ---- steps

    def step(self) -> Iterator[Attempt]:
        """Yields attempts at one step, until one is committed. Each computes the same from the same samples.
        There is none if the others have committed the step before this process came."""
        if self._passed:
            self._passed -= 1
            return
        while True:
            attempt = Attempt(self)
            yield attempt
            if attempt.committed:
                return
            self.restarts += 1

    def _committed(self) -> None:
        self.count += 1
        self._world.failed = False
        if self.count == 1:
            self._check()               # now with the data that optimisers make in their first step
        if self.count % self.steps_per_batch:
            return
        for part in self.parts.values():
            advance = getattr(part, "advance", None)
            if advance is not None:
                advance()

    def _go_on_from(self, count: int) -> None:
        self.count, self._passed = count, count % self.steps_per_batch

    # ---- the state of other members

    def synchronise(self) -> None:
        """Brings all members to the state of those that are ahead. They all call it, at the same point."""
        self._repeat_until_synchronised(met=False)

    def _repeat_until_synchronised(self, met: bool) -> None:
        while True:
            try:
                if not met:
                    self._world.meet(self.count + 1)
                self._exchange()
                for model in self._models:
                    model._reducer.make_wanted()
                return
            except VoidStep:
                met = False

    def _exchange(self) -> None:
        job = self._world.job
        skeleton, tensors = payload.take_apart(self._whole_state()) if self._whole else (b"", [])
        said = self._ask_all(len(skeleton))
        if all(whole for whole, _, _ in said) and len({count for _, count, _ in said}) == 1:
            return
        source = max((rank for rank, (whole, _, _) in enumerate(said) if whole),
                     key=lambda rank: (said[rank][1], -rank), default=None)
        if source is None:
            raise MemberLostError(f"job '{job.name}': no member has a whole state any more: restart from a "
                                  "checkpoint")
        if source == job.rank:
            payload.send(job, skeleton, tensors)
            return
        behind = not self._whole or self.count < said[source][1]
        self._whole = self._whole and not behind
        state = payload.receive(job, source, said[source][2])
        if behind:
            self._take(state)
            self._whole = True

    def _ask_all(self, size: int) -> list[tuple[bool, int, int]]:
        """For each member: whether it has a state, its count of steps, and the size of the skeleton."""
        job = self._world.job
        word = torch.frombuffer(bytearray(WORD.pack(self._whole, self.count, size)), dtype=torch.uint8)
        words = torch.empty(WORD.size * job.world_size, dtype=torch.uint8, device="cpu")
        job.allgather(word, words, sealed=True)
        return [(bool(whole), count, length)
                for whole, count, length in WORD.iter_unpack(words.numpy().tobytes())]

    def _whole_state(self) -> dict[str, Any]:
        plans = {name: part._reducer_state() for name, part in self.parts.items()
                 if isinstance(part, DistributedDataParallel)}
        return {"parts": self._states(), "count": self.count, "plans": plans}

    def _check(self) -> None:
        """TypeError now if the state cannot go to other members, and not only at the first loss."""
        payload.take_apart({"parts": self._states()})

    def _states(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self.parts.items()}

    def _take(self, state: dict[str, Any]) -> None:
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
        self._go_on_from(state["count"])
        if self._world.newcomer:
            self._take_plans(state["plans"])
            self._world.newcomer = False

    def _take_plans(self, plans: dict[str, Any]) -> None:
        """Makes the plans of the others, in their order."""
        for name in sorted(plans, key=lambda name: int(plans[name]["number"])):
            model = self.parts[name]
            assert isinstance(model, DistributedDataParallel)
            model._adopt(plans[name])

    # ---- a lost member

    def _recover(self) -> None:
        for model in self._models:
            model._reducer.abandon()
        self.synchronise()

    # ---- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """For torch.save(): all parts, and the count by which members know whether they have read the
        same."""
        return {"gradsync": {"job": self._world.job.name, "count": self.count}, "parts": self._states()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """On all members, right after the state was made. If some have read another checkpoint, or none, all
        take the state of rank 0. A process that has come later has the state of the others already, and keeps
        it."""
        if self.count:
            return
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
        self._go_on_from(int(state["gradsync"]["count"]))
        self.agree()

    def agree(self) -> None:
        """On all members, if only some may have read a checkpoint: all take the state of rank 0, unless they
        have the same count of steps."""
        if len({count for _, count, _ in self._ask_all(0)}) > 1:
            self._whole = self._world.job.rank == 0
            self._exchange()


class Attempt:
    """One attempt at a step: a loss of a member within the block is dealt with at its end."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.committed = False

    def __enter__(self) -> Attempt:
        self._set_random_back = self._state._models[0]._host.random_state()
        self._buffers = [[(buffer, buffer.clone()) for buffer in model._buffers_found.tensors()]
                         for model in self._state._models]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 _trace: TracebackType | None) -> bool:
        if error is None:
            self.committed = True
            self._state._committed()
            return False
        if not isinstance(error, VoidStep):
            # The others cannot finish this step without a process in this one's place.
            self._state._world.failed = not (isinstance(error, SystemExit) and not error.code)
            return False
        # Everything is as it was before the forward pass: running means count each sample once.
        self._set_random_back()
        for found in self._buffers:
            for buffer, before in found:
                buffer.data.copy_(before)
        self._state._recover()
        return True


