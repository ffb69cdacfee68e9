# SPDX-License-Identifier: Apache-2.0
"""A daemon without a device: it starts, shows itself, and takes no members."""
import types

from peer import Peer
from returning import Returning


def test_it_starts_and_shows_itself(daemon):
    made = daemon(device="none")                        # it has said READY
    shown = made.status()
    assert shown["daemon"]["device"] == "none" and shown["daemon"]["workers"] == 0
    assert shown["jobs"] == [] and shown["daemon"]["starts"] == 1
    assert "gradsyncd" in made.ctl("status") and "coordinates only" in made.log
    assert "gradsync_workers" in made.ctl("metrics")
    made.ctl("doctor")
    made.reload("")
    made.ctl("list", "jobs")


def test_it_takes_no_members(daemon):
    made = daemon(device="none")
    peer = Peer(made.socket)
    refusal = peer.refusal(peer.join_send("job", 2, 0))
    assert refusal.code == "UNSUPPORTED" and "this gradsyncd coordinates only" in refusal.text
    assert "GRADSYNC_SOCKET" in refusal.text
    assert made.status()["jobs"] == []
    again = Peer(made.socket)
    assert again.refusal(again.join_send("job", 1, 0)).code == "UNSUPPORTED"
    returning = Returning(made.socket)
    old = types.SimpleNamespace(name="job", generation=1, secret=bytes(32))
    refusal = returning.refusal(returning.rejoin_send(old))
    assert refusal.code == "MEMBER_LOST" and "join it again" in refusal.text
    assert made.status()["jobs"] == []
    for one in (peer, again, returning):
        one.close()
