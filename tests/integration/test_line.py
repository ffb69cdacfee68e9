# SPDX-License-Identifier: Apache-2.0
"""Requests of many users stand in line beside a job's steps: the steps go on before these are answered."""
import os

import pytest

from harness import wait_until

ALICE, FIRST = 61001, 70000
USERS, QUESTIONS, STEPS, AFTER = 100, 60, 20, 3
ASIDE_MS = 1000                         # after what it asks a member is in steps again

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")


def uptime_ms(served):
    return served.healthy.peers[0].status()["STATUS_DAEMON"][0].uptime_ms


def answered(peer, requests):
    """When, in milliseconds of the daemon's life, each of these questions was answered."""
    times = []
    for request in requests:
        frames = []
        while not frames or frames[-1].kind != "STATUS_END":
            frames.append(peer.receive())
            assert frames[-1].request == request, frames[-1]
        times += [frame.message.uptime_ms for frame in frames if frame.kind == "STATUS_DAEMON"]
    return times


@pytest.mark.parametrize("running", [False, True])
def test_steps_go_on_before_what_many_users_ask(serve, running):
    """Each user may be served for a while in each pass of the event thread, and all are not. Root is served
    meanwhile."""
    served = serve(settings={"socket_mode": "0666"})
    alice = served.crew("hers", 2, uid=ALICE)
    alice.go(STEPS)
    asked = uptime_ms(served)
    crowd = [served.peer(uid=FIRST + user) for user in range(USERS)]
    for peer in crowd if running else []:
        peer.joined(peer.join_send("of the crowd", 1))
    wait_until(lambda: uptime_ms(served) > asked + ASIDE_MS, "a second of steps")
    with served.daemon.at_once():
        requests = [[peer.send("STATUS") for _ in range(QUESTIONS)] for peer in crowd]
        alice.peers[0].ready(alice.plans[0][0], 0)
    alice.peers[1].ready(alice.plans[0][1], 0)
    alice.commits()
    alice.go(AFTER)
    now = uptime_ms(served)
    times = [time for peer, mine in zip(crowd, requests) for time in answered(peer, mine)]
    assert len(times) == USERS * QUESTIONS
    assert sum(time < now for time in times) < len(times) * 3 / 4
