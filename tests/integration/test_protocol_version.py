# SPDX-License-Identifier: Apache-2.0
"""Ends that speak different versions of the protocol understand each other, or say who speaks which."""
import pathlib
import re

import pytest

import harness
import wire
from linkpeer import ARRIVAL, PLACE, arrival, frame, hello, over_unix
from peer import Crew, Peer, Plan
from played import PlayedDaemon

NEWER = wire.unknown_fields()


def test_this_version_is_the_one_of_the_header():
    text = (pathlib.Path(__file__).resolve().parents[2] / "proto/frame.h").read_text()
    assert f"#define FRAME_MAJOR {wire.MAJOR}u" in text and f"#define FRAME_MINOR {wire.MINOR}u" in text


class Newer(Peer):
    """A client of the next minor version: each of its messages has fields of which this daemon has never
    heard."""

    minor = wire.MINOR + 1
    suffix = NEWER


def test_a_newer_client_is_served(daemon, peers):
    def plan(ordinal):
        return Plan([("a", [100], 1), ("b", [1000], 0)], ordinal)

    crew = peers(Crew(daemon().socket, "newer", 2, plan, peer=Newer))
    assert {peer.welcome.minor for peer in crew.peers} == {wire.MINOR}
    crew.go(3)
    assert [job.step for job in crew.peers[0].status()["STATUS_JOB"]] == [3]
    crew.leave()


@pytest.fixture
def hello_against(program, scratch):
    """hello_against(minor=…, …) -> (PlayedDaemon, the hello example after it has ended)."""
    made = []

    def run(**options):
        played = PlayedDaemon(scratch / "played", **options)
        made.append(played)
        job = {"GRADSYNC_JOB": "played", "GRADSYNC_WORLD_SIZE": 1, "GRADSYNC_RANK": 0}
        example = program(harness.HELLO, socket=scratch / "played", env=job)
        played.serve()
        example.wait()
        return played, example

    yield run
    for each in made:
        each.close()


def test_a_newer_daemon_is_understood(hello_against):
    """It comes down to the version that the library has offered, and has more to say in every message."""
    played, example = hello_against(suffix=NEWER)
    assert example.process.returncode == 0, example.err
    assert example.out == "rank 0 of 1: the average is 42\n"
    assert played.heard[:2] == ["HELLO", "JOIN"] and "READY" in played.heard and "LEAVE" in played.heard


@pytest.mark.parametrize("theirs, said, ours", [
    ({"minor": wire.MINOR + 1}, f"version {wire.MAJOR}.{wire.MINOR + 1}", f"{wire.MAJOR}.{wire.MINOR}"),
    ({"major": wire.MAJOR + 1}, f"version {wire.MAJOR + 1}", f"{wire.MAJOR}")], ids=["minor", "major"])
def test_a_daemon_that_does_not_come_down_is_refused(hello_against, ctl, fake, theirs, said, ours):
    played, example = hello_against(**theirs)
    assert example.process.returncode == 1 and played.heard == ["HELLO"]
    assert re.search(rf"{said} of the protocol.* libgradsync \S+ .*{ours}\b", example.err), example.err
    told = ctl("status", socket=fake(**theirs).path, code=1)
    assert re.search(rf"{said} of the protocol.* gradsyncctl .*{ours}\b", told.err), told.err


@pytest.mark.host
def test_between_daemons(target):
    """Fields and frames of which this coordinator has never heard are skipped, whenever they come from a node
    of the next minor version. One of another major version is refused, and both versions are named."""
    it = target()
    newer = over_unix(it.path)
    newer.send(frame(1, hello(minor=1)[16:] + NEWER))
    newer.hello()
    newer.send(frame(200, NEWER))
    newer.send(frame(ARRIVAL, arrival()[16:] + NEWER))
    newer.send(frame(200, NEWER))
    assert newer.frame()[0] == PLACE
    other = over_unix(it.path)
    other.send(hello(major=2))
    why = other.refused()
    assert "gradsyncd test on host" in why and "version 2 of the protocol between daemons" in why, why
    assert "version 1: use one release" in why, why
