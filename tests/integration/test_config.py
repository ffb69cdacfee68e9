# SPDX-License-Identifier: Apache-2.0
"""Settings of the real daemon: mistakes that stop its start, the order in which sources win, and what a reload changes."""
import os
import pathlib
import re

import pytest

import harness
from peer import Peer

DAEMON = pathlib.Path(__file__).resolve().parents[2] / "daemon"

@pytest.mark.parametrize("flags, expected", [
    (["--colour=red"], "cannot understand '--colour=red'"),
    (["--workers"], "a value is missing after '--workers'"),
    (["--socket=" + "/x" * 60], "--socket: the path has 120 bytes"),
    (["--metrics-listen=127.0.0.1:0"], "--metrics-listen: '127.0.0.1:0' is not an address with a port"),
], ids=lambda value: value[0].split("=")[0] if isinstance(value, list) else "")
def test_a_wrong_flag_is_wrong_usage(program, flags, expected):
    made = program(harness.DAEMON, "--config=/dev/null", *flags)
    assert made.wait() == 2
    assert expected in made.err
    assert len(made.err.splitlines()) == 1


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(program, flag):
    made = program(harness.DAEMON, flag)
    assert made.wait() == 0
    assert re.fullmatch(r"gradsyncd \d+\.\d+\.\d+\n", made.out)


def test_each_exit_status_is_in_the_manual():
    source = "".join((DAEMON / name).read_text("utf-8") for name in ("core/server.h", "core/main.c"))
    known = re.findall(r"#define (?:SERVER_[A-Z]+_FAILED|USAGE_STATUS) (\d+)", source)
    manual = (DAEMON / "man/gradsyncd.8.scd").read_text("utf-8")
    table = re.search(r"^# EXIT STATUS\n(.*?)^# ", manual, re.M | re.S)[1]
    assert sorted(map(int, re.findall(r"^\*(\d+)\*$", table, re.M))) == sorted([0, 1, *map(int, known)])
    assert len(known) == 3


def test_the_default_socket(program, scratch, daemon, peers):
    """Without a path the daemon of an ordinary user listens below its XDG_RUNTIME_DIR."""
    run = scratch / "run"
    run.mkdir()
    run.chmod(0o777)
    made = daemon(env={"XDG_RUNTIME_DIR": run}, uid=65534, device="cpu:x", socket=False)
    assert peers(Peer(str(run / "gradsync/cpu:x/socket"))).welcome.device == "cpu:x"
    assert "gradsync/cpu:x/socket" in made.log


def test_mode_and_workers(daemon, build):
    made = daemon("--workers=3", "--socket-mode=0600")
    assert made.directory.joinpath("socket").stat().st_mode & 0o777 == 0o600
    assert workers_of(made.pid) == ["gs-worker-0", "gs-worker-1", "gs-worker-2"]


def workers_of(pid):
    names = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        names.append((task / "comm").read_text().strip())
    return sorted(name for name in names if name.startswith("gs-worker-"))


def test_reload_changes_what_can_change(daemon, peers):
    made = daemon(config="[limits]\nclients_per_uid = 5\n")
    peers(Peer(made.socket))
    made.reload("[daemon]\nworkers = 7\n[limits]\nclients_per_uid = 2\n")
    made.wait_log(r"configuration reloaded.*need a restart: workers")
    held = peers(Peer(made.socket))
    refused = peers(Peer(made.socket, hello=False)).refusal(0)
    assert refused.code == "QUOTA" and "clients_per_uid" in refused.text
    made.reload("[limits]\nclients_per_uid = 3\n")
    peers(Peer(made.socket))
    assert held.status()["STATUS_DAEMON"][0].clients == 3


def test_a_wrong_reload_changes_nothing(daemon, peers):
    made = daemon(config="[limits]\nclients_per_uid = 2\n")
    made.reload("[limits]\nclients_per_uid = 1\njobs = 3\n")
    made.wait_log(rf"{re.escape(str(made.config))}:3: unknown key 'jobs'")
    peers(Peer(made.socket))
    peers(Peer(made.socket))


def test_flags_win_over_a_reload_too(daemon, peers):
    made = daemon("--clients-per-uid=2", config="")
    made.reload("[limits]\nclients_per_uid = 1\n")
    peers(Peer(made.socket))
    peers(Peer(made.socket))
    assert peers(Peer(made.socket, hello=False)).refusal(0).code == "QUOTA"


def test_an_unknown_group_is_said(program, scratch):
    made = program(harness.DAEMON, "--socket", scratch / "socket", "--socket-group=no-such-group", "--config=/dev/null")
    assert made.wait() == 1
    assert "there is no group 'no-such-group'" in made.err
    assert not (scratch / "socket").exists()


def test_streams_that_are_closed(daemon):
    """No descriptor of the daemon gets the number of one of them, or what it logs would be written to it, a client's socket, say."""
    served = daemon(prefix=("bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash"))
    assert [os.readlink(f"/proc/{served.pid}/fd/{stream}") for stream in range(3)] == ["/dev/null"] * 3
