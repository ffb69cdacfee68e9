# SPDX-License-Identifier: Apache-2.0
"""STATUS in pieces, and metrics likewise: however much users hold, an operator sees all of it, and no answer
is long."""
import os
import types

import pytest

import harness
import wire
from exposition import parse
from fake import FakeDaemon
from peer import Peer, Refused, form
from returning import Returning
from test_metrics import fetch

USERS = (61001, 61002, 61003)
JOBS, WORLD, LARGE = 64, 8, 256
PIECE = 96 << 10
ROW = 4096                              # more than a row of these tests has

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")


def formed(served, peers, uid, jobs=JOBS, name="job", world=WORLD):
    """So many jobs of that world, over as many connections as it has members. Returns rank 0's places."""
    members = [peers(Returning(served.socket, uid)) for _ in range(world)]
    places = []
    for number in range(jobs):
        first = form(members, f"{name}{number}")[0]
        places.append(types.SimpleNamespace(name=first.name, secret=first.secret, generation=first.generation,
                                            rank=0, world=world))
    return places


def come_back(served, peers, uid, places):
    """One client that takes all these places back; no other member of the jobs comes."""
    made = peers(Returning(served.socket, uid))
    for each in places:
        made.rejoin(each, wait_ms=3600000)
    return made


def crowds(served, peers, *crowd):
    """Users with jobs after a restart: (uid, and more arguments for formed()) of each."""
    left = [(uid, formed(served, peers, uid, *more)) for uid, *more in crowd]
    harness.restart(served)
    for uid, places in left:
        come_back(served, peers, uid, places)


def party(served, peers, uid, jobs=JOBS, name="job"):
    """One client that is alone in so many jobs, which end with it."""
    made = peers(Peer(served.socket, uid))
    for number in range(jobs):
        made.ask("JOIN", "JOINED", job=f"{name}{number}", min_world=1, max_world=1)
    return made


def piece(peer, job=None, begin=None):
    """One piece: its frames, and where the next one begins (None: that was all)."""
    asked = {"job": job} if job else {}
    request = peer.send("STATUS", **{"from": begin or wire.pb.StatusPlace()}, **asked)
    frames = []
    while True:
        frame = peer.receive()
        if frame.request != request:
            continue
        if frame.kind == "REFUSED":
            raise Refused(frame.message)
        frames.append(frame)
        if frame.kind == "STATUS_END":
            return frames, frame.message.next if frame.message.HasField("next") else None


def pieces(peer, job=None, begin=None):
    """All pieces from there on, one after the other."""
    frames, begin = piece(peer, job, begin)
    yield frames
    while begin is not None:
        frames, begin = piece(peer, job, begin)
        yield frames


def count(operator):
    """All jobs that there are."""
    return piece(operator, "nobody's")[0][0].message.jobs


def size(frames):
    return sum(wire.HEADER.size + frame.message.ByteSize() for frame in frames)


def jobs_of(frames):
    return [frame.message for frame in frames if frame.kind == "STATUS_JOB"]


def named(frames):
    return [(job.uid, job.name) for job in jobs_of(frames)]


@needs_root
def test_an_operator_is_not_blinded(daemon, peers, scratch):
    """After a restart users took jobs back, each as many as its quota allows: all commands show them
    whole."""
    served = daemon(settings={"socket_mode": "0666", "metrics_socket": scratch / "metrics"})
    crowds(served, peers, *([uid] for uid in USERS))
    everything = {(uid, f"job{number}") for uid in USERS for number in range(JOBS)}
    told = served.status()
    assert {(job["uid"], job["name"]) for job in told["jobs"]} == everything
    assert len(told["jobs"]) == len(everything)
    for job in told["jobs"]:
        assert [member["rank"] for member in job["members"]] == list(range(WORLD))
        assert [member["local_rank"] for member in job["members"]] == list(range(WORLD))
        assert [wait["rank"] for wait in job["waiting_for"]] == list(range(1, WORLD))
        assert {member["state"] for member in job["members"][1:]} == {"lost"}
    listed = [line.split() for line in served.ctl("list", "jobs").splitlines()[1:] if line]
    assert {(int(words[1]), words[0]) for words in listed} == everything
    assert all(f"{WORLD}/{WORLD}" in words for words in listed)
    for text in (served.ctl("metrics"), fetch(scratch / "metrics")):
        found = parse(text)
        shown = map(dict, found["gradsync_world_size"])
        assert {(int(labels["uid"]), labels["job_name"]) for labels in shown} == everything
        assert set(found["gradsync_members"].values()) == {WORLD}
        assert "gradsync_rank_lateness_seconds_total" not in found


