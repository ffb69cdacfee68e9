# SPDX-License-Identifier: Apache-2.0
"""Names of users: gradsyncctl shows them beside their numbers, and takes them where it takes numbers.

The list of users is the test's own, through nss_wrapper.
"""
import functools
import json
import os

import pytest

import wire
from peer import Crew

ALICE, BOB, NAMELESS = 61001, 61002, 61003

# A library is preloaded, which sanitizers do not like in front of their own.
pytestmark = pytest.mark.heavy


@pytest.fixture
def ctl(ctl, scratch):
    """ctl(*arguments, code=0, **options) -> the ended gradsyncctl, on a host with alice, bob and 61001."""
    (scratch / "passwd").write_text(f"alice:x:{ALICE}:{ALICE}::/:/bin/sh\nbob:x:{BOB}:{BOB}::/:/bin/sh\n"
                                    f"{ALICE}:x:{BOB}:{BOB}::/:/bin/sh\nx\x1by:x:61004:61004::/:/bin/sh\n")
    (scratch / "group").write_text("")
    lists = {"LD_PRELOAD": "libnss_wrapper.so", "NSS_WRAPPER_PASSWD": scratch / "passwd",
             "NSS_WRAPPER_GROUP": scratch / "group"}

    return functools.partial(ctl, env=lists)


@pytest.fixture
def served(fake):
    answer = []
    for job, uid in enumerate((ALICE, BOB, NAMELESS), 1):
        answer += [("STATUS_JOB", wire.pb.StatusJob(job=job, name="same", uid=uid, state="running", world=1)),
                   ("STATUS_MEMBER", wire.pb.StatusMember(job=job, rank=0, pid=job, uid=uid, member=1,
                                                          state="computing"))]
    answer[0:0] = [("STATUS_CLIENT", wire.pb.StatusClient(pid=7, uid=uid, program="p"))
                   for uid in (ALICE, NAMELESS)]
    return fake(answer=answer)


def columns(text, title):
    """The cells under a title, of a table in which no cell is empty."""
    head, *lines = [line.split() for line in text.splitlines() if line]
    return [line[head.index(title)] for line in lines]


def test_names_are_shown(ctl, served):
    out = ctl("status", socket=served.path).out
    for shown in (f", uid {ALICE} (alice)\n", f", uid {BOB} (bob)\n", f", uid {NAMELESS}\n"):
        assert shown in out, out
    members = [line.split() for line in out.splitlines() if " computing " in line]
    assert [line[2] for line in members] == ["alice", "bob", str(NAMELESS)], out
    assert out.count("  USER  ") == 3 and "UID" not in out
    assert columns(ctl("list", "jobs", socket=served.path).out, "USER") == ["alice", "bob", str(NAMELESS)]
    assert columns(ctl("list", "clients", socket=served.path).out, "USER") == ["alice", str(NAMELESS)]


def test_a_job_that_is_not_there_is_named_as_it_was_typed(ctl, daemon):
    socket = daemon().socket
    for words in (["status", "alice/none"], ["top", "-b", "-n", "1", "alice/none"], ["pause", "alice/none"],
                  ["trace", "alice/none", "-o", "-"]):
        told = ctl(*words, socket=socket, code=4).err
        assert told.startswith('gradsyncctl: there is no job "alice/none"; ')
    assert f'no job "{BOB}/none"' in ctl("status", f"{BOB}/none", socket=socket, code=4).err


def test_documents_have_numbers(ctl, served):
    document = json.loads(ctl("status", "--json", socket=served.path).out)
    assert [job["uid"] for job in document["jobs"]] == [ALICE, BOB, NAMELESS]
    assert [job["members"][0]["uid"] for job in document["jobs"]] == [ALICE, BOB, NAMELESS]
    assert [client["uid"] for client in document["clients"]] == [ALICE, NAMELESS]


def test_a_name_drives_no_terminal(ctl, served):
    job = wire.pb.StatusJob(job=1, name="j", uid=61004, state="running", world=1)
    served.answer[:] = [("STATUS_JOB", job)]
    for words in (["status"], ["list", "jobs"]):
        out = ctl(*words, socket=served.path).out
        assert r"x\x1by" in out and "\x1b" not in out


def test_a_name_in_front_of_a_job(ctl, served):
    """The daemon gets a number for the name; a number stays as it is, though a user is called by it."""
    for words, asked in ((["status", "alice/same"], f"{ALICE}/same"), (["status", "bob/same"], f"{BOB}/same"),
                         (["status", f"{ALICE}/same"], f"{ALICE}/same"), (["status", "same"], "same"),
                         (["top", "-b", "-n", "1", "bob/same"], f"{BOB}/same"), (["status", "5/x"], "5/x"),
                         (["status", "/same"], "/same"), (["status", "--json", "bob/a/b"], f"{BOB}/a/b")):
        served.asked.clear()
        ctl(*words, socket=served.path)
        assert served.asked == [asked]


def test_a_user_that_is_not_known(ctl, served):
    for words in (["status", "carol/same"], ["top", "-b", "carol/same"], ["trace", "carol/same", "-o", "-"],
                  ["evict", "carol/same", "0"], ["pause", "carol/same"], ["resume", "carol/same"]):
        made = ctl(*words, socket=served.path, code=4)
        assert 'no job "carol/same": this host has no user "carol"' in made.err and made.out == ""
    assert served.asked == []


@pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")
def test_orders_and_traces_by_name(ctl, daemon, peers):
    served = daemon(settings={"socket_mode": "0666"})
    crew = peers(Crew(served.socket, "same", 1, uid=ALICE))
    peers(Crew(served.socket, "same", 1, uid=BOB))
    crew.go(1)
    assert ctl("pause", "alice/same", socket=served.socket).out == "paused\n"
    states = {job["uid"]: job["state"] for job in served.status()["jobs"]}
    assert states == {ALICE: "paused", BOB: "running"}
    assert ctl("resume", "alice/same", socket=served.socket).out == "resumed\n"
    assert f"same, uid {ALICE}" in ctl("trace", "alice/same", "-o", "-", socket=served.socket).out
    assert ctl("evict", "bob/same", "0", socket=served.socket).out == "evicted\n"
    assert ctl("status", "bob/same", socket=served.socket, uid=ALICE, code=4).out == ""
