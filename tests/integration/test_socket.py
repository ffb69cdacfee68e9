# SPDX-License-Identifier: Apache-2.0
"""Where the daemon listens: what it makes, what it replaces, and what it leaves alone and says so."""
import os
import pathlib
import re
import resource
import socket
import stat

import pytest

import harness
from peer import Peer


def failing(program, path, *flags, uid=None):
    """Standard error of a daemon that must not start on this path."""
    ended = program(harness.DAEMON, "--device", "cpu", "--socket", path, "--config", "/dev/null", *flags,
                    uid=uid)
    status = ended.wait()
    assert status not in (0, None) and status > 0, status
    assert len(ended.err.splitlines()) == 1, ended.err
    return ended.err


def test_missing_folders_are_made(daemon, scratch):
    path = str(scratch / "a" / "b" / "socket")
    made = daemon("--socket", path, socket=False)
    Peer(path).close()
    made.finish()
    made.expect_clean = False
    assert os.path.isdir(scratch / "a" / "b") and not os.path.exists(path)


def test_mode_of_the_socket(daemon):
    assert stat.S_IMODE(os.stat(daemon().socket).st_mode) == 0o660
    assert stat.S_IMODE(os.stat(daemon(settings={"socket_mode": "0600"}).socket).st_mode) == 0o600


def test_a_file_in_the_way_stays(program, scratch):
    path = scratch / "socket"
    path.write_text("precious")
    assert str(path) in failing(program, path)
    assert path.read_text() == "precious"


def test_a_link_in_the_way_is_not_followed(program, scratch):
    (scratch / "target").write_text("precious")
    (scratch / "socket").symlink_to(scratch / "target")
    assert str(scratch / "socket") in failing(program, scratch / "socket")
    assert (scratch / "socket").is_symlink() and (scratch / "target").read_text() == "precious"


def test_a_folder_that_cannot_be_made(program, scratch):
    (scratch / "file").write_text("")
    assert str(scratch / "file") in failing(program, scratch / "file" / "socket")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_folder_of_somebody_else(program, scratch):
    assert "Permission denied" in failing(program, scratch / "socket", uid=61003)


def test_a_socket_left_behind_is_replaced(daemon, scratch):
    made = daemon()
    made.program.kill()
    assert os.path.exists(made.socket)
    made.program.destroy()
    made.start()
    Peer(made.socket).close()


def test_a_socket_of_another_kind_that_somebody_listens_on_stays(program, scratch):
    path = scratch / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen()
        assert str(path) in failing(program, path)
        assert stat.S_ISSOCK(path.stat().st_mode)


def test_nobody_is_taken_and_nothing_spins(served):
    """Without even the spare descriptor the daemon can take no client, and the socket stays readable: the
    event thread sleeps all the same, and takes the waiting client when there is room again."""
    soft, hard = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)

    def sleeps():
        return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)$", pathlib.Path(f"/proc/{served.pid}/status").read_text(), re.M)[1])

    resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (3, hard))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waiting:
        waiting.connect(served.socket)
        before = sleeps()
        harness.wait_until(lambda: sleeps() >= before + 100, "an event thread that sleeps")
        served.wait_log("no file descriptors left")
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (soft, hard))
        Peer(served.socket).close()