@needs_root
def test_pieces_are_small(daemon, peers):
    """Names as long as they may be, so that all of it is many pieces; and empty places cost as good as
    nothing."""
    served = daemon(settings={"socket_mode": "0666", "clients_per_uid": 2 * LARGE})
    crowds(served, peers, *((uid, JOBS - 1, "x" * 250) for uid in USERS),
           *((uid, 1, "large", LARGE) for uid in USERS))
    operator = peers(Peer(served.socket))
    all_of_it = list(pieces(operator))
    assert all(size(frames) < PIECE + ROW for frames in all_of_it)
    together = [frame for frames in all_of_it for frame in frames]
    assert PIECE < size(together) < 1500 * JOBS * len(USERS)
    assert len(named(together)) == len(set(named(together))) == JOBS * len(USERS)
    places = [frame.message for frame in together if frame.kind == "STATUS_MEMBER"]
    assert sum(member.places or 1 for member in places) == (WORLD * (JOBS - 1) + LARGE) * len(USERS)
    waits = [frame.message for frame in together if frame.kind == "STATUS_WAIT"]
    assert sum(wait.ranks or 1 for wait in waits) == ((WORLD - 1) * (JOBS - 1) + LARGE - 1) * len(USERS)
    assert sum(frame.kind == "STATUS_DAEMON" for frame in together) == 1
    clients = [frame.message.id for frame in together if frame.kind == "STATUS_CLIENT"]
    assert len(clients) == len(set(clients)) == 2 * len(USERS) + 1


@needs_root
def test_what_is_asked_for_by_name_is_little(daemon, peers):
    """The job, who is in it, and the daemon: nothing of the others."""
    served = daemon(settings={"socket_mode": "0666"})
    crowds(served, peers, *([uid] for uid in USERS))
    operator = peers(Peer(served.socket))
    answers = list(pieces(operator, f"{USERS[1]}/job7"))
    together = [frame for frames in answers for frame in frames]
    assert named(together) == [(USERS[1], "job7")] and size(together) < 2 * ROW
    assert [frame.message.uid for frame in together if frame.kind == "STATUS_CLIENT"] == [USERS[1]]
    assert any(frame.message.found for frame in together if frame.kind == "STATUS_END")
    assert not any(frames[-1].message.found for frames in pieces(operator, "nobody's"))
    told = served.ctl("status", f"{USERS[1]}/job7")
    assert "job7  replacing" in told and "job8" not in told


@needs_root
def test_own_jobs_come_first(daemon, peers):
    served = daemon(settings={"socket_mode": "0666"})
    crowds(served, peers, *((uid, 8) for uid in USERS[:2]), (0, 2, "mine"))
    operator = peers(Peer(served.socket))
    order = named([frame for frames in pieces(operator) for frame in frames])
    assert order[:2] == [(0, "mine0"), (0, "mine1")]
    assert order[2:] == [(uid, f"job{number}") for uid in USERS[:2] for number in range(8)]


