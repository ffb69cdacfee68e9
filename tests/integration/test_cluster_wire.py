# SPDX-License-Identifier: Apache-2.0
"""Strangers at the port or socket where daemons meet: each is refused, and the log says what it did and where
it came from, while a job of two daemons goes on."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

import linkpeer
from clusters import SWIFT, cluster_text, listeners_of, reconnecting, write_key
from harness import free_port, wait_until
from hosts import Hosts, needed
from linkpeer import (ARRIVAL, ATTACH, HELLO, HELLO_MOST, NODE, PAYLOAD_MOST, REPORT, TABLE,
                      arrival, frame, hello, over_unix, post)
from trainers import ask, connected, script

pytestmark = pytest.mark.host


GREETINGS = [
    (frame(ARRIVAL, post.Arrival(host="h", name="n")), "it does not say who it is"),
    (frame(HELLO, b"\xff" * 40), "its greeting is malformed"),
    (hello(major=2), "gradsyncd test on host '.' speaks version 2 of the protocol between daemons"),
    (hello(major=0, host="h"), "gradsyncd test on host 'h' speaks version 0 of the protocol"),
    (hello(node=b""), "it does not say which daemon it is"),
    (hello(node=NODE + b"x"), "it does not say which daemon it is"),
    (hello(role=linkpeer.COORDINATOR), "it plays the wrong part"),
    (frame(HELLO, bytes(HELLO_MOST + 1)), "the frame announces more payload than a frame may have"),
    (frame(HELLO, length=0xffffffff), "the frame announces more payload than a frame may have"),
    (frame(HELLO, magic=0x4753), "the packet does not start like a gradsync frame"),
    (frame(HELLO, major=2), "the frame has another major protocol version"),
    (frame(HELLO, flags=1), "the frame header has a flag that this version does not know"),
    (frame(HELLO, fds=1), "the frame announces more file descriptors than a frame may carry"),
]


@pytest.mark.parametrize("tls, rows", [(False, GREETINGS), (True, GREETINGS[::6])], ids=["unix", "tls"])
def test_greetings_that_are_wrong(target, tls, rows):
    it = target()
    for number, (said, why) in enumerate(rows):
        stranger, who = it.stranger(tls, f"127.0.4.{number + 1}")
        stranger.send(said)
        assert stranger.ended()
        stranger.close()
        it.refuses(who, why)
    known = over_unix(it.path)
    known.send(hello())
    stranger = over_unix(it.path)
    stranger.send(hello(node=known.hello().node))
    assert "it has this daemon's own id" in stranger.refused()
    it.refuses("pid .*", "it has this daemon's own id")
    assert "a gradsyncd has connected from 127.0.4" not in it.coordinator.log


REFUSED = "what it sends is refused: "
FRAMES = [
    ([frame(ATTACH, post.Attach(uid=0, job="j"), 1)],
     REFUSED + "it comes before the daemon has said where it is"),
    ([frame(ARRIVAL, b"\xff" * 9)], REFUSED),
    ([frame(ARRIVAL, post.Arrival(host="h" * 65, name="n"))], REFUSED + "its host has no id or name"),
    ([arrival(), frame(REPORT, b"\xff" * 30, 1)], REFUSED),
    ([arrival(), frame(ATTACH, post.Attach(uid=0), 1)], REFUSED + "it does not name a job"),
    ([arrival(), frame(ATTACH, post.Attach(uid=0, job="j"), 1), frame(TABLE, b"\x28\xff", 1)], REFUSED),
    ([arrival(), *(frame(ATTACH, post.Attach(uid=0, job="j"), number) for number in (1, 2, 2))],
     REFUSED + "it names a job by a number that it has used"),
    ([arrival(), frame(TABLE, bytes(PAYLOAD_MOST + 1))],
     "the frame announces more payload than a frame may have"),
    ([arrival(), frame(ARRIVAL, magic=1)], "the packet does not start like a gradsync frame"),
]


@pytest.mark.parametrize("tls, rows", [(False, FRAMES), (True, FRAMES[::3])], ids=["unix", "tls"])
def test_frames_that_are_wrong(target, tls, rows):
    """An end that has proved itself sends wrong frames: it loses its connection, and no other end loses
    anything."""
    it = target()
    for number, (said, why) in enumerate(rows):
        stranger, who = it.stranger(tls, f"127.0.5.{number + 1}")
        stranger.send(hello(instance=number + 1))
        stranger.hello()
        for each in said:
            stranger.send(each)
        assert stranger.ended()
        stranger.close()
        it.coordinator.wait_log(f"the connection to {who} has ended: {re.escape(why)}")
        it.job.on()


def test_an_earlier_run_of_a_daemon_is_refused(target):
    """Else what is left of it, or an older copy of its state, could take its place; also after the later one
    has gone, while jobs wait for it."""
    it = target()
    late = over_unix(it.path)
    late.send(hello(instance=7, run=1))
    late.hello()
    late.send(arrival())
    assert late.frame()[0] == linkpeer.PLACE
    late.send(frame(ATTACH, post.Attach(uid=0, job="j"), 1))
    wait_until(lambda: NODE in ids_of(it).values(), "it is written down")
    late.close()
    it.coordinator.wait_log("the connection to pid .* has ended: ")     # reset, if it had not read all
    for instance, run in ((6, 1), (7, 2)):
        early = over_unix(it.path)
        early.send(hello(instance=instance, run=run))
        assert "a later start of it was here" in early.refused()
    it.refuses("pid .*", "a later start of it was here: its state directory is an older copy")
    again = over_unix(it.path)
    again.send(hello(instance=7, run=1))
    again.hello()


def test_two_hosts_with_one_state_directory(target, scratch):
    """A host was copied: the copy hears why it is not let in, comes again later and later, and disturbs no
    other node. Without its identity it is another node."""
    it = target()
    identity = scratch / "copy" / "identity"
    identity.parent.mkdir()
    identity.write_bytes(pathlib.Path(it.nodes[0].socket + ".identity").read_bytes())
    identity.chmod(0o600)
    copy = it.daemon(config=it.config(coordinator=it.address), env={"STATE_DIRECTORY": str(identity.parent)})
    it.refuses(".*", r"a daemon with the same id is connected from .* \(host '.*'\), and lives")
    copy.wait_log("it refuses this daemon: a daemon with the same id is connected from")
    assert "the same id is connected from" in copy.ctl("status")
    copy.finish()
    copy.program.destroy()
    identity.unlink()
    copy.start()
    copy.wait_log("the coordinator knows this gradsyncd as node")
    it.job.on()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_at_the_unix_socket(target):
    """Even where it can reach the socket."""
    it = target()
    assert it.path.stat().st_mode & 0o777 == 0o600
    it.path.chmod(0o777)
    script = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{it.path}'); s.recv(1)"
    subprocess.run([sys.executable, "-c", script], user=61777, check=True)
    it.refuses(r"pid \d+ of uid 61777 on a Unix socket",
               "it belongs to uid 61777, and only root's and uid 0's daemons may connect")


def test_jobs_of_users_that_the_key_does_not_name(target, member):
    it = target()
    name, secret = it.key[:2]
    it.key_file.write_text(f"{name} {secret}\nnarrow {'ef' * 32} uids=61777\n")
    it.coordinator.program.signal(signal.SIGHUP)
    it.coordinator.wait_log("configuration reloaded")
    theirs = it.key_file.with_name("narrow")
    theirs.write_text(f"narrow {'ef' * 32}\n")
    theirs.chmod(0o600)
    other = it.add(key_file=theirs)
    trainer = connected(member(other))
    assert "the coordinator admits no jobs of uid 0 from this host; give its key that uid (uids=)" in ask(
        trainer, "join name=theirs world=1 rank=0", "DENIED")
    it.job.on()


def rewrite_keys(it, *lines):
    """Replaces the coordinator's keys, and waits until it has read them again."""
    it.key_file.write_text("\n".join(lines) + "\n")
    seen = it.coordinator.log.count("configuration reloaded")
    it.coordinator.program.signal(signal.SIGHUP)
    wait_until(lambda: it.coordinator.log.count("configuration reloaded") > seen, "the reload")


