# SPDX-License-Identifier: Apache-2.0
"""The daemon and its service manager: what it says on NOTIFY_SOCKET, when it stops feeding the watchdog, and passed sockets."""
import os
import select
import signal
import time

import pytest

import harness
from harness import wait_until
from peer import Peer, small_plan
from traced import Traced, thread

WATCHDOG_US = 400000


def assignments(text):
    return dict(line.split("=", 1) for line in text.split("\n"))


def has(key, value=None):
    return lambda text: key in assignments(text) and value in (None, assignments(text)[key])


def test_ready_then_status_then_stopping(daemon, peers):
    made = daemon()
    assert assignments(made.notices[-1])["READY"] == "1"
    assert assignments(made.notices[-1])["STATUS"]
    peers(Peer(made.socket))
    assert "1 client" in made.wait_notice(lambda text: "1 client" in assignments(text).get("STATUS", ""))
    made.expect_clean = False
    made.signal(signal.SIGTERM)
    made.wait_notice(has("STOPPING", "1"))
    assert made.program.wait() == 0


def test_stopping_asks_for_the_time_it_needs(daemon):
    made = daemon("--drain-timeout=70s")
    made.expect_clean = False
    made.signal(signal.SIGTERM)
    text = made.wait_notice(has("EXTEND_TIMEOUT_USEC"))
    assert int(assignments(text)["EXTEND_TIMEOUT_USEC"]) >= 70_000_000
    assert made.program.wait() == 0


def test_reloading_is_bracketed(daemon):
    made = daemon()
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    made.signal(signal.SIGHUP)
    text = made.wait_notice(has("RELOADING", "1"))
    assert before <= int(assignments(text)["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    made.wait_notice(has("READY", "1"))


def heard_within(daemon, seconds):
    """All that is said in the next `seconds`."""
    heard = []
    end = time.monotonic() + seconds
    while select.select([daemon._notify], [], [], max(end - time.monotonic(), 0))[0]:
        heard.append(daemon._notify.recv(65536).decode())
    return heard


@pytest.mark.parametrize("workers", [1, 2])
def test_one_stopped_worker_ends_the_feeding(daemon, peers, workers):
    made = daemon(f"--workers={workers}", env={"WATCHDOG_USEC": WATCHDOG_US})
    watcher = peers(Peer(made.socket))
    for _ in range(3):
        made.wait_notice(has("WATCHDOG", "1"))
    worker = Traced(thread(made.pid, "gs-worker-0"))
    try:
        heard_within(made, 0)           # what was said before
        heard = []
        for _ in range(5):              # the loop is alive all the time: it answers
            heard += heard_within(made, WATCHDOG_US / 1e6)
            assert watcher.status()["STATUS_DAEMON"][0].clients == 1
        # It may have answered the last ping before it was stopped; none after that.
        assert sum("WATCHDOG=1" in text for text in heard) <= 1, heard
        made.wait_log(rf"\d of {workers} worker threads do not answer")
    finally:
        worker.release()
    for _ in range(3):
        made.wait_notice(has("WATCHDOG", "1"))


def test_a_stopped_loop_ends_the_feeding(daemon):
    made = daemon(env={"WATCHDOG_USEC": WATCHDOG_US})
    made.wait_notice(has("WATCHDOG", "1"))
    loop = Traced(made.pid)
    try:
        heard_within(made, 0)
        assert heard_within(made, 3 * WATCHDOG_US / 1e6) == []
    finally:
        loop.release()
    made.wait_notice(has("WATCHDOG", "1"))


def test_workers_at_work_feed(serve):
    """Pings and reductions share the threads: work must not look like a stop."""
    served = serve("--workers=1", env={"WATCHDOG_USEC": 16000000})      # a slow machine is no stop either
    crew = served.crew("busy", 2, lambda ordinal: small_plan(4, elements=1 << 15, ordinal=ordinal))
    fed = 0
    while fed < 2:                      # the second ping is answered while there is work all the time
        crew.go(1)
        fed += sum("WATCHDOG=1" in text for text in heard_within(served.daemon, 0))
    assert "do not answer" not in served.daemon.log


def test_a_manager_that_does_not_listen_stops_nobody(serve, scratch):
    served = serve(env={"WATCHDOG_USEC": 8000})
    probe = harness.socket.socket(harness.socket.AF_UNIX, harness.socket.SOCK_DGRAM)
    probe.setblocking(False)
    probe.connect(str(served.daemon.directory / "notify"))

    def full():
        try:
            probe.send(b"X=1")
        except BlockingIOError:
            return True
        return False

    wait_until(full, "a full queue of notifications")
    served.go(5)
    probe.close()


def activated(build, processes, scratch, *flags):
    """The daemon under systemd-socket-activate, which execs it at the first connection: the pid stays."""
    path = str(scratch / "passed")
    (scratch / "empty.conf").write_text("")
    made = harness.Program("/usr/bin/systemd-socket-activate", "--seqpacket", "-l", path, build / harness.DAEMON, "--config",
                           scratch / "empty.conf", *flags)
    processes.append(made)
    wait_until(lambda: "Listening on" in made.err, "the activated socket")        # bound is not enough
    return made, path


def test_a_passed_socket_is_used(build, processes, peers, scratch):
    made, path = activated(build, processes, scratch, f"--socket={scratch}/unused", "--device=cpu:act")
    peer = peers(Peer(path))
    assert peer.welcome.device == "cpu:act"
    assert peers(Peer(path)).status()["STATUS_DAEMON"][0].clients == 2
    assert not (scratch / "unused").exists()
    made.signal(signal.SIGTERM)
    assert made.wait() == 0
    assert os.path.exists(path), "the socket file is the service manager's"
