# SPDX-License-Identifier: Apache-2.0
"""Completion in bash, zsh and fish: what the real shells offer for a line of gradsyncctl."""
import contextlib
import functools
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import harness
from peer import Crew
from terminal import Controlled

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "client/cli/completion"

BASH = FOLDER / "gradsyncctl.bash"

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
    with contextlib.closing(Controlled(["zsh", "-d", "-i"], {
            **env, "ZDOTDIR": place, "FOUND": found, "LINE": line}, scratch)) as shell:
        shell.wait()
    assert done.exists() and done.read_text() == "_gradsyncctl\n", shell.text
    assert not re.search(r"_gradsyncctl\w*:|not found|bad ", shell.text), shell.text
    return found.read_text().split("\n")[:-1]


def broken(line):
    """COMP_WORDS for the line, as bash makes them: blanks and COMP_WORDBREAKS part it, but not in quotes."""
    words = re.findall(r"""[:=@]+|(?:\\.|'[^']*'|"[^"]*"|[^\s:=@'"])+""", line)
    return words + [""] * (line[-1] == " ")


def in_bash(line, env, scratch, _):
    """What replaces the last piece of the line."""
    script = (f"source {BASH}\n" 'COMP_LINE=$1\nshift\nCOMP_WORDS=("$@")\nCOMP_CWORD=$(($# - 1))\n'
              '_gradsyncctl\nprintf "%s\\n" "${COMPREPLY[@]}"')
    made = subprocess.run(["bash", "--norc", "-c", script, "bash", line, *broken(line)], cwd=scratch,
                          env=harness.environment(env), capture_output=True, text=True, check=True)
    assert made.stderr == ""
    return [each for each in made.stdout.split("\n")[:-1] if each]


def in_fish(line, env, scratch, _):
    script = f"source {FOLDER}/gradsyncctl.fish; complete -C $LINE"
    made = subprocess.run(["fish", "--no-config", "-c", script], cwd=scratch, capture_output=True, text=True,
                          env=harness.environment({**env, "LINE": line, "HOME": scratch, "TERM": "xterm"}),
                          check=False, stdin=subprocess.DEVNULL, timeout=harness.DEADLINE)
    assert made.returncode == 0 and made.stderr == "", made.stderr
    return [each.split("\t")[0] for each in made.stdout.split("\n")[:-1]]


@pytest.fixture
def offer(build, scratch, place):
    """offer(in_bash, line, socket=None) -> the words that the shell offers at the end of the line, sorted."""
    def run(shell, line, socket=None):
        env = {"PATH": f"{build / 'client/cli'}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": scratch,
               "TMPDIR": scratch, **({"GRADSYNC_SOCKET": socket} if socket else {})}
        return sorted(set(shell(f"gradsyncctl {line}", env, scratch, place)))

    return run


@pytest.fixture(params=[in_bash, in_zsh, in_fish], ids=["bash", "zsh", "fish"])
def offered(request, offer):
    """offered(line, socket=None), in each of the shells."""
    name = request.param.__name__.removeprefix("in_")
    if not shutil.which(name):
        pytest.skip(f"there is no {name}")
    return functools.partial(offer, request.param)


def commands_of(program):
    told = program(harness.CTL, "--help")
    assert told.wait() == 0
    return sorted(re.findall(r"^  ([a-z]+) ", told.out, re.M))


def test_commands(offered, program):
    commands = commands_of(program)
    assert len(commands) >= 8 and offered("") == commands == offered("help ")
    assert offered("t") == ["top", "trace"] and offered("q") == []
    assert offered("-s /x --json me") == offered("--socket=/x me") == ["metrics"]


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
    assert offered("pause resnet ", **here) == []
    assert offered("pause --token be", **here) == []            # a secret is no job
    assert offered("doctor ", **here) == []
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


def test_options_and_values_are_those_of_the_help(offer, program):
    """In bash, of every command. No option with a value is taken for one that stands alone: nothing else is
    offered in its place."""
    for command in commands_of(program):
        told = program(harness.CTL, "help", command)
        assert told.wait() == 0
        options = sorted(re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", told.out, re.M))
        assert "--help" in options and offer(in_bash, f"{command} --") == options
        for letter, name in re.findall(r"^  (-\w, |    )(--[a-z-]+) [A-Z]", told.out, re.M):
            for option in filter(None, [letter.strip(" ,"), name]):
                assert offer(in_bash, f"{command} {option} he") == [], (command, option)


@pytest.mark.parametrize("shell, check", [("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]),
                                          ("fish", ["fish", "--no-execute"])])
def test_the_syntax(shell, check):
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell}")
    made = subprocess.run([*check, FOLDER / f"gradsyncctl.{shell}"], capture_output=True, text=True,
                          check=False)
    assert (made.returncode, made.stderr) == (0, "")


def test_they_are_registered():
    told = subprocess.run(["bash", "--norc", "-c", f"source {BASH} && complete -p gradsyncctl"],
                          capture_output=True, text=True, check=True)
    assert told.stdout == "complete -F _gradsyncctl gradsyncctl\n"
    assert (FOLDER / "gradsyncctl.zsh").read_text().startswith("#compdef gradsyncctl\n")
