# SPDX-License-Identifier: Apache-2.0
"""Completion in bash: what the shell is offered for a line of gradsyncctl, and that the file gets installed."""
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess

import pytest

import harness
from peer import Crew

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "client/cli/completion/gradsyncctl.bash"

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")


def broken(line):
    """COMP_WORDS for the line, as bash makes them: blanks and COMP_WORDBREAKS part it, but not in quotes."""
    words = re.findall(r"""[:=@]+|(?:\\.|'[^']*'|"[^"]*"|[^\s:=@'"])+""", line)
    return words + [""] * (line[-1] == " ")


@pytest.fixture
def complete(build, scratch):
    """complete(*words, socket=None) -> what may stand in the place of the last word, sorted."""

    def run(*words, socket=None):
        env = harness.environment({"PATH": f"{build / 'client/cli'}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(scratch),
                                   **({"GRADSYNC_SOCKET": socket} if socket else {})})
        line = " ".join(["gradsyncctl", *words])
        script = (f"source {SCRIPT}\n" 'COMP_LINE=$1\nshift\nCOMP_WORDS=("$@")\nCOMP_CWORD=$(($# - 1))\n'
                  '_gradsyncctl\nprintf "%s\\n" "${COMPREPLY[@]}"')
        made = subprocess.run(["bash", "--norc", "-c", script, "bash", line, *broken(line)], env=env,
                              cwd=scratch, capture_output=True, text=True, check=True)
        assert made.stderr == ""
        return sorted(made.stdout.split("\n")[:-1]) if made.stdout != "\n" else []

    return run


def commands_of(program):
    told = program(harness.CTL, "--help")
    assert told.wait() == 0
    return sorted(re.findall(r"^  ([a-z]+) ", told.out, re.M))


def test_commands(complete, program):
    commands = commands_of(program)
    assert len(commands) >= 8 and complete("") == commands
    assert complete("t") == ["top", "trace"] and complete("help", "tr") == ["trace"] and complete("x") == []
    assert complete("-s", "/x", "me") == ["metrics"] and complete("--socket=/x", "me") == ["metrics"]


