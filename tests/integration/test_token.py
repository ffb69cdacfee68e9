# SPDX-License-Identifier: Apache-2.0
"""Tokens of jobs: tenants that share a uid stay out of one another's jobs, and learn nothing by trying."""
import os
import re

import pytest

import wire
from harness import wait_until
from peer import Refused

ALICE = 61001
SECRET = "correct horse battery staple"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")


def tenants(served, token=SECRET, world=2, **options):
    crew = served.crew("shared", world, token=token, **options)
    crew.go(1)
    return crew


@pytest.mark.parametrize("mine, theirs", [(SECRET, None), (SECRET, "guess"), (None, SECRET), (SECRET, SECRET[:-1]),
                                          (SECRET, SECRET + "x"), ("x" * 255, "x" * 254)])
def test_another_token_is_refused(watched, mine, theirs):
    """A stranger hears the same sentence to each request: no rank, pid, size or state of the job."""
    fields = {"token": mine} if mine else {}
    crew = watched.crew("shared", 2, **fields)
    forming = watched.peer()
    forming.join_send("gathering", 3, 1, **fields)
    forming.silent()
    stranger = watched.peer()
    texts = set()
    for name in ("shared", "gathering"):
        for world, rank, incarnation in ((2, None, 0), (2, 0, 0), (3, 1, 0), (200, 150, 0), (2, None, 7)):
            more = {"token": theirs} if theirs else {}
            answer = stranger.refusal(stranger.join_send(name, world, rank, incarnation, **more))
            assert answer.code == "DENIED" and answer.rank is None and answer.pid is None, answer
            texts.add(answer.text.replace(name, "NAME"))
    assert len(texts) == 1, texts
    text, = texts
    assert str(os.getpid()) not in text and not re.search(r"\b(rank|world|members? of|pid)\b", text), text
    crew.go(2)                          # the stranger's higher incarnation has not superseded the job


def test_the_name_is_free_when_the_job_is_over(watched):
    crew = tenants(watched)
    crew.leave()
    watched.crew("shared", 1, token="of the next").go(1)


@pytest.mark.parametrize("token", ["", "x" * 256])
def test_tokens_that_are_none(serve, token):
    peer = serve().peer()
    answer = peer.refusal(peer.join_send("shared", 1, token=token))
    assert answer.code == "INVALID" and "255" in answer.text, answer


def test_a_token_is_never_told(serve):
    served = serve("--log-level=debug")
    tenants(served)
    stranger = served.peer()
    assert stranger.refusal(stranger.join_send("shared", 2, token="wrong guess")).code == "DENIED"
    rows = served.healthy.peers[0].status()
    seen = str(rows) + served.daemon.log + served.daemon.ctl("status", "--json") + served.daemon.ctl("status")
    assert "shared" in seen and SECRET not in seen and "wrong guess" not in seen


@needs_root
def test_orders_of_the_owner_need_the_token(serve):
    served = serve(settings={"socket_mode": "0666"})
    crew = tenants(served, uid=ALICE)
    for arguments, env in (((), {}), (("--token", "guess"), {}), ((), {"GRADSYNC_JOB_TOKEN": "guess"})):
        for verb in ("pause", "resume"):
            served.daemon.ctl(verb, *arguments, "shared", uid=ALICE, env=env, code=5)
        served.daemon.ctl("evict", *arguments, "shared", "0", uid=ALICE, env=env, code=5)
    assert served.daemon.job("shared")["state"] == "running"
    served.daemon.ctl("pause", "--token", SECRET, "shared", uid=ALICE)
    served.daemon.ctl("resume", "shared", uid=ALICE, env={"GRADSYNC_JOB_TOKEN": SECRET})
    crew.go(1)
    served.daemon.ctl("pause", "shared")        # root
    served.daemon.ctl("resume", f"{ALICE}/shared")
    crew.go(1)
    peer = served.peer(uid=ALICE)
    with pytest.raises(Refused) as refused:
        peer.ask("CONTROL", "CONTROL_DONE", verb=wire.pb.EVICT, job="shared", rank=99)
    assert refused.value.code == "DENIED"       # not a word about its ranks


def test_the_library_brings_it(daemon, member):
    """From the options, else from the environment."""
    made = daemon()
    first = member(made, env={"GRADSYNC_JOB_TOKEN": "open-sesame"})
    second, stranger = member(made), member(made)
    for each in (first, second, stranger):
        assert each.ask("open").startswith("OK")
    first.say("join name=shared world=2 rank=0")
    wait_until(lambda: made.job("shared"), "the first member")
    for token in ("", " token=guess"):
        line = stranger.ask("join name=shared world=2 rank=1" + token)
        assert line.startswith("DENIED") and "token" in line, line
    for token in ("", "x" * 256):
        line = stranger.ask(f"join name=shared world=2 rank=1 token={token}")
        assert line.startswith("INVALID") and "join options" in line, line
    assert second.ask("join name=shared world=2 rank=1 token=open-sesame").startswith("OK")
    assert first.line().startswith("OK")
    long = member(made, env={"GRADSYNC_JOB_TOKEN": "x" * 256})
    assert long.ask("open").startswith("OK")
    line = long.ask("join name=shared world=2 rank=1")
    assert line.startswith("INVALID") and "GRADSYNC_JOB_TOKEN" in line, line
