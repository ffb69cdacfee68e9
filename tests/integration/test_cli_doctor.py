# SPDX-License-Identifier: Apache-2.0
"""gradsyncctl doctor: each check once broken, then repaired as the fix says, then green."""
import contextlib
import json
import os
import pwd
import resource
import signal
import socket
import subprocess

import pytest

import harness
from fake import FakeDaemon
from harness import wait_until

NOBODY = 61300
GROUP = 61234

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")


class Doctor:
    """Runs the doctor on one daemon, in a world without other daemons and leftovers."""

    def __init__(self, build, scratch):
        self.ctl, self.scratch = build / harness.CTL, scratch
        self.tmp = scratch / "tmp"
        self.tmp.mkdir()
        self.socket = None

    def __call__(self, *arguments, env=None, limits=None, uid=None, groups=None):
        """{check: [finding]} of --json, the exit status checked against it."""
        def before():
            for which, value in (limits or {}).items():
                resource.setrlimit(which, value)
            if uid is not None:
                os.setgroups(groups or [])
                os.setgid(uid)
                os.setuid(uid)

        named = {"GRADSYNC_SOCKET": self.socket} if self.socket else {"GRADSYNC_DEVICE": "cpu:doctor-test"}
        made = subprocess.run([self.ctl, "doctor", "--json", *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False,
                              env=harness.environment({"TMPDIR": self.tmp, **named, **(env or {})}), preexec_fn=before,
                              timeout=harness.DEADLINE)
        assert not harness.SANITIZER.search(made.stderr.decode()), made.stderr
        document = json.loads(made.stdout)
        assert document["schema_version"] == 1
        found = {}
        for finding in document["checks"]:
            assert finding["result"] in ("ok", "warn", "fail")
            assert finding["text"] and (finding["result"] == "ok" or finding["fix"]), finding
            found.setdefault(finding["check"], []).append(finding)
        fails = any(finding["result"] == "fail" for finding in document["checks"])
        assert made.returncode == (1 if fails else 0)
        return found

    def one(self, check, **options):
        """(result, text, fix) of a check that has one finding."""
        finding, = self(**options)[check]
        return finding["result"], finding["text"], finding["fix"]

    def green(self, check, **options):
        result, text, _ = self.one(check, **options)
        assert result == "ok", text


@pytest.fixture
def doctor(build, scratch):
    return Doctor(build, scratch)


@contextlib.contextmanager
def fake(path, **options):
    made = FakeDaemon(path, **options)
    try:
        yield made
    finally:
        made.close()
        os.unlink(made.path)


# -- all of it

def test_everything_is_fine(doctor, daemon):
    served = daemon()
    doctor.socket = served.socket
    found = doctor()
    assert list(found) == ["socket", "permissions", "version", "identity", "library", "open files", "locked memory", "memory", "shared memory",
                           "environment", "leftovers"]
    assert not [finding for findings in found.values() for finding in findings if finding["result"] == "fail"]
    assert served.socket in found["socket"][0]["text"] and "cpu" in found["socket"][0]["text"]


def test_each_finding_has_exactly_these_fields(doctor, daemon, program):
    doctor.socket = daemon().socket
    made = program(harness.CTL, "doctor", "--json", socket=doctor.socket,
                   env={"TMPDIR": doctor.tmp, "GRADSYNC_RANK": "7", "GRADSYNC_JOB": "j"})
    assert made.wait() == 1
    document = json.loads(made.out)
    assert list(document) == ["schema_version", "checks"]
    assert {tuple(finding) for finding in document["checks"]} == {("check", "result", "text", "fix")}
    found = {finding["check"]: finding for finding in document["checks"]}
    assert found["shared memory"] == {"check": "shared memory", "result": "ok", "fix": None,
                                      "text": "memory files can be made, sealed and mapped"}
    assert found["environment"] == {"check": "environment", "result": "fail",
                                    "text": "GRADSYNC_RANK is set but GRADSYNC_WORLD_SIZE is not",
                                    "fix": "export the variable that is missing, or unset the other one"}


def test_text_has_one_line_a_check(doctor, daemon, program):
    doctor.socket = daemon().socket
    made = program(harness.CTL, "doctor", socket=doctor.socket, env={"TMPDIR": doctor.tmp, "GRADSYNC_RANK": "7"})
    assert made.wait() == 1
    lines = made.out.splitlines()
    assert len(lines) == 11 and all(line.split()[0] in ("ok", "warn", "fail") for line in lines)
    wrong, = [line for line in lines if "GRADSYNC_WORLD_SIZE" in line and line.startswith("fail  environment ")]
    assert " -- " in wrong


# -- socket

def test_socket(doctor, daemon, scratch):
    result, text, fix = doctor.one("socket")
    assert result == "fail" and "/run/gradsync/cpu:doctor-test/socket" in text
    assert "gradsyncd --device cpu:doctor-test" in fix or "gradsyncd@cpu:doctor-test" in fix
    served = daemon()
    doctor.socket = served.socket
    doctor.green("socket")
    served.finish()
    served.expect_clean = False
    result, text, fix = doctor.one("socket")
    assert result == "fail" and served.socket in text and f"gradsyncd --device cpu --socket {served.socket}" in fix
    served.start()
    served.expect_clean = True
    doctor.green("socket")


# -- permissions

@needs_root
def test_permissions_of_the_socket(doctor, daemon):
    served = daemon(settings={"socket_mode": "0600"})
    doctor.socket = served.socket
    result, text, fix = doctor.one("permissions", uid=NOBODY)
    assert result == "fail" and "0600" in text
    assert f"chmod g+rw {served.socket}" in fix and "group root" not in fix
    assert doctor.one("socket", uid=NOBODY)[0] == "fail"
    subprocess.run(["chmod", "g+rw", served.socket], check=True)
    os.chown(served.socket, 0, GROUP)
    result, text, fix = doctor.one("permissions", uid=NOBODY)
    assert result == "fail" and f"usermod -aG {GROUP}" in fix
    doctor.green("permissions", uid=NOBODY, groups=[GROUP])
    doctor.green("socket", uid=NOBODY, groups=[GROUP])


class Lists:
    """Users and groups of the test's own, through nss_wrapper."""

    def __init__(self, doctor, scratch, passwd, group):
        (scratch / "group").write_text(group)
        (scratch / "passwd").write_text(passwd)
        self.doctor = doctor
        self.names = {"LD_PRELOAD": "libnss_wrapper.so", "NSS_WRAPPER_PASSWD": scratch / "passwd",
                      "NSS_WRAPPER_GROUP": scratch / "group"}

    def look(self, served, groups, uid=61235):
        """The finding of "permissions" for a user who is in these groups."""
        env = {"GRADSYNC_SOCKET": served.socket, "TMPDIR": self.doctor.tmp, **self.names}
        made = subprocess.run(["setpriv", "--reuid", str(uid), "--regid", str(uid), "--groups", groups,
                               self.doctor.ctl, "doctor", "--json"], capture_output=True, check=False,
                              stdin=subprocess.DEVNULL, env=harness.environment(env))
        finding, = [each for each in json.loads(made.stdout)["checks"] if each["check"] == "permissions"]
        return finding


@needs_root
@pytest.mark.heavy  # a library is preloaded, which sanitizers do not like in front of their own
def test_group_since_the_last_login(doctor, daemon, scratch):
    """In the group's list, but not yet in the process's: log in again."""
    served = daemon()
    os.chown(served.socket, 0, GROUP)
    lists = Lists(doctor, scratch, "visitor:x:61235:61235::/:/bin/sh\n", f"gradsync:x:{GROUP}:visitor\n")
    finding = lists.look(served, "61235")
    assert finding["result"] == "fail" and "group gradsync" in finding["text"] and "log in again" in finding["fix"]
    assert "usermod" not in finding["fix"]
    assert lists.look(served, str(GROUP))["result"] == "ok"


@needs_root
def test_the_owner_of_the_socket_is_named(doctor, daemon):
    """In the system's own lists: the owner, the group, and the user who asks, who is another one."""
    served = daemon(settings={"socket_group": "daemon"})
    doctor.socket = served.socket
    os.chown(served.socket, pwd.getpwnam("sync").pw_uid, -1)
    result, text, fix = doctor.one("permissions", uid=pwd.getpwnam("bin").pw_uid)
    assert result == "fail", text
    assert "is for user sync and group daemon (mode 0660)" in text
    assert "join group daemon" in fix and "usermod -aG daemon bin" in fix


@needs_root
@pytest.mark.heavy
@pytest.mark.parametrize("group, mode, commands", [
    ("", 0o660, "groupadd --system gradsync && chgrp gradsync {0} && usermod -aG gradsync visitor"),
    (f"gradsync:x:{GROUP}:\n", 0o660, "chgrp gradsync {0} && usermod -aG gradsync visitor"),
    (f"gradsync:x:{GROUP}:visitor\n", 0o660, "chgrp gradsync {0}"),
    (f"gradsync:x:{GROUP}:\n", 0o600, "chgrp gradsync {0} && chmod g+rw {0} && usermod -aG gradsync visitor"),
], ids=["no group", "a group", "a member", "mode"])
def test_nobody_is_to_join_root(doctor, daemon, scratch, group, mode, commands):
    served = daemon(settings={"socket_mode": f"{mode:o}"})
    lists = Lists(doctor, scratch, "root:x:0:0::/:/bin/sh\nvisitor:x:61235:61235::/:/bin/sh\n",
                  f"root:x:0:\nvisitor:x:61235:\n{group}")
    finding = lists.look(served, "61235")
    assert finding["result"] == "fail" and "is for user root and group root" in finding["text"]
    typed = commands.format(served.socket)
    assert finding["fix"].startswith(f"give it to group gradsync, as root: {typed}; then log in again")
    assert "socket_group = gradsync" in finding["fix"] and "group root" not in finding["fix"]


@needs_root
def test_a_closed_directory(doctor, daemon):
    served = daemon(settings={"socket_mode": "0666"})
    doctor.socket = served.socket
    served.directory.chmod(0o700)
    result, text, fix = doctor.one("permissions", uid=NOBODY)
    assert result == "fail" and f"{served.directory} may not be entered" in text and f"chmod a+x {served.directory}" in fix
    subprocess.run(["chmod", "a+x", served.directory], check=True)
    doctor.green("permissions", uid=NOBODY)


# -- versions

def test_version(doctor, scratch):
    doctor.socket = scratch / "socket"
    with fake(doctor.socket, major=2):
        result, text, fix = doctor.one("version")
        assert result == "fail" and "version 2" in text and "same version" in fix
    with fake(doctor.socket, refuse=("VERSION", "only protocol 3 is spoken here")):
        result, text, _ = doctor.one("version")
        assert result == "fail" and "only protocol 3" in text
    with fake(doctor.socket, version="7.0.0"):
        assert doctor.one("version")[0] == "fail"
    with fake(doctor.socket, version="0.9.0"):
        result, text, fix = doctor.one("version")
        assert result == "warn" and "0.9.0" in text and "upgrade" in fix
    with fake(doctor.socket):
        doctor.green("version")


def test_library(doctor, build, scratch):
    """Found beside us or where the loader looks; the version that counts is the daemon's."""
    library = build / "client/lib/libgradsync.so.0"
    path = {"LD_LIBRARY_PATH": library.parent}
    doctor.socket = scratch / "socket"
    with fake(doctor.socket, version="0.9.0"):
        result, text, fix = doctor.one("library", env=path)
        assert result == "warn" and "libgradsync 0." in text and "0.9.0" in fix
    with fake(doctor.socket):
        doctor.green("library", env=path)
        alone = scratch / "gradsyncctl"
        alone.write_bytes(doctor.ctl.read_bytes())
        alone.chmod(0o755)
        doctor.ctl = alone
        (scratch / "empty").mkdir()
        (scratch / "empty" / "libgradsync.so.0").write_text("no library")
        result, _, fix = doctor.one("library", env={"LD_LIBRARY_PATH": scratch / "empty"})
        assert result == "warn" and "ldconfig" in fix
        doctor.green("library", env=path)


# -- limits

def test_open_files(doctor, daemon):
    doctor.socket = daemon().socket
    hard = 4096
    result, text, fix = doctor.one("open files", limits={resource.RLIMIT_NOFILE: (32, hard)})
    assert result == "fail" and "32 files" in text and fix == "ulimit -n 1024"
    assert doctor.one("open files", limits={resource.RLIMIT_NOFILE: (512, hard)})[0] == "warn"
    result, _, fix = doctor.one("open files", limits={resource.RLIMIT_NOFILE: (512, 512)})
    assert result == "warn" and "raise nofile in " in fix
    assert ("limits.conf" in fix) == os.path.exists("/etc/security/limits.conf")
    doctor.green("open files", limits={resource.RLIMIT_NOFILE: (1024, hard)})


def test_open_files_of_the_daemon(doctor, daemon):
    doctor.socket = daemon(nofile=256).socket
    mine, its = doctor()["open files"]
    assert mine["result"] == "ok" and its["result"] == "warn" and "256" in its["text"]
    assert "ulimit -n 65536" in its["fix"]
    doctor.socket = daemon(nofile=4096).socket
    doctor.green("open files")


def test_locked_memory(doctor, daemon):
    doctor.socket = daemon().socket
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    result, text, fix = doctor.one("locked memory", limits={resource.RLIMIT_MEMLOCK: (65536, hard)})
    assert result == "warn" and "64.0 KiB" in text and "ulimit -l" in fix
    wanted = fix.split()[2].rstrip(",")
    made = subprocess.run(["bash", "-c", f"ulimit -l {wanted} && exec {doctor.ctl} doctor"], capture_output=True, check=False, text=True,
                          stdin=subprocess.DEVNULL, env=harness.environment({"GRADSYNC_SOCKET": doctor.socket, "TMPDIR": doctor.tmp}))
    line = [line for line in made.stdout.splitlines() if " locked memory " in line]
    # Where the hard limit is lower and may not be raised, the shell says so, and there is nothing that a user could repair.
    assert (line and line[0].startswith("ok ")) or "cannot modify limit" in made.stderr, made


@pytest.mark.heavy                      # sanitizers reserve terabytes, or lift the limit
def test_memory(doctor, daemon):
    doctor.socket = daemon().socket
    result, text, fix = doctor.one("memory", limits={resource.RLIMIT_AS: (1 << 30, resource.RLIM_INFINITY)})
    assert result == "warn" and "1.0 GiB" in text and fix == "ulimit -v unlimited"
    doctor.green("memory")


def test_shared_memory(doctor, daemon):
    doctor.socket = daemon().socket
    result, _, fix = doctor.one("shared memory", limits={resource.RLIMIT_FSIZE: (1 << 20, resource.RLIM_INFINITY)})
    assert result == "fail" and fix == "ulimit -f unlimited"
    doctor.green("shared memory")


# -- environment

@pytest.mark.parametrize("broken, said, fixed", [
    ({"GRADSYNC_SOCKET": "/nonexistent/socket"}, "GRADSYNC_SOCKET points to /nonexistent/socket", {"GRADSYNC_SOCKET": None}),
    ({"GRADSYNC_SOCKET": "/etc/passwd"}, "no socket", {"GRADSYNC_SOCKET": None}),
    ({"GRADSYNC_JOB": "j", "GRADSYNC_WORLD_SIZE": "2", "GRADSYNC_RANK": "2"}, 'GRADSYNC_RANK is "2", which is no number from 0 to 1',
     {"GRADSYNC_WORLD_SIZE": "3"}),
    ({"GRADSYNC_JOB": "j", "GRADSYNC_WORLD_SIZE": "two", "GRADSYNC_RANK": "0"}, 'GRADSYNC_WORLD_SIZE is "two", which is no number from 1',
     {"GRADSYNC_WORLD_SIZE": "1"}),
    ({"GRADSYNC_JOB": "j", "GRADSYNC_WORLD_SIZE": "0", "GRADSYNC_RANK": "0"}, 'GRADSYNC_WORLD_SIZE is "0", which is no number from 1', {"GRADSYNC_WORLD_SIZE": "1"}),
    ({"GRADSYNC_WORLD_SIZE": "2", "GRADSYNC_RANK": "0"}, "GRADSYNC_JOB is not", {"GRADSYNC_JOB": "j"}),
    ({"GRADSYNC_JOB": "j", "GRADSYNC_WORLD_SIZE": "2"}, "GRADSYNC_RANK is not", {"GRADSYNC_RANK": "1"}),
    ({"GRADSYNC_JOB": "j", "GRADSYNC_WORLD_SIZE": "2"}, "GRADSYNC_RANK is not", {"JOB_COMPLETION_INDEX": "1"}),
    ({"GRADSYNC_JOB": "j", "GRADSYNC_WORLD_SIZE": "2"}, "GRADSYNC_RANK is not", {"GRADSYNC_SPARE": "1"}),
    ({"GRADSYNC_JOB": "a/b", "GRADSYNC_WORLD_SIZE": "2", "GRADSYNC_RANK": "0"}, "the name of the job from GRADSYNC_JOB is not 1 to 255 bytes", {"GRADSYNC_JOB": "ab"}),
    ({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2"}, "RANK is not", {"RANK": "0"}),
    ({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, "SLURM_LOCALID is not",
     {"SLURM_LOCALID": "0"}),
    ({"GRADSYNC_JOB": "j", "GRADSYNC_WORLD_SIZE": "2", "GRADSYNC_RANK": "1", "TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "RANK": "0"},
     "rank 1 of gradsyncctl run counts, rank 0 of torchrun does not", {"TORCHELASTIC_RUN_ID": None}),
    ({"PMIX_NAMESPACE": "n", "OMPI_COMM_WORLD_SIZE": "2"},
     "OMPI_COMM_WORLD_SIZE is set but OMPI_COMM_WORLD_RANK is not", {"OMPI_COMM_WORLD_RANK": "1"}),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, "PMIX_NAMESPACE is not",
     {"PMIX_NAMESPACE": "n"}),
    ({"GRADSYNC_JOB": "j", "PMI_SIZE": "2"}, "PMI_SIZE is set but PMI_RANK is not", {"PMI_RANK": "1"}),
    # srun speaks PMI, too, and needs no name beside its own; of mpirun within a step, mpirun counts
    ({"PMI_SIZE": "2", "PMI_RANK": "1", "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0",
      "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "1"}, "SLURM_PROCID is not", {"SLURM_PROCID": "1"}),
    ({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0",
      "PMIX_NAMESPACE": "n", "OMPI_COMM_WORLD_RANK": "3"}, "OMPI_COMM_WORLD_SIZE is not", {"OMPI_COMM_WORLD_SIZE": "4"}),
    ({"GRADSYNC_WORLD_SIZE": "2", "GRADSYNC_RANK": "1", "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0",
      "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"},
     "GRADSYNC_WORLD_SIZE is set but GRADSYNC_JOB is not, so the variables of srun count",
     {"GRADSYNC_JOB": "j"}),
    ({"XDG_RUNTIME_DIR": "/nonexistent"}, "XDG_RUNTIME_DIR points to /nonexistent", {"XDG_RUNTIME_DIR": None}),
], ids=lambda value: value if isinstance(value, str) else "")
def test_environment(doctor, daemon, broken, said, fixed):
    served = daemon()
    option = ["--socket", served.socket]
    found = doctor(*option, env=broken)["environment"]
    assert [each["result"] for each in found if said in each["text"]] in (["warn"], ["fail"]), found
    finding, = doctor(*option, env={**broken, **fixed})["environment"]
    assert finding["result"] == "ok", finding


# -- leftovers

def test_leftover_of_a_run_that_was_killed(doctor, program, daemon):
    """A daemon whose run was killed dies with it; what it cannot take along is its directory."""
    doctor.socket = daemon().socket
    doctor.green("leftovers")
    run = program(harness.CTL, "run", "--private", "-n", "1", "sh", "-c", "echo up; exec sleep 1000", env={"TMPDIR": doctor.tmp})
    assert run.line() == "[0] up"
    result, text, _ = doctor.one("leftovers")
    assert result == "ok" and "1 private daemon in use" in text
    directory, = doctor.tmp.iterdir()
    pid = int((directory / "daemon.pid").read_text())
    run.kill()
    wait_until(lambda: harness.process_state(pid) in "-Z", "end of the private daemon")
    result, text, fix = doctor.one("leftovers")
    assert result == "warn" and str(directory) in text and fix == f"rm -r {directory}"
    subprocess.run(fix, shell=True, check=True)
    doctor.green("leftovers")


def listens(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        try:
            sock.connect(str(path))
        except OSError:
            return False
    return True


def test_leftover_daemon_without_its_run(doctor, daemon, program):
    doctor.socket = daemon().socket
    directory = doctor.tmp / f"gradsync-{os.geteuid()}.Abc123"
    directory.mkdir(mode=0o700)
    orphan = program(harness.DAEMON, "--device", "cpu", "--socket", directory / "socket")
    wait_until(lambda: listens(directory / "socket"), "its socket: until then SIGTERM ends it in another way")
    (directory / "daemon.pid").write_text(f"{orphan.pid}\n")
    result, text, fix = wait_until(lambda: (lambda found: found if "outlived" in found[1] else None)(doctor.one("leftovers")), "its name")
    assert result == "warn" and str(orphan.pid) in text and fix == f"kill {orphan.pid}; rm -r {directory}"
    os.kill(orphan.pid, signal.SIGTERM)
    assert orphan.wait() == 0
    result, _, fix = doctor.one("leftovers")
    assert result == "warn" and fix == f"rm -r {directory}"
    subprocess.run(fix, shell=True, check=True)
    doctor.green("leftovers")


def test_directories_of_others_are_not_leftovers(doctor, daemon):
    doctor.socket = daemon().socket
    for name in ("gradsync-77777.Abc123", f"gradsync-{os.geteuid()}.toolong", f"gradsync-{os.geteuid()}.short"):
        (doctor.tmp / name).mkdir()
    (doctor.tmp / f"gradsync-{os.geteuid()}.symlnk").symlink_to("/tmp")
    doctor.green("leftovers")
