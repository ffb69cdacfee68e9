# SPDX-License-Identifier: Apache-2.0
"""A hostile user beside a training job: the job goes on, the daemon holds afterwards what it held before, and the log says
once who it was.

GRADSYNC_TEST_HOSTILE multiplies the counts: 6,000 connections of garbage, 3,000 idle ones, and so on.
"""
import json
import os
import pathlib
import re
import signal

import pytest

import wire
from harness import LONG, sanitized, wait_until
from peer import Peer, Refused

MALLORY = 61666
TIMES = int(os.environ.get("GRADSYNC_TEST_HOSTILE", "1"))
SCRIPT = pathlib.Path(__file__).with_name("hostile.py")
MIB = 1 << 20
GROWTH = MIB                            # of the allocator, whatever the number of attacks

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")

ATTACKS = {"garbage": 6000 * TIMES, "idle": 3000, "fds": 1000 * TIMES, "halves": 2000 * TIMES, "lies": 1000 * TIMES,
           "slow": 20, "chatter": 20, "hog": 60, "churn": 1000 * TIMES}


REACHED = {"lies": ["JOINED"], "hog": ["JOINED", "PLAN_ARENA", "REFUSED"], "churn": ["JOINED", "LEFT"]}


@pytest.fixture
def attack(program):
    """attack(served, *words) -> the hostile program, running."""

    def start(served, *words, uid=MALLORY):
        return program("/usr/bin/python3", "-B", SCRIPT, "--uid", uid, served.path, *words)

    return start


def over(served, hostile):
    """Goes on training until the attack is over; held connections are let go. How many steps that were."""
    before = served.healthy.committed
    while True:
        served.go(1)
        hostile._pump(0)
        if b"held\n" in hostile.buffers[hostile.process.stdout.fileno()]:
            hostile.buffers[hostile.process.stdout.fileno()].clear()
            served.go(20)
            hostile.say("")
        if hostile.process.poll() is not None:
            assert hostile.wait() == 0, hostile.err
            return served.healthy.committed - before


def refusal_of(peer):
    """Why a peer that says HELLO now is turned away; None if it is let in."""
    try:
        peer.ask("HELLO", "WELCOME", minor=0)
    except Refused as refused:
        return refused
    except (BrokenPipeError, ConnectionResetError):
        return peer.hangup()
    return None


def lines_about(daemon, uid):
    return [line for line in daemon.log.splitlines() if re.search(rf"\buid[ =]{uid}\b", line)]


# The pace is not limited here: each connection is to come as far as it can.
SERVED = {"socket_mode": "0666", "bytes_per_uid": "256M", "handshake_timeout": "1h", "connects_per_uid": 1000000}


@needs_root
@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_the_job_goes_on_and_nothing_stays(serve, attack, name):
    served = serve(settings=SERVED)
    hostile = attack(served, f"{name}={ATTACKS[name]}")
    assert over(served, hostile) > 0
    told = json.loads(hostile.out.splitlines()[-1])
    assert told["connections"] >= min(ATTACKS[name], 20)
    for kind in REACHED.get(name, ()):  # the attack came as far as it wanted to
        assert told["heard"].get(str(wire.pb.MessageType.Value(kind)), 0) > 0, told


@needs_root
@pytest.mark.heavy
def test_the_daemon_does_not_grow(serve, attack, build):
    """All attacks once, so that the allocator has seen them; then again, several times as much."""
    served = serve(settings=SERVED)
    over(served, attack(served, *(f"{name}={max(count // 4, 10)}" for name, count in ATTACKS.items())))
    served.settled()
    before, maps = served.daemon.anonymous(), served.daemon.maps().count("\n")
    over(served, attack(served, *(f"{name}={count}" for name, count in ATTACKS.items())))
    served.settled()
    assert not sanitized(build)
    wait_until(lambda: served.daemon.anonymous() <= before + GROWTH, "free memory to be given back")
    assert served.daemon.maps().count("\n") <= maps + 4


