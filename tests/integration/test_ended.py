# SPDX-License-Identifier: Apache-2.0
"""Jobs that have ended: what the daemon remembers of them, for whom, and how gradsyncctl tells of it."""
import contextlib
import json
import os
import re
import time

import pytest

import wire
from clusters import Cluster, members_of
from fake import FakeDaemon
from harness import restart, wait_until
from peer import Crew, Peer
from returning import Returning
from trainers import crew, step

ALICE, BOB = 61001, 61002
OPEN = {"socket_mode": "0666"}
ME = os.getpid()
CLOSED = "it closed its connection without leaving the job"
FIELDS = ["name", "uid", "device", "ended_at", "ago_ms", "reason", "text", "rank", "pid", "step",
          "world_size", "generation", "incarnation", "traced"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")


@contextlib.contextmanager
def one(path, **options):
    peer = Peer(path, **options)
    try:
        yield peer
    finally:
        peer.close()


def ended(served, **options):
    """The jobs of `list jobs --ended --json`."""
    document = json.loads(served.ctl("list", "jobs", "--ended", "--json", **options))
    assert list(document) == ["schema_version", "ended_jobs"]
    return document["ended_jobs"]


def end_of(served, name, **options):
    """The job's end, once it is there: it is noted when the daemon has let go of the job."""
    def find():
        return next((job for job in ended(served, **options) if job["name"] == name), None)

    return wait_until(find, f"the end of {name}")


def why(job):
    return job["reason"], job["text"], job["rank"], job["pid"]


def test_all_members_left(served, peers, ctl):
    before = int(time.time())
    assert ended(served) == []
    made = peers(Crew(served.socket, "orderly", 3))
    made.go(4)
    assert ended(served) == []          # it lives
    made.leave()
    job = end_of(served, "orderly")
    assert list(job) == FIELDS
    assert why(job) == ("left", "all 3 members left", None, None)
    assert (job["uid"], job["device"], job["step"], job["world_size"]) == (os.geteuid(), "cpu", 4, 3)
    assert job["generation"] >= 1 and job["incarnation"] == 0 and job["traced"]
    assert before <= job["ended_at"] <= time.time() and job["ago_ms"] >= 0
    made = ctl("status", "orderly", socket=served.socket, code=4)
    assert made.out == ""
    assert re.match(r'gradsyncctl: job "orderly" ended \d+\.\d s ago, after step 4: all 3 members left\n',
                    made.err), made.err
    assert made.err.endswith('Its last steps:  gradsyncctl trace "orderly" -o FILE\n')
    served.ctl("trace", "orderly", "-o", "-")


def test_what_was_never_there_is_told_as_before(served, peers, ctl):
    made = peers(Crew(served.socket, "past", 1))
    made.leave()
    end_of(served, "past")
    for words in (("status", "future"), ("status", "1234567/past"), ("top", "-b", "-n", "1", "future"),
                   ("pause", "future")):
        told = ctl(*words, socket=served.socket, code=4)
        assert "there is no job" in told.err and "ended" not in told.err


def test_every_command_says_how_it_ended(served, peers, ctl):
    """Also to a name with the uid, and to orders."""
    made = peers(Crew(served.socket, "past", 1, plan=None))
    made.leave()
    assert why(end_of(served, "past"))[:2] == ("left", "its last member left")
    for words in (("status", f"{os.geteuid()}/past"), ("top", "-b", "-n", "1", "past"), ("pause", "past"),
                   ("evict", "past", "0")):
        told = ctl(*words, socket=served.socket, code=4)
        assert re.search(r'job "[0-9/]*past" ended .* ago: its last member left\n', told.err), told.err
        assert "trace" not in told.err          # it had no plan, and so no record
    assert not end_of(served, "past")["traced"]


def test_a_list_of_them(served, peers):
    """The latest comes first; a name may come again."""
    for name in ("first", "second", "first"):
        made = peers(Crew(served.socket, name, 2, incarnation=len(ended(served))))
        made.go(1)
        known = len(ended(served))
        made.leave()
        wait_until(lambda: len(ended(served)) > known, "one more end")   # pylint: disable=W0640
    told = ended(served)
    assert [(job["name"], job["incarnation"]) for job in told] == [("first", 2), ("second", 1), ("first", 0)]
    lines = served.ctl("list", "jobs", "--ended").splitlines()
    assert lines[0].split() == ["JOB", "USER", "DEVICE", "ENDED", "MEMBERS", "STEP", "REASON", "WHY"]
    assert [line.split()[0] for line in lines[1:]] == ["first", "second", "first"]
    assert re.search(r" \d+\.\d s ago +2 +1 +left +all 2 members left$", lines[1]), lines[1]


def test_earlier_ones_of_that_name(served, peers, ctl):
    for known in range(2):
        made = peers(Crew(served.socket, "again", 1 + known, plan=None))
        made.leave()
        wait_until(lambda: len(ended(served)) > known, "one more end")   # pylint: disable=W0640
    told = ctl("status", "again", socket=served.socket, code=4).err
    assert "all 2 members left" in told
    assert "Earlier ones of that name:  gradsyncctl list jobs --ended" in told


def test_a_member_that_was_lost(served, peers):
    """The loss is the reason, and the others' later acts are none."""
    made = peers(Crew(served.socket, "broken", 2, rejoin_grace_ms=0))
    made.go(2)
    made.peers[1].close()
    made.peers[0].expect("LOST")
    made.peers[0].leave()
    job = end_of(served, "broken")
    assert why(job) == ("lost", f"lost rank 1 (pid {ME}): {CLOSED}", 1, ME)
    assert job["step"] == 2


def test_nobody_took_the_place(served, peers):
    made = peers(Crew(served.socket, "awaited", 2, rejoin_grace_ms=200))
    made.go(1)
    made.peers[0].close()
    made.peers[1].expect("LOST")
    made.peers[1].leave()
    told = f"lost rank 0 (pid {ME}): {CLOSED}; nobody took its place within 0.2 s"
    assert why(end_of(served, "awaited")) == ("lost", told, 0, ME)
    served.wait_log("warning: job 'awaited' has ended after the loss of rank 0: "
                    "nobody took the place within 0.2 s")


def test_all_went_while_a_place_was_kept(served, peers):
    made = peers(Crew(served.socket, "deserted", 2, rejoin_grace_ms=600000))
    made.peers[1].close()
    wait_until(lambda: served.job("deserted")["state"] == "replacing", "the news of the loss")
    made.peers[0].close()
    job = end_of(served, "deserted")
    assert job["text"] == f"lost rank 1 (pid {ME}): {CLOSED}; the others went before anybody took its place"
    assert "nobody took" not in served.log


def test_too_few_were_left_to_wait(served, peers):
    """A new member has come for a place, and the last one that had the job's state has gone."""
    made = peers(Crew(served.socket, "thin", 3, rejoin_grace_ms=600000))
    made.go(1)
    for rank in (1, 2):
        made.peers[rank].close()
    wait_until(lambda: len(served.job("thin")["waiting_for"]) == 2, "the news of both losses")
    comes = peers(Peer(served.socket))
    comes.join_send("thin", 3, 1, rejoin_grace_ms=600000)
    wait_until(lambda: len(served.job("thin")["waiting_for"]) == 1, "the one that comes")
    made.peers[0].close()
    job = end_of(served, "thin")
    assert job["reason"] == "lost" and job["text"].endswith("; too few members were left"), job
    served.wait_log("warning: job 'thin' has ended after the loss of rank [0-2]: too few members are left")


def test_the_last_member_was_lost(served, peers):
    made = peers(Crew(served.socket, "lonely", 1))
    made.peers[0].close()
    assert why(end_of(served, "lonely")) == ("lost", f"lost rank 0 (pid {ME}): {CLOSED}", 0, ME)


def test_one_left_and_another_went_without_that(served, peers):
    made = peers(Crew(served.socket, "careless", 2))
    made.peers[0].leave()
    made.peers[1].expect("LOST")
    made.peers[1].close()
    assert why(end_of(served, "careless")) == (
        "lost", f"rank 0 (pid {ME}) left; then lost rank 1 (pid {ME}): {CLOSED}", 1, ME)


@needs_root
def test_a_member_that_was_evicted(serve):
    served = serve(settings=OPEN)
    made = served.crew("unruly", 2, uid=ALICE, rejoin_grace_ms=0)
    served.daemon.ctl("evict", f"{ALICE}/unruly", "1")
    made.peers[1].hangup()
    made.peers[0].expect("LOST")
    made.peers[0].leave()
    assert why(end_of(served.daemon, "unruly")) == (
        "evicted", f"rank 1 (pid {ME}) was evicted by uid 0", 1, ME)


def test_a_newer_incarnation(served, peers):
    old = peers(Crew(served.socket, "restarted", 2))
    old.go(3)
    new = peers(Crew(served.socket, "restarted", 2, incarnation=1))
    old.close()
    job = end_of(served, "restarted")
    assert why(job) == ("superseded", "a newer incarnation of the job has started", None, None)
    assert (job["step"], job["incarnation"]) == (3, 0)
    line, = [line for line in served.log.splitlines() if "a newer incarnation of the job" in line]
    assert " rank=" not in line and " pid=" not in line, "nobody in particular was lost"
    new.go(1)
    assert served.job("restarted")["incarnation"] == 1          # status tells of the one that lives
    new.leave()


def test_a_forming_job_of_an_older_incarnation(served, peers):
    early = peers(Peer(served.socket))
    request = early.join_send("replaced", 2, 0)
    late = peers(Peer(served.socket))
    early.silent()
    late.join_send("replaced", 2, 0, incarnation=1)
    assert early.refusal(request).code == "STALE"
    job = end_of(served, "replaced")
    assert why(job) == ("superseded", "a newer incarnation of the job has started", None, None)


def test_a_job_that_never_formed(served, peers):
    waiting = peers(Peer(served.socket))
    assert waiting.refusal(waiting.join_send("hopeless", 3, 0, timeout_ms=50)).code == "TIMEOUT"
    job = end_of(served, "hopeless")
    assert (job["reason"], job["world_size"], job["generation"], job["traced"]) == ("unformed", 3, 0, False)
    assert job["text"].startswith("it did not form within 0.1 s: 1 of 3 members are here"), job["text"]
    for rank in range(2):
        with one(served.socket) as peer:
            peer.join_send("given-up", 3, rank)
            peer.silent()
    job = end_of(served, "given-up")
    assert why(job) == ("unformed", "it never had all of its 3 members; the last one that waited was "
                          f"pid {ME}: {CLOSED}", None, None)


def test_a_join_that_is_refused_is_no_job(served, peers):
    peer = peers(Peer(served.socket))
    assert peer.refusal(peer.join_send("wrong", 2, 7)).code == "INVALID"
    made = peers(Crew(served.socket, "right", 1, plan=None))
    made.leave()
    end_of(served, "right")
    assert [job["name"] for job in ended(served)] == ["right"]


@needs_root
def test_jobs_of_others_are_not_told(daemon, peers, ctl):
    """Ended jobs are shown as living ones are: to their user, root and the admin group."""
    served = daemon(settings=OPEN)
    for uid in (ALICE, BOB):
        for name in ("same", f"of-{uid}"):
            made = peers(Crew(served.socket, name, 1, plan=None, uid=uid))
            made.leave()
            end_of(served, name, uid=uid)
    assert {(job["uid"], job["name"]) for job in ended(served, uid=ALICE)} == {
        (ALICE, "same"), (ALICE, f"of-{ALICE}")}
    assert len(ended(served)) == 4
    for name in (f"of-{ALICE}", f"{ALICE}/same"):
        assert "there is no job" in ctl("status", name, socket=served.socket, uid=BOB, code=4).err
        assert "its last member left" in ctl("status", name, socket=served.socket, uid=ALICE, code=4).err
        assert "its last member left" in ctl("status", name, socket=served.socket, code=4).err


def test_long_names_fit(served, peers):
    """All that are remembered, with the longest names: the answer comes in one piece."""
    peer = peers(Peer(served.socket))
    for number in range(64):
        peer.joined(peer.join_send(f"{number:03}" + "\u00e9" * 126, 1))
        peer.leave()
    wait_until(lambda: len(ended(served)) == 64, "the last one")
    assert {len(job["name"]) for job in ended(served)} == {129}


def test_members_that_come_back_to_another_daemon_and_go(served, pair, peers):
    old = pair(served)
    restart(served)
    back = peers(Returning(served.socket))
    back.rejoin(old[0], wait_ms=100)
    back.close()
    job = end_of(served, "pair")
    assert why(job) == ("lost", "gradsyncd was restarted, and not all members came back", None, None)
    assert (job["world_size"], job["generation"]) == (2, 1)


def test_they_are_forgotten_with_the_daemon(served, peers):
    made = peers(Crew(served.socket, "before", 1, plan=None))
    made.leave()
    end_of(served, "before")
    served.finish()
    served.start()
    assert ended(served) == []


def test_only_who_asks_is_told(served, peers):
    """A client that does not ask gets the rows of living jobs only."""
    made = peers(Crew(served.socket, "past", 1, plan=None))
    made.leave()
    end_of(served, "past")
    with one(served.socket) as peer:
        told = peer.status()
        assert "STATUS_ENDED" not in told
        request = peer.send("STATUS", ended=True, job="past")
        assert peer.expect("STATUS_DAEMON", request).device == "cpu"
        assert peer.expect("STATUS_ENDED", request).text == "its last member left"
        assert peer.expect("STATUS_END", request).found
        assert peer.ask("STATUS", "STATUS_DAEMON", ended=True, job="none")
        assert not peer.expect("STATUS_END").found


class Remembering(FakeDaemon):
    """It has no job, and remembers one that has ended."""

    def __init__(self, path, **row):
        self.row = wire.pb.StatusEnded(**row)
        super().__init__(path)

    def _talk(self, client):
        while data := client.recv(wire.FRAME_MAX):
            head, message = wire.parse(data)
            if head.type == wire.pb.HELLO:
                self._send(client, head, "WELCOME",
                           wire.pb.Welcome(instance=1, device="cpu", version="0.1.0"))
                continue
            self._send(client, head, "STATUS_DAEMON",
                       wire.pb.StatusDaemon(device="cpu", version="0.1.0", pid=1))
            if message.ended:
                self._send(client, head, "STATUS_ENDED", self.row)
            self._send(client, head, "STATUS_END", wire.pb.StatusEnd())


def test_each_field_has_the_value_that_the_daemon_sent(scratch, peers, ctl):
    sent = {"name": "a", "uid": 2001, "ended_at": 2002, "ago_ms": 2003, "reason": "b", "text": "c",
            "rank": 2004, "pid": 2005, "step": 2006, "generation": 2007, "incarnation": 2008, "traced": True}
    fake = peers(Remembering(scratch / "socket", world=2009, job=2010, **sent))
    job, = json.loads(ctl("list", "jobs", "--ended", "--json", socket=fake.path).out)["ended_jobs"]
    assert job == {**sent, "world_size": 2009, "device": "cpu"}


def test_foreign_names_cannot_drive_the_terminal(scratch, peers, ctl):
    evil = "x\x1b]0;owned\x07\u202ey\x9bz"
    fake = peers(Remembering(scratch / "socket", name=evil, reason=evil, text=evil, ago_ms=5000, traced=True))
    listed = ctl("list", "jobs", "--ended", socket=fake.path)
    told = ctl("status", evil, socket=fake.path, code=4)
    for text in (listed.out, told.err):
        assert r"x\x1b]0;owned\x07\xe2\x80\xaey\xc2\x9bz" in text
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\x9b\u202e]", text)
    assert " ended 5.0 s ago: x" in told.err


def test_only_jobs_are_remembered(ctl, served):
    for what in ("clients", "links"):
        assert "list jobs --ended" in ctl("list", what, "--ended", socket=served.socket, code=2).err


@pytest.mark.host
def test_each_daemon_tells_of_its_own_part(daemon, build, scratch, member):
    it = Cluster(daemon, build, f"unix:{scratch}/link", 0)
    it.nodes = [it.add(host_id=name) for name in ("alpha", "beta")]
    members = crew(members_of(it, member), None, 2)
    assert step(members) == 1
    for each in members:
        each.ask("leave")
    for served in it.nodes:
        job = end_of(served, "job")
        assert why(job) == ("left", "its members on this daemon left, 1 of 2", None, None)
        assert job["step"] == 1
