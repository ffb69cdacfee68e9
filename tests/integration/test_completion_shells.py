# SPDX-License-Identifier: Apache-2.0
"""Completion in zsh and fish: what the real shells offer for a line of gradsyncctl."""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

import harness
from peer import Crew

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "client/cli/completion"

# What the shell would offer is written to $FOUND instead. The line editor runs once, on the line of the test.
ZSHRC = r"""
fpath=($ZDOTDIR $fpath)
autoload -U compinit && compinit -u -C
compadd() {
        local -a found
        if (( ${@[(I)-[OAD]*]} )); then
                builtin compadd "$@"
        else
                builtin compadd -O found "$@"
                (( $#found )) && print -rl -- "$found[@]" >>$FOUND
                builtin compadd "$@"
        fi
}
_everything() {
        _main_complete
        compstate[insert]=
        compstate[list]=
}
zle -C everything complete-word _everything
zle-line-init() {
        BUFFER=$LINE
        CURSOR=$#BUFFER
        zle everything
        print -r -- "$_comps[gradsyncctl]" >$FOUND.done
        exit
}
zle -N zle-line-init
"""


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """Where zsh has the function under test, and keeps what it has found out about all others at first."""
    made = tmp_path_factory.mktemp("zsh")
    (made / "_gradsyncctl").write_text((FOLDER / "gradsyncctl.zsh").read_text())
    (made / ".zshrc").write_text(ZSHRC)
    return made


def in_zsh(line, env, scratch, place):
    """zsh completes in its line editor only, and that wants a terminal."""
    found, done = place / "found", place / "found.done"
    found.write_text("")
    done.unlink(missing_ok=True)
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.chdir(scratch)
            os.execvpe("zsh", ["zsh", "-d", "-i"], harness.environment(
                {**env, "ZDOTDIR": place, "FOUND": found, "LINE": line, "TERM": "xterm"}))
        finally:
            os._exit(127)
    said, end = b"", time.monotonic() + harness.DEADLINE
    try:
        while time.monotonic() < end and select.select([terminal], [], [], max(end - time.monotonic(), 0))[0]:
            said += os.read(terminal, 65536)
    except OSError:                     # its end
        pass
    finally:
        if time.monotonic() >= end:
            os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)
    assert done.exists() and done.read_text() == "_gradsyncctl\n", said.decode("utf-8", "replace")
    assert not re.search(rb"_gradsyncctl\w*:|not found|bad ", said), said.decode("utf-8", "replace")
    return found.read_text().split("\n")[:-1]


def in_fish(line, env, scratch, _):
    script = f"source {FOLDER}/gradsyncctl.fish; complete -C $LINE"
    made = subprocess.run(["fish", "--no-config", "-c", script], cwd=scratch, capture_output=True, text=True,
                          env=harness.environment({**env, "LINE": line, "HOME": scratch, "TERM": "xterm"}),
                          check=False, stdin=subprocess.DEVNULL, timeout=harness.DEADLINE)
    assert made.returncode == 0 and made.stderr == "", made.stderr
    return [each.split("\t")[0] for each in made.stdout.split("\n")[:-1]]


@pytest.fixture(params=[in_zsh, in_fish], ids=["zsh", "fish"])
def offered(request, build, scratch, place):
    """offered(line, socket=None) -> the words that the shell offers at the end of the line, sorted."""
    name = request.param.__name__.removeprefix("in_")
    if not shutil.which(name):
        pytest.skip(f"there is no {name}")

    def run(line, socket=None):
        env = {"PATH": f"{build / 'client/cli'}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": scratch,
               "TMPDIR": scratch, **({"GRADSYNC_SOCKET": socket} if socket else {})}
        return sorted(set(request.param(f"gradsyncctl {line}", env, scratch, place)))

    return run


def test_commands(offered, program):
    told = program(harness.CTL, "--help")
    assert told.wait() == 0
    commands = sorted(re.findall(r"^  ([a-z]+) ", told.out, re.M))
    assert len(commands) >= 8 and offered("") == commands == offered("help ")
    assert offered("t") == ["top", "trace"] and offered("-s /x --json me") == ["metrics"]


def test_options_are_those_of_the_help(offered, program):
    for command in ("status", "run", "key"):
        told = program(harness.CTL, "help", command)
        assert told.wait() == 0
        options = sorted(re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", told.out, re.M))
        assert "--help" in options and offered(f"{command} --") == options
    assert offered("--ver") == ["--version"] and offered("top --co") == ["--count"]


def test_jobs_and_ranks(offered, daemon, peers):
    served = daemon(device="cpu:x")
    for name, world in (("resnet", 3), ("bert", 1)):
        peers(Crew(served.socket, name, world, plan=None))
    here = {"socket": served.socket}
    for command in ("status", "evict"):
        assert offered(f"{command} ", **here) == ["bert", "resnet"]
    assert offered("top b", **here) == ["bert"] and offered(f"-s {served.socket} pause re") == ["resnet"]
    assert offered(f"trace -o file --socket={served.socket} be") == ["bert"]
    assert offered("status -w 2 be", **here) == ["bert"] and offered("status bert ", **here) == []
    uid = os.geteuid()
    assert offered(f"resume {uid}/", **here) == [f"{uid}/bert", f"{uid}/resnet"]
    assert offered("evict resnet ", **here) == ["0", "1", "2"]
    assert offered("evict --token x bert ", **here) == ["0"]
    assert offered("evict resnet 0 ", **here) == offered("evict nobody ", **here) == []
    assert offered("--device ", **here) == ["cpu", "cpu:x"]


def test_names_with_blanks(offered, daemon, peers):
    served = daemon()
    peers(Crew(served.socket, "two words", 2, plan=None))
    assert [word.replace("\\", "") for word in offered("status ", socket=served.socket)] == ["two words"]
    assert offered(r"evict two\ words ", socket=served.socket) == ["0", "1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")
def test_jobs_of_several_users(offered, daemon, peers):
    served = daemon(settings={"socket_mode": "0666"})
    for name, uid in (("same", 61001), ("same", 61002), ("other", 61002)):
        peers(Crew(served.socket, name, 1, plan=None, uid=uid))
    assert offered("status ", socket=served.socket) == ["61001/same", "61002/same", "other"]
    assert offered("pause 61002/", socket=served.socket) == ["61002/other", "61002/same"]


def test_values(offered, scratch):
    (scratch / "trace.json").touch()
    assert offered("list ") == ["clients", "jobs", "links"] and offered("key ") == ["new"]
    assert offered("trace j -o tra") == ["trace.json"]
    assert offered("list jobs ") == offered("top -n ") == offered("run --restart ") == []
    assert "true" in offered("run -n 2 -- tru") and offered("run -n 2 -- cat tra") == ["trace.json"]
    assert offered(f"-s {scratch}/nowhere status ") == []


@pytest.mark.parametrize("shell, check", [("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])])
def test_the_syntax(shell, check):
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell}")
    made = subprocess.run([*check, FOLDER / f"gradsyncctl.{shell}"], capture_output=True, text=True,
                          check=False)
    assert (made.returncode, made.stderr) == (0, "")


def test_they_are_installed(build):
    installed = json.loads((build / "meson-info/intro-installed.json").read_text())
    assert installed[str(FOLDER / "gradsyncctl.zsh")].endswith("/share/zsh/site-functions/_gradsyncctl")
    fish = installed[str(FOLDER / "gradsyncctl.fish")]
    assert fish.endswith("/share/fish/vendor_completions.d/gradsyncctl.fish")
    assert (FOLDER / "gradsyncctl.zsh").read_text().startswith("#compdef gradsyncctl\n")
