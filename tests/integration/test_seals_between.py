# SPDX-License-Identifier: Apache-2.0
"""A process between two hosts writes to what Gloo sends. Sealed collectives refuse that by name, and a state
that a new process takes is sealed; others bring what was made of it."""
import pytest

import wire
from between import Between, able
from clusters import team_on
from harness import restart
from hosts import hosts, needed  # noqa: F401
from peer import form
from returning import Returning, back
from trainers import ask, ended, say, together

pytestmark = [pytest.mark.host, needed, able]
BYTES = 100000


def pattern(rank, at):
    """The bytes that a rank gives in a collective, from there on."""
    return bytes((rank * 37 + i * 11 + i // 251) % 256 for i in range(at, at + 32))


def otherwise(data):
    return data[:16] + bytes([data[16] ^ 1]) + data[17:]


@pytest.fixture
def team(hosts, member, processes):  # noqa: F811
    """Two members on two hosts, others on the second one, and a process between the hosts."""
    it = hosts(2)
    between = Between(it, processes)
    made = team_on(it, member, [0, 1, 1, 1], world=2)
    made.hosts = it.nodes
    return made, between


def refused(said, what):
    assert "the data that rank 0 sent in operation " in said and f"(sealed {what})" in said, said
    assert "was changed on its way between hosts, and nothing of it was taken" in said


@pytest.mark.parametrize("call, what", [(f"broadcast {BYTES} 0", "broadcast"),
                                        (f"allgather {BYTES}", "allgather")])
def test_what_was_changed_is_refused(team, call, what):
    it, between = team
    ranks = it.members
    between.change(pattern(0, 5000), otherwise(pattern(0, 5000)))
    say(ranks, call)
    assert [each.line() for each in ranks] == ["OK right", "OK wrong: byte 5016"]
    assert between.change()
    between.change(pattern(0, 5000), otherwise(pattern(0, 5000)))
    say(ranks, f"{call} sealed")
    assert ranks[0].line() == "OK right"
    said, = ended(ranks[1:], "PROTOCOL")
    refused(said, what)
    it.hosts[1].wait_log("warning: job 'team': the data that rank 0 sent in operation ")
    assert between.change()
    assert set(together(ranks, f"{call} sealed")) == {"right"}      # the connection stays


def test_a_part_of_a_call_is_not_taken_for_another(team):
    """The others are further on in the call that this member begins again."""
    it, between = team
    ranks, call = it.members, f"broadcast {16 << 20} 0 sealed"
    between.change(pattern(0, 5000), otherwise(pattern(0, 5000)))
    say(ranks, call)
    said, = ended(ranks[1:], "PROTOCOL")
    refused(said, "broadcast")
    assert between.change()
    ranks[1].say(call)
    ended(ranks, "OPERATION_MISMATCH")
    assert set(together(ranks, call)) == {"right"}


def test_a_refusal_outlives_the_daemon(hosts, peers, processes):  # noqa: F811
    """A member that has not heard of it is told by the next daemon that its last operation has failed."""
    it = hosts(2)
    between = Between(it, processes)
    ranks = form([peers(Returning(node.socket)) for node in it.nodes], "told", rejoin_grace_ms=60000,
                 scope=wire.pb.SCOPE_CLUSTER)
    given = ranks[0].staging()
    ranks[1].staging().close()
    given.map[5000:5032] = pattern(0, 5000)
    between.change(pattern(0, 5000), otherwise(pattern(0, 5000)))
    requests = [each.operation("BROADCAST", bytes=BYTES, root=0, input=0, output=0, sealed=True)
                for each in ranks]
    ranks[0].expect("OPERATION_DONE", requests[0])
    refused(ranks[1].refusal(requests[1]).text, "broadcast")
    given.close()
    restart(it.nodes[1])
    resumed = back(peers, it.nodes[1], ranks[1]).expect("RESUMED")
    assert (resumed.operations, resumed.operation_failed) == (1, True)


def test_a_state_that_was_changed_is_refused(team):
    """The library refuses it in any language: this is C's. The next process takes the state as it is."""
    it, between = team
    _, stay = it.lose(1)
    new = it.replace(1)
    ended(stay, "VOID_RETRY", "VOID_BEHIND")
    between.change(bytes([1]) * 64, bytes([2]) * 64)
    stay[0].say("sync 1")
    new.say("sync 0")
    said, = ended([new], "PROTOCOL")
    refused(said, "broadcast")
    assert between.change()
    assert said.startswith("step=0 value=99 strange=0")     # as it had been
    it.kill(1)
    new = it.replace(1)
    state = "step=1 value=1 strange=0"
    assert ask(new, "sync 0") == state and stay[0].line() == f"OK {state}"
    assert it.step() == [2, 2]
