# SPDX-License-Identifier: Apache-2.0
"""Completion in bash, where it breaks words that are one for gradsyncctl."""
import contextlib
import functools
import os
import shutil

import pytest

import harness
from peer import Crew
from terminal import Controlled
from test_completion_shells import BASH, broken, in_bash, offer, place  # noqa: F401

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")


@pytest.fixture
def offered(offer):
    return functools.partial(offer, in_bash)


def test_options_without_an_effect_are_not_offered(offered):
    """demo has a daemon of its own, of this device; help has none."""
    demo = ["--device", "--help", "--hosts", "--json", "--members", "--pause", "--version"]
    assert offered("demo --") == demo
    assert offered("help --") == ["--help", "--version"]


def give_place(scratch, served):
    """The default one of its device."""
    link = scratch / "gradsync/cpu:x/socket"
    link.parent.mkdir(parents=True)
    link.symlink_to(served.socket)


#: What is offered replaces the last piece only.
BROKEN = [("-d cpu:x status ", ["a:b", "a:c", "a=b", "me@here", "plain"]),
          ("--device=cpu:x status ", ["a:b", "a:c", "a=b", "me@here", "plain"]),
          ("-d cpu:", ["x"]), ("--device=cpu:", ["x"]), ("--device=", ["cpu", "cpu:x"]),
          ("--device=c", ["cpu", "cpu:x"]), ("status a", ["a:b", "a:c", "a=b"]), ("status a:", ["b", "c"]),
          ("status a=", ["b"]), ("status a:c", ["c"]), ("status me@", ["@here"]),
          ("evict a:b ", ["0", "1"]), ("evict a=b ", ["0", "1"]), ("pause a:b ", []), ("pause x :", []),
          ("trace plain -o t:r", ["race.json"]), ("trace plain --output=t:r", ["race.json"]),
          ("trace plain --output t:r", ["race.json"]), ("status --watch=2 pl", ["plain"]),
          ("run -n 2 -- cat --file=t:", ["race.json"])]


def test_words_that_the_shell_breaks(offered, daemon, peers, scratch):
    served = daemon(device="cpu:x")
    for name in ("a:b", "a:c", "a=b", "me@here", "plain"):
        peers(Crew(served.socket, name, 2, plan=None))
    give_place(scratch, served)
    (scratch / "t:race.json").touch()
    here = {"socket": served.socket}
    wrong = {line: found for line, expected in BROKEN
             if (found := offered(line, **({} if "cpu:x" in line else here))) != expected}
    assert not wrong


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
    give_place(scratch, served)
    (scratch / "rc").write_text(f"source {BASH}\n{WATCHED}")
    line = scratch / "line"
    with contextlib.closing(Controlled(["bash", "--noprofile", "--rcfile", "rc", "-i"], {
            "PATH": f"{build / 'client/cli'}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": scratch,
            "HOME": scratch, "INPUTRC": "/dev/null", "TERM": "dumb"}, scratch)) as shell:
        harness.wait_until(line.exists, "the shell is ready")
        line.unlink()
        shell.key(f"{typed}\t\x18p")
        harness.wait_until(line.exists, "the shell has completed the line")
    assert (scratch / "words").read_text().split("\0")[:-1] == broken(typed)
    assert line.read_text() == completed