def test_options_are_those_of_the_help(complete, program):
    for command in commands_of(program):
        told = program(harness.CTL, "help", command)
        assert told.wait() == 0
        options = sorted(re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", told.out, re.M))
        assert "--help" in options and complete(command, "--") == options
    assert complete("--ver") == ["--version"] and complete("--so") == ["--socket"] and complete("top", "--co") == ["--count"]


def test_options_without_an_effect_are_not_offered(complete):
    """demo has a daemon of its own, of this device; help has none."""
    demo = ["--device", "--help", "--hosts", "--json", "--members", "--pause", "--version"]
    assert complete("demo", "--") == demo
    assert complete("help", "--") == ["--help", "--version"]


def test_jobs(complete, daemon, peers):
    served = daemon()
    for name in ("resnet", "resnet two", "bert"):
        peers(Crew(served.socket, name, 1, plan=None))
    for command in ("status", "top", "trace", "evict", "pause", "resume"):
        assert complete(command, "", socket=served.socket) == ["bert", "resnet", r"resnet\ two"]
        assert complete(command, "b", socket=served.socket) == ["bert"]
    assert complete("-s", served.socket, "status", "re") == ["resnet", r"resnet\ two"]
    assert complete("trace", "-o", "file", f"--socket={served.socket}", "be") == ["bert"]
    assert complete("status", "bert", "", socket=served.socket) == []       # one job is enough
    assert complete("status", "-w", "2", "be", socket=served.socket) == ["bert"]
    assert complete("evict", "--token", "secret", "be", socket=served.socket) == ["bert"]
    assert complete("pause", "--token", "be", socket=served.socket) == []   # a secret is no job
    assert complete("doctor", "", socket=served.socket) == []


def test_ranks_and_devices(complete, daemon, peers):
    served = daemon(device="cpu:x")
    peers(Crew(served.socket, "two words", 11, plan=None))
    here = {"socket": served.socket}
    assert complete("evict", r"two\ words", "", **here) == sorted(map(str, range(11)))
    assert complete("evict", "'two words'", "1", **here) == ["1", "10"]
    mine = rf"{os.geteuid()}/two\ words"
    assert complete("evict", "--token", "secret", mine, "1", **here) == ["1", "10"]
    assert complete("evict", r"two\ words", "0", "", **here) == complete("evict", "other", "", **here) == []
    assert complete("status", r"two\ words", "", **here) == complete("pause", r"two\ words", "", **here) == []
    assert complete("--device", "", **here) == complete("list", "-d", "c", **here) == ["cpu", "cpu:x"]


def test_words_that_the_shell_breaks(complete, daemon, peers, scratch):
    """What is offered replaces the last piece only."""
    served = daemon(device="cpu:x")
    for name in ("a:b", "a:c", "a=b", "me@here", "plain"):
        peers(Crew(served.socket, name, 2, plan=None))
    here = {"socket": served.socket}
    link = scratch / "gradsync/cpu:x/socket"
    link.parent.mkdir(parents=True)
    link.symlink_to(served.socket)
    (scratch / "t:race.json").touch()
    jobs = ["a:b", "a:c", "a=b", "me@here", "plain"]
    for device in (["-d", "cpu:x"], ["--device=cpu:x"], ["--device", "cpu:x"]):
        assert complete(*device, "status", "") == jobs
    assert complete("-d", "cpu:", **here) == complete("--device=cpu:", **here) == ["x"]
    assert complete("--device=", **here) == complete("--device=c", **here) == ["cpu", "cpu:x"]
    assert complete("status", "a", **here) == ["a:b", "a:c", "a=b"]
    assert complete("status", "a:", **here) == ["b", "c"] and complete("status", "a=", **here) == ["b"]
    assert complete("status", "a:c", **here) == ["c"] and complete("status", "me@", **here) == ["@here"]
    assert complete("evict", "a:b", "", **here) == complete("evict", "a=b", "", **here) == ["0", "1"]
    assert complete("pause", "a:b", "", **here) == complete("pause", "x", ":", **here) == []
    for file in (["-o", "t:r"], ["--output=t:r"], ["--output", "t:r"]):
        assert complete("trace", "plain", *file) == ["race.json"]
    assert complete("status", "--watch=2", "pl", **here) == ["plain"]
    assert complete("run", "-n", "2", "--", "cat", "--file=t:") == ["race.json"]


# Says which words bash has made of the line, and what the line is when it has been completed.
WATCHED = r"""
PS1=
watched() {
        printf '%s\0' "${COMP_WORDS[@]:0:COMP_CWORD+1}" >words
        _gradsyncctl "$@"
}
complete -F watched gradsyncctl
told() {
        printf '%s' "$READLINE_LINE" >.line && mv .line line
        READLINE_LINE= READLINE_POINT=0
}
bind -x '"\C-xp": told'
echo ready >.line && mv .line line
"""


@pytest.mark.parametrize("typed, completed", [
    ("gradsyncctl -d cpu:x status pl", "gradsyncctl -d cpu:x status plain "),
    ("gradsyncctl -d cpu:x stat", "gradsyncctl -d cpu:x status "),
    ("gradsyncctl --device=cpu:x status pl", "gradsyncctl --device=cpu:x status plain "),
    ("gradsyncctl -d cpu:", "gradsyncctl -d cpu:x "),
    ("gradsyncctl --device=cpu:", "gradsyncctl --device=cpu:x "),
    ("gradsyncctl evict 'two words' ", "gradsyncctl evict 'two words' 0 "),
    ("gradsyncctl status a=", "gradsyncctl status a=b "),
    ("gradsyncctl status me@h", "gradsyncctl status me@here "),
    ("gradsyncctl status c::", "gradsyncctl status c::d "),
])
def test_on_a_terminal(build, scratch, daemon, peers, typed, completed):
    """What a real bash makes of the line, and that these tests break lines as it does."""
    served = daemon(device="cpu:x")
    for name in ("plain", "two words", "a=b", "me@here", "c::d"):
        peers(Crew(served.socket, name, 1, plan=None))
    link = scratch / "gradsync/cpu:x/socket"
    link.parent.mkdir(parents=True)
    link.symlink_to(served.socket)
    (scratch / "rc").write_text(f"source {SCRIPT}\n{WATCHED}")
    line = scratch / "line"
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.chdir(scratch)
            os.execvpe("bash", ["bash", "--noprofile", "--rcfile", "rc", "-i"], harness.environment(
                {"PATH": f"{build / 'client/cli'}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(scratch),
                 "HOME": str(scratch), "INPUTRC": "/dev/null", "TERM": "dumb"}))
        finally:
            os._exit(127)
    try:
        harness.wait_until(line.exists, "the shell is ready")
        line.unlink()
        os.write(terminal, f"{typed}\t\x18p".encode())
        harness.wait_until(line.exists, "the shell has completed the line")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    assert (scratch / "words").read_text().split("\0")[:-1] == broken(typed)
    assert line.read_text() == completed


@pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")
def test_jobs_of_several_users(complete, daemon, peers):
    """A name that two have is offered with the user; the user is offered too where it is being typed."""
    served = daemon(settings={"socket_mode": "0666"})
    for name, uid in (("same", 61001), ("same", 61002), ("other", 61002)):
        peers(Crew(served.socket, name, 1, plan=None, uid=uid))
    assert complete("status", "", socket=served.socket) == ["61001/same", "61002/same", "other"]
    assert complete("pause", "61002/", socket=served.socket) == ["61002/other", "61002/same"]
    assert complete("pause", "s", socket=served.socket) == []


def test_without_a_daemon(complete, scratch):
    assert complete("-s", str(scratch / "nowhere"), "status", "") == []


def test_values(complete, scratch):
    (scratch / "trace.json").touch()
    assert complete("key", "") == ["new"]
    assert complete("list", "") == ["clients", "jobs", "links"] and complete("list", "jobs", "") == []
    assert complete("trace", "j", "-o", "tra") == complete("trace", "j", "--output=tra") == ["trace.json"]
    assert complete("trace", "j", "--output=") == ["trace.json"]
    assert complete("--device", "") == ["cpu"] and complete("top", "-n", "") == [] and complete("run", "--restart", "") == []
    assert "bash" in complete("run", "-n", "2", "--", "bas") and complete("run", "-n", "2", "--", "cat", "tra") == ["trace.json"]


def test_every_value_is_known_from_the_help(complete, program):
    """No option with a value is taken for one that stands alone: nothing else is offered in its place."""
    for command in commands_of(program):
        told = program(harness.CTL, "help", command)
        assert told.wait() == 0
        for letter, name in re.findall(r"^  (-\w, |    )(--[a-z-]+) [A-Z]", told.out, re.M):
            for option in filter(None, [letter.strip(" ,"), name]):
                assert complete(command, option, "he") == [], (command, option)


def test_it_is_registered_and_installed(build):
    told = subprocess.run(["bash", "--norc", "-c", f"source {SCRIPT} && complete -p gradsyncctl"], capture_output=True, text=True,
                          check=True)
    assert told.stdout == "complete -F _gradsyncctl gradsyncctl\n"
    installed = json.loads((build / "meson-info/intro-installed.json").read_text())
    assert installed[str(SCRIPT)].endswith("/share/bash-completion/completions/gradsyncctl")