def ids_of(it):
    """The ids of the daemons that the coordinator knows, by their addresses."""
    path = pathlib.Path(it.coordinator.socket + ".identity.nodes")

    def read():
        rows = [line.split() for line in path.read_text().splitlines()[1:]] if path.exists() else []
        return {int(address): bytes.fromhex(node) for address, node, *_ in rows}
    wait_until(lambda: len(read()) > 1, "the coordinator has written its list of daemons")
    return read()


def test_the_id_of_a_daemon_is_its_keys(target):
    """A key of some users neither ends the connection of a daemon that speaks for others nor hears of its
    jobs."""
    it = target()
    narrow = ("narrow", "ef" * 32)
    rewrite_keys(it, " ".join(it.key), f"{' '.join(narrow)} uids=61777")
    for number, node in ids_of(it).items():
        if number == 0:             # the coordinator itself
            continue
        stranger = it.tls(f"127.0.8.{number}", narrow)
        stranger.send(hello(node=node, instance=2 ** 63))
        assert stranger.ended()
        stranger.close()
        it.refuses(rf"127\.0\.8\.{number}:\d+",
                   "it has the id of a daemon whose key speaks for users for whom this one's does not")


def test_a_key_that_loses_a_uid_ends_its_jobs(target):
    it = target()
    it.job.end()
    rewrite_keys(it, f"{' '.join(it.key[:2])} uids=61777")
    members = it.job.members
    for each in members:
        ask(each, "fill 1")
        each.say("ready")
    for each in members:
        each.line()
        each.say("finish")
    for each in members:
        said = each.line()
        assert "admits no jobs of uid 0 from this host" in said, said
    it.undisturbed = lambda: None       # the job has ended, which was the point


