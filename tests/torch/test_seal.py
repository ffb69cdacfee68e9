# SPDX-License-Identifier: Apache-2.0
"""What members of a job over several hosts send of a state arrives as it was, or is refused by name: in one
process, with collectives that pass through somebody between the hosts."""
import threading
import types

import numpy
import pytest
import torch

import gradsync
import harness
from gradsync.torch import payload, seal as seals
from gradsync.torch.state import WORD, State
from gradsync.torch.world import World

SECRET = bytes(range(32))
#: Messages of one exchange, in their order.
WORDS, PROOFS, SKELETON, TENSORS, PROOF = range(5)
#: Of two tensors of 24 bytes in one message.
PADDING = (*range(24, 32), *range(56, 64))
STATE = {"a": torch.arange(6.).view(2, 3), "deep": [torch.ones(3, dtype=torch.int64), {"lr": 0.5}]}


class GoneError(Exception):
    """A member has ended that others wait for."""


class Network:
    """`between(number, rank, data)` makes of what that rank is to receive as its message `number` something
    else."""

    def __init__(self, world, between=None, secrets=None):
        self.changed, self.gone = threading.Condition(), False
        self.world, self.between = world, between or (lambda _number, _rank, data: data)
        self.given = [[] for _ in range(world)]     # messages of each rank
        self.heard = [[] for _ in range(world)]
        self.jobs = [Job(self, rank, (secrets or [SECRET] * world)[rank]) for rank in range(world)]

    def meet(self, rank, data):
        """What each rank gives as the message that is this rank's next one."""
        with self.changed:
            number = len(self.given[rank])
            self.given[rank].append(data)
            self.changed.notify_all()
            all_are_here = lambda: all(len(each) > number for each in self.given)
            assert self.changed.wait_for(lambda: all_are_here() or self.gone, harness.DEADLINE)
            if not all_are_here():
                raise GoneError
            return [each[number] for each in self.given]

    def lose(self):
        with self.changed:
            self.gone = True
            self.changed.notify_all()

    def receive(self, rank, data):
        data = self.between(len(self.heard[rank]), rank, data)
        self.heard[rank].append(data)
        return data


class Job:
    connection = types.SimpleNamespace(device=types.SimpleNamespace(ordinal=None))
    name = "job"

    def __init__(self, network, rank, secret):
        self.network, self.rank, self.secret, self.world_size = network, rank, secret, network.world

    def allgather(self, mine, theirs):
        given = self.network.meet(self.rank, mine.numpy().tobytes())
        data = self.network.receive(self.rank, b"".join(given))
        theirs.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))

    def broadcast(self, data, root):
        raw = data.reshape(-1).view(torch.uint8)
        given = self.network.meet(self.rank, raw.numpy().tobytes())[root]
        received = self.network.receive(self.rank, given)
        if self.rank != root:
            raw.copy_(torch.frombuffer(bytearray(received), dtype=torch.uint8))


class Plain(State):
    """With a state of its own, and without models."""

    def __init__(self, job, whole, count):
        self._world = types.SimpleNamespace(job=job, newcomer=False)
        self._whole, self.count, self.taken = whole, count, None

    def _whole_state(self):
        return {"state": STATE, "count": self.count}

    def _take(self, state):
        self.taken = state


def exchange(network, members=((True, 7), (False, 0))):
    """(the State, None or what it has raised) of each rank."""
    states = [Plain(network.jobs[rank], *each) for rank, each in enumerate(members)]
    return list(zip(states, together(network, *(each._exchange for each in states))))


def together(network, *calls):
    """None or what it has raised, of each rank's call."""
    raised = [None] * len(calls)

    def run(rank):
        try:
            calls[rank]()
        except gradsync.GradsyncError as error:
            raised[rank] = error
            network.lose()
        except GoneError:
            pass
    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(calls))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(harness.DEADLINE)
        assert not each.is_alive()
    return raised


def changed_at(number, rank, at):
    def between(n, to, data):
        if (n, to) != (number, rank):
            return data
        data = bytearray(data)
        data[at % len(data)] ^= 1
        return bytes(data)
    return between


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


@pytest.mark.parametrize("secret", [SECRET, b""], ids=["hosts", "host"])
def test_a_state_arrives_as_it_was(secret):
    """On one host nothing is added, and nothing is computed."""
    network = Network(3, secrets=[secret] * 3)
    made = exchange(network, [(True, 6), (True, 7), (False, 0)])
    assert [error for _, error in made] == [None] * 3
    assert made[1][0].taken is None
    assert all(equal(made[rank][0].taken, {"state": STATE, "count": 7}) for rank in (0, 2))
    assert [len(each) for each in network.heard] == [5 if secret else 3] * 3


