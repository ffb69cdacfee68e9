# SPDX-License-Identifier: Apache-2.0
"""The log in the journal: native records with fields, on a journal socket of our own that the daemon sees in its mount namespace.

Machines that allow no new mount namespaces have no such test; what the lines hold is then checked on standard error alone.
"""
import os
import select
import socket
import subprocess
import time

import harness
from peer import Crew, small_plan

JOURNAL = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && '
           'mount --bind "$0" /run/systemd/journal && exec "$@"']
POSSIBLE = os.geteuid() == 0 and subprocess.run([*JOURNAL, "/tmp", "true"], check=False, capture_output=True).returncode == 0


class Journal:
    """A journald that takes the daemon's records."""

    def __init__(self, folder):
        folder.mkdir()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.socket.bind(str(folder / "socket"))

    def record(self, wanted, deadline=harness.DEADLINE):
        """The first record whose message contains `wanted`, as {field: value}."""
        end = time.monotonic() + deadline
        while select.select([self.socket], [], [], max(end - time.monotonic(), 0))[0]:
            record = dict(line.split("=", 1) for line in self.socket.recv(65536).decode().splitlines())
            if wanted in record["MESSAGE"]:
                return record
        raise AssertionError(f"no record about '{wanted}'")


def stream_of(path):
    """JOURNAL_STREAM of a process whose standard error is this file."""
    path.parent.mkdir(exist_ok=True)
    path.touch()
    return f"{path.stat().st_dev}:{path.stat().st_ino}"


def start(build, scratch, processes, *flags):
    """A daemon with its standard error on the file that JOURNAL_STREAM names, and a journal that hears it."""
    journal = Journal(scratch / "journal")
    log = scratch / "log"
    path = str(scratch / "socket")
    stream = stream_of(log)
    with open(log, "ab") as stderr:
        made = harness.Program(build / harness.DAEMON, "--config=/dev/null", "--socket", path, *flags, prefix=[*JOURNAL, scratch / "journal"],
                               env={"JOURNAL_STREAM": stream}, stderr=stderr)
    processes.append(made)
    return made, journal, path, log


if POSSIBLE:
    def test_records_have_fields(build, scratch, processes, peers):
        made, journal, path, log = start(build, scratch, processes)
        record = journal.record("serves device cpu")
        assert record["PRIORITY"] == "6" and record["SYSLOG_IDENTIFIER"] == "gradsyncd"
        assert "GRADSYNC_JOB" not in record and "CODE_FILE" not in record

        crew = peers(Crew(path, "journalled", 2, lambda ordinal: small_plan(1, ordinal=ordinal)))
        crew.go()
        assert journal.record("formed")["GRADSYNC_JOB"] == "journalled"
        crew.peers[1].close()
        record = journal.record("rank 1")
        assert record["GRADSYNC_JOB"] == "journalled" and record["GRADSYNC_RANK"] == "1" and record["PRIORITY"] == "4"
        assert record["GRADSYNC_CLIENT_PID"] == str(os.getpid())

        made.signal(harness.signal.SIGTERM)
        assert made.wait() == 0
        assert log.read_text() == "", "the journal has it already"