@needs_root
def test_two_offenders_do_not_take_each_others_share(serve, attack):
    """The idle connections of one are no reason to turn another away."""
    served = serve(settings=SERVED)
    hostile = attack(served, f"idle={ATTACKS['idle']}")
    assert hostile.line(LONG) == "held"
    others = [served.peer(uid=MALLORY + 1) for _ in range(20)]
    served.go(5)
    assert len(others) == 20 and all(peer.status()["STATUS_DAEMON"] for peer in others)
    turned_away = Peer(served.path, uid=MALLORY, hello=False)
    reason = turned_away.hangup()
    assert reason.code == "QUOTA" and "clients_per_uid" in reason.text, reason
    turned_away.close()
    hostile.say("")
    assert hostile.wait() == 0


@needs_root
def test_the_offender_is_named_once(daemon, peers, program):
    """Each kind of offence has one line. Later offences are counted, and the end, which is here, tells the
    count."""
    made = daemon(settings=SERVED)
    counts = {"garbage": 400, "idle": 300, "churn": 100}
    hostile = program("/usr/bin/python3", "-B", SCRIPT, "--uid", MALLORY, made.socket,
                      *(f"{name}={count}" for name, count in counts.items()))
    assert hostile.line(LONG) == "garbage"
    assert hostile.line(LONG) == "held"
    refusals = []
    while len(refusals) < 3:            # a client that came while the first ones went was let in
        reason = refusal_of(peers(Peer(made.socket, uid=MALLORY, hello=False)))
        refusals += [reason] if reason else []
    assert all(reason.code == "QUOTA" and "clients_per_uid" in reason.text for reason in refusals), refusals
    hostile.say("")
    assert hostile.wait() == 0, hostile.err
    peers(Peer(made.socket)).status()
    made.signal(signal.SIGTERM)
    made.expect_clean = False
    assert made.program.wait() == 0, made.log
    lines = lines_about(made, MALLORY)
    assert len([line for line in lines if "is disconnected" in line]) == 1, lines
    assert len([line for line in lines if "is turned away" in line]) == 1, lines
    for words in ("broke the rules of the protocol", "was turned away", "had a job form or end"):
        told = [re.search(rf"uid {MALLORY} {words}: (\d+) more times", line) for line in lines]
        assert len([match for match in told if match]) == 1, lines
    refused = next(int(match[1]) for line in lines if (match := re.search(r"rules of the protocol: (\d+) more", line)))
    assert refused > counts["garbage"] // 2, lines
    assert len(lines) <= 2 + 3 + 20, lines


@needs_root
def test_a_uid_that_connects_too_fast_waits_and_others_do_not(serve, attack):
    served = serve(settings={"socket_mode": "0666", "connects_per_uid": 10})
    hostile = attack(served, "garbage=1000000")
    served.daemon.wait_log("connects_per_uid")
    for _ in range(5):                  # in the middle of it
        served.peer(uid=MALLORY + 1).status()
        served.go(3)
    assert hostile.process.poll() is None, hostile.told()
    hostile.kill()
    served.peer().status()              # behind all that it has left in the queue: there is room for others in it
    with served.daemon.at_once():       # several times as many as a second has room for
        crowd = [served.peer(uid=MALLORY, hello=False) for _ in range(60)]
    reasons = [reason for peer in crowd if (reason := refusal_of(peer))]
    assert reasons
    assert all(reason.code == "QUOTA" and "connects_per_uid" in reason.text for reason in reasons), reasons

    def enters():
        peer = served.peer(uid=MALLORY, hello=False)
        refused = refusal_of(peer)
        if refused:
            peer.close()
        return not refused

    wait_until(enters, "the next second")
    lines = [line for line in lines_about(served.daemon, MALLORY) if "connects_per_uid" in line]
    assert len(lines) == 1, lines
