# SPDX-License-Identifier: Apache-2.0
"""Completion in bash, zsh and fish: what the real shells offer for a line of gradsyncctl. test_completion.py
tries what may be offered; these tests try what becomes of it, and which words the shells hand over."""
import contextlib
import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

import harness
from peer import Crew
from terminal import Controlled

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "client/cli/completion"

BASH = FOLDER / "gradsyncctl.bash"

# The shell writes its offers to $FOUND instead. The line editor runs once, on the line of the test.
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
    """The texts that replace the last piece of the line, without their quotes."""
    script = (f"source {BASH}\n" 'COMP_LINE=$1 COMP_POINT=${#1}\nshift\n'
              'COMP_WORDS=("$@")\nCOMP_CWORD=$(($# - 1))\n_gradsyncctl\nprintf "%s\\n" "${COMPREPLY[@]}"')
    made = subprocess.run(["bash", "--norc", "-c", script, "bash", line, *broken(line)], cwd=scratch,
                          env=harness.environment(env), capture_output=True, text=True, check=True)
    assert made.stderr == ""
    return [shlex.split(each)[0] for each in made.stdout.split("\n")[:-1] if each]


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
    def run(shell, line, socket=None, before=""):
        env = {"PATH": f"{build / 'client/cli'}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": scratch,
               "TMPDIR": scratch, **({"GRADSYNC_SOCKET": socket} if socket else {})}
        return sorted(set(shell(f"{before}gradsyncctl {line}", env, scratch, place)))

    return run


@pytest.fixture(params=[in_bash, in_zsh, in_fish], ids=["bash", "zsh", "fish"])
def offered(request, offer):
    """offered(line, socket=None), in each of the shells."""
    name = request.param.__name__.removeprefix("in_")
    if not shutil.which(name):
        pytest.skip(f"there is no {name}")
    return functools.partial(offer, request.param)


def test_words_of_the_tool(offered):
    assert offered("") == offered("help ") and len(offered("")) > 8
    assert offered("t") == ["top", "trace"] and offered("q") == []
    assert offered("--ver") == ["--version"] and offered("top --co") == ["--count"]
    assert offered("list ") == ["clients", "jobs", "links"] and offered("list jobs ") == []


#: Names that mean something to a shell, or to the lines between it and gradsyncctl.
ODD = ["$(touch owned)", "*", ":files", "`touch owned`", "a:b", "a=b", "a\\b", "it's", "me@here",
       "two words", "x;y", '"']


def test_names_of_jobs(offered, daemon, peers, scratch):
    served = daemon(device="cpu:x")
    for name in ODD:
        peers(Crew(served.socket, name, 2 if name == "two words" else 1, plan=None))
    here = {"socket": served.socket}
    assert offered("status ", **here) == sorted(ODD)
    assert offered(r"evict two\ words ", **here) == offered("evict 'two words' ", **here) == ["0", "1"]
    assert offered(f"-s '{served.socket}' evict it\\'s ") == ["0"]
    assert offered(r"status two\ w", **here) == ["two words"]
    assert offered("status 'unknown' ", **here) == offered(f"-s {scratch}/nowhere status ") == []
    assert offered("--device ", **here) == ["cpu", "cpu:x"]
    assert not (scratch / "owned").exists()


def test_paths(offered, scratch):
    (scratch / "trace.json").touch()
    (scratch / "traces").mkdir()
    for line in ("trace j -o tra", "trace j --output=tra", "run -n 2 -- cat tra"):
        assert [re.sub("^--output=|/$", "", word) for word in offered(line)] == ["trace.json", "traces"], line
    assert [word.rstrip("/") for word in offered("run -n 2 --log-dir tra")] == ["traces"]
    assert "true" in offered("run -n 2 -- tru") and "true" in offered("-s /x run -n 2 tru")


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
    assert told.stdout == "complete -o nosort -F _gradsyncctl gradsyncctl\n"
    assert (FOLDER / "gradsyncctl.zsh").read_text().startswith("#compdef gradsyncctl\n")


@pytest.fixture
def crowded(daemon, peers, scratch):
    """A daemon with jobs of odd names, at the default place of its device."""
    served = daemon(device="cpu:x")
    for name in ("a:b", "a:c", "a=b", "me@here", "plain", "two words", "c::d"):
        peers(Crew(served.socket, name, 1, plan=None))
    link = scratch / "gradsync/cpu:x/socket"
    link.parent.mkdir(parents=True)
    link.symlink_to(served.socket)


def test_words_that_bash_breaks(offer, crowded, scratch):
    """A word that is offered replaces the last piece only."""
    (scratch / "t:race.json").touch()
    expected = {"-d cpu:x status pl": ["plain"], "--device=cpu:x status a": ["a:b", "a:c", "a=b"],
                "-d cpu:": ["x"], "--device=cpu:": ["x"], "--device=": ["cpu", "cpu:x"],
                "--device=c": ["cpu", "cpu:x"], "status a:": ["b", "c"], "status a=": ["b"],
                "status a:c": ["c"], "status me@": ["@here"], "evict a=b ": ["0"], "pause a:b ": [],
                "pause x :": [], "trace plain -o t:r": ["race.json"],
                "trace plain --output=t:r": ["race.json"], "status --watch=2 pl": ["plain"],
                "run -n 2 -- cat --file=t:": ["race.json"]}
    assert {line: offer(in_bash, line) for line in expected} == expected
    assert offer(in_bash, "status pl", before=" ") == ["plain"]         # as after "sudo"


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


def test_bash_on_a_terminal(build, scratch, crowded):
    """A real bash completes the line, and breaks it as these tests do."""
    (scratch / "rc").write_text(f"source {BASH}\n{WATCHED}")
    line = scratch / "line"
    with contextlib.closing(Controlled(["bash", "--noprofile", "--rcfile", "rc", "-i"], {
            "PATH": f"{build / 'client/cli'}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": scratch,
            "HOME": scratch, "INPUTRC": "/dev/null", "TERM": "dumb"}, scratch)) as shell:
        harness.wait_until(line.exists, "the shell is ready")
        for typed, rest in [("-d cpu:x stat", "us "), ("--device=cpu:", "x "), ("evict 'two words' ", "0 "),
                            ("status tw", "o\\ words "), ("status a=", "b "), ("status me@h", "ere "),
                            ("status c::", "d ")]:
            line.unlink()
            shell.key(f"gradsyncctl {typed}\t\x18p")
            harness.wait_until(line.exists, "the shell has completed the line")
            assert (scratch / "words").read_text().split("\0")[:-1] == broken(f"gradsyncctl {typed}")
            assert line.read_text() == f"gradsyncctl {typed}{rest}"
