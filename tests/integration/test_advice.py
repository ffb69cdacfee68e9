# SPDX-License-Identifier: Apache-2.0
"""Advice fits who asks and where: what a person is told to type can be typed.

/run is a file system of the test's own, in a mount namespace, so that it says whether systemd runs.
"""
import os
import shlex
import shutil
import signal
import subprocess

import pytest

import harness
from harness import wait_until

USER = 61300
DEVICE = "cpu:advised"
UNIT = "gradsyncd@.service"
RUN = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o mode=755 tmpfs /run && eval "$0" && exec "$@"']
POSSIBLE = os.geteuid() == 0 and subprocess.run([*RUN, ":", "true"], check=False,
                                                capture_output=True).returncode == 0
SYSTEMD = f"mkdir -p /run/systemd/system && touch /run/systemd/system/{UNIT}"
NO_SYSTEMD = ":"
ASKING = [(harness.CTL, ["status"], 3), (harness.CTL, ["doctor"], 1), (harness.HELLO, [], 1)]

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="several users ask, in mount namespaces")


@pytest.fixture
def told(build, program):
    """told(what is laid out in /run, program, *arguments, uid=0) -> all that it says."""
    def ask(layout, path, *arguments, uid=0, env=None, code=None):
        user = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"] if uid else []
        made = program("/usr/bin/env", *user, build / path, *arguments, prefix=[*RUN, layout],
                       env={"GRADSYNC_DEVICE": DEVICE, "PATH": "/usr/bin:/bin", **(env or {})})
        status = made.wait()
        assert code is None or status == code, made.err + made.out
        return made.err + made.out
    return ask


def as_root():
    return "sudo " if shutil.which("sudo", path="/usr/bin:/bin") else "ask the administrator for: "


@pytest.mark.parametrize("path, arguments, code", ASKING, ids=["status", "doctor", "library"])
def test_how_a_daemon_is_started(told, build, path, arguments, code):
    """Each of the programs says the same, by its own means; a user's own place is in the environment."""
    env = {"GRADSYNC_JOB": "j", "GRADSYNC_WORLD_SIZE": 2, "GRADSYNC_RANK": 0}
    by_hand = f"{build / harness.DAEMON} --device {DEVICE}"
    run = f"{build / harness.CTL} run -n 2 -- CMD"
    unit = f"systemctl start 'gradsyncd@{DEVICE}'"

    text = told(SYSTEMD, path, *arguments, env=env, uid=USER, code=code)
    assert as_root() + unit in text and run in text and by_hand not in text, text
    text = told(NO_SYSTEMD, path, *arguments, env=env, code=code)
    assert by_hand in text and run in text and "systemctl" not in text and "sudo" not in text, text
    own = f"mkdir -p /run/user/{USER}"
    env["XDG_RUNTIME_DIR"] = f"/run/user/{USER}"
    text = told(own, path, *arguments, env=env, uid=USER, code=code)
    assert by_hand in text and run in text and "systemctl" not in text, text


def test_what_is_advised_works(program, build, scratch):
    """The printed command, typed."""
    socket = scratch / "own" / "socket"
    asked = program(harness.CTL, "status", socket=socket)
    assert asked.wait() == 3
    line, = [line for line in asked.err.splitlines() if line.startswith("Start it:  ")]
    words = shlex.split(line.removeprefix("Start it:  "))
    served = program(words[0], *words[1:], "--config", "/dev/null")
    wait_until(lambda: program(harness.CTL, "status", socket=socket).wait() == 0, "the daemon")
    served.signal(signal.SIGTERM)
    assert served.wait() == 0


def test_a_silent_daemon(daemon, program):
    """A user that may not end the daemon is told whom to ask."""
    served = daemon(settings={"socket_mode": "0666"})
    served.directory.chmod(0o755)
    served.directory.parent.chmod(0o755)
    served.program.stop()

    def line(asked):
        assert asked.wait() == 1
        found, = [line for line in asked.out.splitlines() if line.startswith("fail  socket ")]
        return found

    asking = [program(harness.CTL, "doctor", socket=served.socket, uid=uid) for uid in (None, USER)]
    mine, others = map(line, asking)
    served.program.resume()
    assert f"kill -CONT {served.pid}" in mine and f"--device cpu --socket {served.socket}" in mine
    assert "systemctl" not in mine
    assert f"ask the user who runs it (ps -o user= {served.pid})" in others and "kill" not in others
    owner = subprocess.run(["ps", "-o", "user=", str(served.pid)], capture_output=True, check=True, text=True)
    assert owner.stdout.strip() == "root"


def test_a_daemon_that_may_not_write_there(program):
    made = program(harness.DAEMON, "--config=/dev/null", "--socket=/run/gradsync-nowhere/socket", uid=USER)
    assert made.wait() == 1
    assert "cannot make the directory of /run/gradsync-nowhere/socket: Permission denied; " \
           f"let --socket name a place where uid {USER} may write" in made.err


def test_a_place_for_another_socket(program, scratch):
    scratch.chmod(0o777)
    made = program(harness.DAEMON, "--config=/dev/null", "--socket", scratch / "socket",
                   "--metrics-socket=/run/gradsync-nowhere/metrics", uid=USER)
    assert made.wait() == 1
    assert f"let metrics_socket name a place where uid {USER} may write" in made.err


def test_run_without_a_daemon_to_start(program, build, scratch):
    ctl = scratch / "gradsyncctl"
    shutil.copy(build / harness.CTL, ctl)
    made = program(ctl, "run", "--private", "-n", 1, "true", env={"PATH": "/usr/bin:/bin"})
    assert made.wait() == 1
    assert "cannot run gradsyncd: No such file or directory; it is neither beside gradsyncctl nor in PATH: " \
           "install it" in made.err