def test_a_step_is_open_when_a_key_loses_a_uid(target):
    """The step ends with the job, at once: no member is going to bring the rest of it."""
    it = target()
    it.job.end()
    one = it.job.members[0]
    script(one, "fill 1", "ready")
    one.say("finish")
    rewrite_keys(it, f"{' '.join(it.key[:2])} uids=61777")
    assert "admits no jobs of uid 0 from this host" in one.line(40)    # not after `abandon`
    it.undisturbed = lambda: None       # the job has ended, which was the point


def test_one_key_takes_the_place_of_another(target):
    """The key is added last, then stands first, then alone, as the manual says. Connections end with their
    key, and are made anew with the other one; the job goes on."""
    it = target()
    first, second = " ".join(it.key), f"second {'12' * 32}"
    everywhere = [it.coordinator, *it.nodes]

    def have(*lines):
        it.key_file.write_text("\n".join(lines) + "\n")
        for each in everywhere:
            seen = each.log.count("configuration reloaded")
            each.program.signal(signal.SIGHUP)
            wait_until(lambda each=each, seen=seen: each.log.count("configuration reloaded") > seen,
                       "the reload")
        it.job.on()

    have(first, second)
    have(second, first)
    assert "is not in force" not in "".join(each.log for each in everywhere)
    with reconnecting(*it.nodes):
        have(second)
    it.coordinator.wait_log(r"its key 'main' is not in force any more")
    it.job.on()
    stranger = it.tls("127.0.6.1")
    assert stranger.ended()
    stranger.close()
    it.refuses(r"127\.0\.6\.1:\d+", "it has shown a key that is not known here, or over")
    it.job.end()
    assert "void" not in "".join(each.log for each in it.nodes)
    it.undisturbed = lambda: None       # connections have ended, which was the point


@pytest.mark.parametrize("where, bound", [("127.0.0.9", "0900007F"), ("lo", "0100007F")])
def test_only_what_is_named_is_bound(daemon, scratch, where, bound):
    port = free_port()
    key = write_key(scratch / "key")
    made = daemon(device="none", config=cluster_text(listen=f"{where}:{port}", key_file=key))
    assert listeners_of(made.pid) == [(bound, port)]


def test_without_a_key_it_is_said_what_that_means(daemon):
    address = f"127.0.0.1:{free_port()}"
    made = daemon(device="none", config=cluster_text(listen=address, insecure_no_auth="yes"))
    made.wait_log("insecure_no_auth: whoever reaches this gradsyncd over TCP can read and spoil jobs")
    node = daemon(config=cluster_text(coordinator=address, insecure_no_auth="yes"))
    node.wait_log("knows this gradsyncd as node")


@needed
def test_a_connection_that_goes_quietly(daemon, scratch):
    """The connection breaks without a sign: TCP gives it up, at both ends."""
    net = Hosts(2)
    try:
        common = {**SWIFT, "key_file": write_key(scratch / "key")}
        head = daemon(device="none", config=cluster_text(listen="eth0:7700", **common), prefix=net.inside(0))
        node = daemon(config=cluster_text(coordinator=f"{net.address(0)}:7700", **common),
                      prefix=net.inside(1))
        node.wait_log("knows this gradsyncd as node")
        net.plug(1, False)
        for each in (head, node):
            each.wait_log("the connection to .* has ended: it cannot be reached any more: "
                          "(Connection timed out|No route to host)")
        with reconnecting(node):
            net.plug(1, True)
    finally:
        net.close()


CROWD = ["silent=80", "half=40", "slow=20", "hello=30", "garbage=30", "churn=10"]
STEPS = 10
SOME = 150
NAMED = 25                  # lines about one of them, of a crowd


def test_strangers_in_crowds(target, program):
    """From four addresses, all the time, in all ways; one more daemon finds the coordinator meanwhile."""
    it = target()
    sources = [argument for i in range(4) for argument in ("--from", f"127.0.7.{i + 1}")]
    script = pathlib.Path(__file__).with_name("strangers.py")
    crowd = program(sys.executable, "-B", script, *sources, "127.0.0.1", it.port, *CROWD)
    assert crowd.line() == "began"
    it.coordinator.wait_log(r"127\.0\.7\.\d:\d+ was turned away: more connections come than can prove")
    it.job.on(STEPS)
    third = it.daemon(config=it.config(coordinator=it.address))
    third.wait_log("knows this gradsyncd as node")
    it.job.on(STEPS)
    assert crowd.process.poll() is None, "it has gone on all the time"
    for _ in range(2):
        crowd.line()                # one each second: time enough to say the same again
    crowd.signal(signal.SIGTERM)
    assert crowd.wait() == 0
    told = json.loads(crowd.out.splitlines()[-1])
    assert told["ended"] > SOME, told
    it.coordinator.wait_log(r"\d+ connections were turned away within")
    log = it.coordinator.log
    assert log.count("more connections come than") == log.count("connections were turned away within"), \
        "one line at its beginning, and one at its end"
    named = [line for line in log.splitlines() if "127.0.7." in line]
    assert len(named) <= NAMED, f"{len(named)} lines for {told['connections']} connections"