@needs_root
def test_jobs_come_and_go_between_pieces(daemon, peers):
    """Jobs that are there all the time are told once each. A job that is told in part goes on where it was
    left, and jobs that begin meanwhile are left out, so that the walk ends."""
    served = daemon(settings={"socket_mode": "0666"})
    places = formed(served, peers, USERS[0], name="s" * 250, world=2)
    harness.restart(served)
    operator = peers(Peer(served.socket))
    stay = peers(Returning(served.socket, USERS[0]))
    goes = []
    for number, place in enumerate(places):
        goes.append(party(served, peers, USERS[1], 1, "g" * 250 + str(number)))
        stay.rejoin(place, wait_ms=3600000)
    found, begin, n, left = [], None, 0, 2 * JOBS
    while True:
        frames, begin = piece(operator, None, begin)
        found += named(frames)
        if begin is None:
            break
        if not found:                   # jobs are told after the rest, and from then on none are added
            continue
        for each in goes[n:JOBS:4]:     # the one that is told now may be among them
            each.close()
        left -= len(goes[n:JOBS:4]) if n < 4 else 0
        harness.wait_until(lambda: count(operator) == left + n, "the end of their jobs")
        party(served, peers, USERS[2], 1, f"late{n}")
        n += 1
    assert n > 0
    assert len(found) == len(set(found))
    assert [uid_name for uid_name in found if uid_name[0] == USERS[0]] == \
        [(USERS[0], "s" * 250 + str(number)) for number in range(JOBS)]
    assert not any(name.startswith("late") for _, name in found)


def test_a_large_job_is_told_in_pieces(served, peers):
    """A piece may end in the middle of a job: the next one goes on with its members, each once."""
    operator = peers(Peer(served.socket))
    members = [peers(Peer(served.socket, program="p" * 60)) for _ in range(3)]
    for rank, each in enumerate(members):
        each.join_send("large", 4, rank)
        each.silent()
    frames = [frame for frames in pieces(operator, "large") for frame in frames]
    ranks = [frame.message.rank for frame in frames if frame.kind == "STATUS_MEMBER"]
    assert ranks == [0, 1, 2]
    job = jobs_of(frames)[0].job
    for row in range(1, 5):             # wherever it is taken up, the rest of it comes
        begin = wire.pb.StatusPlace(part=4, thing=job, row=row, until=job)
        rest = [frame for frames in pieces(operator, "large", begin) for frame in frames]
        ranks = [frame.message.rank for frame in rest if frame.kind == "STATUS_MEMBER"]
        assert ranks == list(range(row - 1, 3))
        assert [frame.message.rank for frame in rest if frame.kind == "STATUS_WAIT"] == [3]
        assert not jobs_of(rest)


@pytest.mark.parametrize("odd", [{"part": 4294967295}, {"part": 99, "row": 5}, {"thing": 7, "row": 7},
                                 {"part": 4, "thing": 2**64 - 1, "until": 2**64 - 1},
                                 {"part": 1, "row": 4294967295, "until": 2**64 - 1}])
def test_a_place_that_nobody_has_told(served, peers, odd):
    """It is what a client says, and no more is believed of it than that."""
    peer = peers(Peer(served.socket))
    assert sum(len(frames) for frames in pieces(peer, None, wire.pb.StatusPlace(**odd))) < 20
    assert peer.status()["STATUS_DAEMON"]


class Cutting(FakeDaemon):
    """Hangs up in the middle of an answer."""

    def _send(self, client, head, kind, message):
        if kind == "STATUS_END":
            raise BrokenPipeError
        super()._send(client, head, kind, message)


class Halving(FakeDaemon):
    """Hangs up after a piece."""

    def _send(self, client, head, kind, message):
        if kind == "STATUS_END":
            message = wire.pb.StatusEnd(found=True, next=wire.pb.StatusPlace(part=1))
        super()._send(client, head, kind, message)
        if kind == "STATUS_END":
            raise BrokenPipeError


@pytest.mark.parametrize("kind", [Cutting, Halving])
def test_a_daemon_that_hangs_up_in_an_answer(kind, ctl, fake):
    """The daemon is there, so no command advises to start one."""
    made = fake(kind=kind)
    for words in (("status",), ("list", "jobs"), ("metrics",)):
        told = ctl(*words, socket=made.path, code=1)
        assert f"{made.path}: the daemon (pid {os.getpid()}) has hung up in the middle of" in told.err
        assert "log" in told.err and "no daemon" not in told.err and "Start" not in told.err
        assert told.out == ""
    told = ctl("doctor", socket=made.path, code=1)
    assert "hung up in the middle of an answer" in told.out and "its log" in told.out
