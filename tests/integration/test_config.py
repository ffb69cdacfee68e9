# SPDX-License-Identifier: Apache-2.0
"""Settings of the real daemon: mistakes that stop its start, the order in which sources win, and what a reload changes."""
import os
import pathlib
import re

import pytest

import harness
from peer import Peer

DAEMON = pathlib.Path(__file__).resolve().parents[2] / "daemon"

WRONG = [
    ("[daemon]\n\ncolour = red\n", ":3: unknown key 'colour' in section [daemon]"),
    ("[daemon]\njobs_per_uid = 1\n",
     ":2: unknown key 'jobs_per_uid' in section [daemon]: it belongs to section [limits]"),
    ("[daemon]\nwork = 1\n",
     ":2: unknown key 'work' in section [daemon]: did you mean 'workers' of section [daemon]?"),
    ("[demon]\nworkers = 1\n", ":2: unknown section [demon]: did you mean [daemon]?"),
    ("workers = 1\n", ":1: key 'workers' stands before the first section"),
    ("[daemon]\nworkers = many\n", ":2: workers: 'many' is not a number"),
    ("[daemon]\nstep_deadline = soon\n", ":2: step_deadline: 'soon' is not a time"),
    ("[daemon]\nstaging_bytes = 1000000\n", ":2: staging_bytes: '1000000' is not a multiple of 4096 bytes"),
    ("[daemon]\nmetrics_listen = here:1\n", ":2: metrics_listen: 'here:1' is not an address with a port"),
    ("[daemon]\nmetrics_listen = 9464\n", ":2: metrics_listen: '9464' is not an address with a port"),
    ("[daemon]\nmetrics_listen_jobs = some\n", ":2: metrics_listen_jobs: 'some' is not yes or no"),
    ("[limits]\nclients_per_uid = 0\n", ":2: clients_per_uid: '0' is out of range"),
    ("[daemon]\nworkers\n", ":2: neither a section nor 'key = value'"),
    ("[daemon]\nsocket_group = " + "g" * 500 + "\n", ":2: the line is longer than"),
    ("[daemon]\nworkers = 1\0 2\n", ":2: the line holds a control character"),
]


@pytest.mark.parametrize("text, expected", WRONG, ids=[expected.split(":", 2)[2].strip()[:30] for _, expected in WRONG])
def test_a_wrong_file_stops_the_start(program, scratch, text, expected):
    path = scratch / "wrong.conf"
    path.write_text(text)
    made = program(harness.DAEMON, "--socket", scratch / "socket", "--config", path)
    assert made.wait() == 1
    assert f"{path}{expected}" in made.err
    assert len(made.err.splitlines()) == 1
    assert not (scratch / "socket").exists()


def test_a_wrong_drop_in_is_named(program, scratch):
    (scratch / "main.conf").write_text("")
    (scratch / "main.conf.d").mkdir()
    (scratch / "main.conf.d/50-mine.conf").write_text("[daemon]\nworkers = 0x2\n")
    made = program(harness.DAEMON, "--socket", scratch / "socket", "--config", scratch / "main.conf")
    assert made.wait() == 1
    assert f"{scratch}/main.conf.d/50-mine.conf:2: workers: '0x2' is not a number" in made.err


@pytest.mark.parametrize("flags, expected", [
    (["--colour=red"], "cannot understand '--colour=red'"),
    (["--log_level=err"], "cannot understand '--log_level=err': did you mean '--log-level'?"),
    (["stray"], "cannot understand 'stray'"),
    (["--workers"], "a value is missing after '--workers'"),
    (["--workers=-1"], "--workers: '-1' is not a number"),
    (["--device=gpu"], "--device: 'gpu' is not a device"),
    (["--socket=" + "/x" * 60], "--socket: the path has 120 bytes"),
    (["--metrics-listen=unix:/tmp/x"], "--metrics-listen: 'unix:/tmp/x' is not an address with a port"),
    (["--metrics-listen=127.0.0.1:0"], "--metrics-listen: '127.0.0.1:0' is not an address with a port"),
    (["--metrics-listen=lo:9464"], "--metrics-listen: 'lo:9464' is not an address with a port"),
], ids=lambda value: value[0].split("=")[0] if isinstance(value, list) else "")
def test_a_wrong_flag_is_wrong_usage(program, flags, expected):
    made = program(harness.DAEMON, "--config=/dev/null", *flags)
    assert made.wait() == 2
    assert expected in made.err
    assert len(made.err.splitlines()) == 1


def test_a_missing_file_stops_the_start(program):
    made = program(harness.DAEMON, "--config=/nonexistent/gradsyncd.conf")
    assert made.wait() == 1
    assert "/nonexistent/gradsyncd.conf: No such file or directory" in made.err


@pytest.mark.parametrize("address", ["127.0.0.1:9464", "0.0.0.0:1", "[::1]:65535", ""])
def test_addresses_for_metrics(program, scratch, address):
    (scratch / "some.conf").write_text(f"[daemon]\nmetrics_listen = {address}\n")
    made = program(harness.DAEMON, "--check", "--config", scratch / "some.conf")
    assert made.wait() == 0, made.err


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_each_flag_with_its_default(program, flag):
    made = program(harness.DAEMON, flag)
    assert made.wait() == 0 and made.err == ""
    for flag, default in {"device": "cpu", "socket-mode": "0660", "workers": "0", "log-level": "info", "drain-timeout": "10s",
                          "handshake-timeout": "5s", "step-deadline": "30min", "stall-notice": "1s", "staging-bytes": "8M",
                          "clients-per-uid": "256", "jobs-per-uid": "64", "arenas-per-uid": "1024", "config": "/etc/gradsync/gradsyncd.conf"}.items():
        assert re.search(rf"^  --{flag} .*\[{re.escape(default)}\]$", made.out, re.M), flag
    for flag in ("--socket", "--socket-group", "--affinity", "--bytes-per-uid", "--check-config",
                 "-V, --version", "-h, --help"):
        assert re.search(rf"^  {flag}\b", made.out, re.M), flag


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


def device_of(daemon, peers):
    return peers(Peer(daemon.socket)).welcome.device


def test_later_sources_win(daemon, peers, scratch):
    made = daemon(device=None, config="[daemon]\ndevice = cpu:file\nworkers = 1\n")
    assert device_of(made, peers) == "cpu:file"

    folder = scratch / "other"
    folder.mkdir()
    (folder / "main.conf").write_text("[daemon]\ndevice = cpu:file\nworkers = 1\n")
    (folder / "main.conf.d").mkdir()
    (folder / "main.conf.d/2.conf").write_text("[daemon]\ndevice = cpu:second\n")
    (folder / "main.conf.d/1.conf").write_text("[daemon]\ndevice = cpu:first\n")
    (folder / "main.conf.d/3.conf.off").write_text("[daemon]\ndevice = cpu:off\n")
    made = daemon("--config", folder / "main.conf", device=None)
    assert device_of(made, peers) == "cpu:second"
    made = daemon("--config", folder / "main.conf", "--device=cpu:flag", device=None)
    assert device_of(made, peers) == "cpu:flag"


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


def test_affinity_is_that_of_the_workers(daemon):
    first = min(os.sched_getaffinity(0))
    made = daemon("--workers=2", f"--affinity={first}")
    for task in pathlib.Path(f"/proc/{made.pid}/task").iterdir():
        if (task / "comm").read_text().startswith("gs-worker-"):
            assert os.sched_getaffinity(int(task.name)) == {first}


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