@pytest.mark.parametrize("number", [WORDS, PROOFS, SKELETON, TENSORS, PROOF])
def test_what_is_changed_is_refused_and_nothing_of_it_is_taken(number, monkeypatch):
    made, put_together = [], payload.put_together
    monkeypatch.setattr(payload, "put_together", lambda *given: made.append(1) or put_together(*given))
    clean = Network(2)
    exchange(clean)
    size = len(clean.heard[1][number])
    for at in range(0, size, max(size // 40, 1)):
        if number == TENSORS and at in PADDING:
            continue
        made.clear()
        _, (state, error) = exchange(Network(2, changed_at(number, 1, at)))
        assert isinstance(error, gradsync.ProtocolError), (at, error)
        assert "was changed on its way between hosts" in str(error) and "job 'job'" in str(error)
        assert state.taken is None
        assert made == [] or number > SKELETON      # what was changed is not decoded
        if number in (SKELETON, TENSORS, PROOF):
            assert error.rank == 0 and "that rank 0 sent" in str(error)


def test_members_that_are_ahead_hear_no_other_words():
    """Else one might give no state, or another one."""
    for at in range(0, 2 * 40):
        (state, error), _ = exchange(Network(2, changed_at(WORDS, 0, at)))
        assert isinstance(error, gradsync.ProtocolError) and state.taken is None


def test_words_that_are_changed_for_all_are_refused():
    """One that is behind would be taken for one that is not, and keep its state."""
    def between(number, _rank, data):
        if number != WORDS:
            return data
        words = [list(each) for each in WORD.iter_unpack(data)]
        words[1][1] = words[0][1]
        return b"".join(WORD.pack(*each) for each in words)
    made = exchange(Network(2, between), [(True, 7), (True, 6)])
    assert isinstance(made[1][1], gradsync.ProtocolError) and made[1][0].count == 6


@pytest.mark.parametrize("first", [WORDS, PROOFS, SKELETON, TENSORS, PROOF])
def test_an_older_exchange_is_not_taken_again(first):
    """From that message on, or that message alone; where both say the same, it is no harm."""
    older = Network(2)
    exchange(older)
    for last in (first, PROOF):
        def between(number, rank, data, last=last):
            return older.heard[1][number] if rank == 1 and first <= number <= last else data
        (_, _), (state, error) = exchange(Network(2, between))
        if first == last == TENSORS:
            assert error is None and equal(state.taken["state"], STATE)
        else:
            assert isinstance(error, gradsync.ProtocolError) and state.taken is None


def test_another_secret_is_another_job():
    (_, first), (state, second) = exchange(Network(2, secrets=[SECRET, bytes(32)]))
    assert isinstance(first or second, gradsync.ProtocolError) and state.taken is None


def test_no_proof_stands_for_another():
    job = Network(3).jobs[0]
    seal = seals.Seal(job, SECRET, b"words")
    proof = seal.prove(seals.TENSORS, [b"data"])
    seal.check(proof, seals.TENSORS, 0, [b"da", b"ta"])
    for other in (lambda: seal.check(proof, seals.SKELETON, 0, [b"data"]),
                  lambda: seal.check(proof, seals.TENSORS, 1, [b"data"]),
                  lambda: seal.check(proof, seals.TENSORS, 0, [b"date"]),
                  lambda: seals.Seal(job, SECRET, b"word").check(proof, seals.TENSORS, 0, [b"sdata"]),
                  lambda: seals.Seal(job, bytes(32), b"words").check(proof, seals.TENSORS, 0, [b"data"])):
        with pytest.raises(gradsync.ProtocolError):
            other()


def meeting(network, *ahead):
    """World.meet(0) of each rank; `ahead`: what it hears of the others."""
    found = [None] * len(ahead)

    def meet(rank):
        job = network.jobs[rank]
        job.sync_state = lambda _pieces, _count: ahead[rank]
        found[rank] = World(job).meet(0)
    return found, [lambda rank=rank: meet(rank) for rank in range(len(ahead))]


def test_members_begin_together():
    network = Network(3)
    found, calls = meeting(network, 0, 0, 0)
    assert together(network, *calls) == [None] * 3 and found == [0] * 3
    network = Network(2)
    found, calls = meeting(network, 8, 8)
    assert together(network, *calls) == [None] * 2 and found == [8] * 2 and network.heard == [[], []]


def test_a_loss_while_members_begin_is_no_error(monkeypatch):
    """They meet again, with those that are there then."""
    compare, left = seals.compare_beginnings, [gradsync.VoidRetry("lost"), gradsync.VoidBehind("lost")]

    def once_more(job):
        if left:
            raise left.pop()
        compare(job)
    monkeypatch.setattr(seals, "compare_beginnings", once_more)
    network = Network(1)
    found, calls = meeting(network, 0)
    assert together(network, *calls) == [None] and found == [0] and left == []


def test_nobody_is_made_to_begin_where_others_are_ahead():
    """It would not ask for their state."""
    def between(_number, rank, data):
        """What came from the rank itself is right, and of the right size."""
        own = network.given[rank][-1]
        return (data + bytes(200))[:len(own)] + own if rank == 1 else (own + bytes(200))[:2 * len(own)]
    network = Network(2, between)
    ahead = Plain(network.jobs[0], True, 7)
    network.jobs[1].sync_state = lambda _pieces, _count: 0
    raised = together(network, ahead._exchange, lambda: World(network.jobs[1]).meet(0))
    assert isinstance(raised[1], gradsync.ProtocolError) and "that it begins" in str(raised[1])


def test_the_bytes_of_tensors():
    """Of all types and shapes, however they lie in memory."""
    for dtype in (torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64, torch.float64):
        whole = torch.arange(12).view(3, 4).to(dtype)
        for each in (whole, whole.t(), whole[:, 1], whole[1, 1], whole[:0], torch.nn.Parameter(whole)
                     if dtype.is_floating_point else whole):
            wanted = each.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            assert b"".join(piece.tobytes() for piece in seals.data_of([each])) == wanted
    tensor = torch.ones(4)
    piece, = seals.data_of([tensor])
    assert numpy.shares_memory(piece, tensor.numpy())
