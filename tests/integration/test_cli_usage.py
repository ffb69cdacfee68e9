# SPDX-License-Identifier: Apache-2.0
"""gradsyncctl's texts for words that it does not know, and its exit statuses."""
import os
import pathlib
import re
import shlex
import subprocess

import pytest

import harness
import wire

TREE = pathlib.Path(__file__).resolve().parents[2]
ALICE = 61001


@pytest.fixture
def served(fake):
    return fake(answer=[("STATUS_JOB", wire.pb.StatusJob(job=1, name="resnet", state="running", world=1))])


def commands_of(ctl):
    return re.findall(r"^  ([a-z]+) ", ctl("help").out, re.M)


@pytest.mark.parametrize("arguments, told", [
    ("statsu", 'there is no command "statsu"; did you mean status?'),
    ("--json Evcit job 0", 'there is no command "Evcit"; did you mean evict?'),
    ("help tpo", 'there is no command "tpo"; did you mean top?'),
    ("status --jsno", "option --jsno is unknown; did you mean --json?"),
    ("--jsno", "option --jsno is unknown; did you mean --json?"),
    ("--verison", "option --verison is unknown; did you mean --version?"),
    ("top --coutn=3", "option --coutn=3 is unknown; did you mean --count?"),
    ("run -keep-going -n 1 true", "unknown option -k; did you mean --keep-going?"),
    ("evict job 0 --tok=x --tokne y", "option --tokne is unknown; did you mean --token?"),
    ("demo --h", "option --h is the beginning of several: --help, --hosts"),
    ("run --restart", "option --restart needs a value"),
    ("list job", "list wants to know what: jobs, clients or links; did you mean jobs?"),
    ("list clinets", "list wants to know what: jobs, clients or links; did you mean clients?"),
    ("list jobs extra",
     "list jobs takes no further argument; one job is shown by: gradsyncctl status JOB\n"),
    ("list jobs --ended extra", "list jobs takes no further argument; one job is shown by: "),
    ("list links extra", "list links takes no further argument\n"),
    ("status --json=1", "option --json=1 takes no value"),
    ("status --frobnicate", "option --frobnicate is unknown\n"),
    ("status -x", "unknown option -x\n"),
    ("list frobnicate", "list wants to know what: jobs, clients or links\n"),
    ("version x", "version takes no argument"), ("doctor x", "doctor takes no argument"),
    ("metrics job", "metrics takes no argument"), ("metrics -o", "option -o needs a value"),
    ("metrics -o ''", "--output: the name of the file is empty"),
    ("status a b", "status takes one job at most"), ("top -b a b", "top takes one job at most"),
    ("status ''", "the name of a job is never empty"), ("top -b ''", "the name of a job is never empty"),
    ("trace '' -o x", "trace wants to know one job: "), ("trace", "trace wants to know one job: "),
    ("trace a b -o x", "trace wants to know one job: "), ("trace j", "trace wants to know where to write: "),
    ("run", "run needs -n, the number of processes"), ("run -n 2", "run needs a command to start"),
    ("run -n 0 true", '-n needs a number from 1 to 256, not "0"'),
    ("run -n 257 true", '-n needs a number from 1 to 256, not "257"'),
    ("run -n 1 --grace -1 true", '--grace needs a number of seconds, not "-1"'),
    ("run -n 1 --job a/b true", '"a/b" cannot be the name of a job: '),
    ("run -n 1 --job '' true", '"" cannot be the name of a job: '),
    ("top", "the output is no terminal; top --batch"),
    ("top -b -n 0", '--count needs a number from 1, not "0"'),
    ("top -b -i x", '--interval needs a number of seconds, not "x"'),
    ("status -w 0", '--watch needs a number of seconds, not "0"'),
    ("-w 1.2.3", '--watch needs a number of seconds, not "1.2.3"'),
    ("status --watch=resnet", '--watch needs a number of seconds, not "resnet"; '
                              "the name of a job stands apart: gradsyncctl status --watch JOB"),
    ("--json resnet", 'there is no command "resnet"; a job is shown by: gradsyncctl status resnet'),
    ("--unknown", "option --unknown cannot stand in front of the command; is it one of a command? "),
    ("-n 2 top", "option -n cannot stand in front of the command"),
    ("--token x evict job 0", "option --token cannot stand in front of the command"),
    ("--json=yes status", "option --json=yes cannot stand in front of the command"),
    ("--json run -n 1 true", "option --json is unknown"), ("--socket", "option --socket needs a value"),
])
def test_wrong_usage(ctl, arguments, told):
    """The error says what is wrong, and what the user may have meant."""
    made = ctl(*shlex.split(arguments), code=2)
    assert made.out == "" and made.err.startswith(f"gradsyncctl: {told}"), made.err
    assert re.search(r"^Try: gradsyncctl help( \w+)?$", made.err, re.M)


def test_a_job_is_no_command(ctl, served):
    """The error shows the right command, which works."""
    for front in ([], ["--watch"]):
        told = ctl(*front, "resnet", socket=served.path, code=2).err
        words = re.search(r'no command "resnet"; a job is shown by: gradsyncctl (.*)$', told, re.M)[1].split()
        assert words == ["status", *front, "resnet"]
    assert "resnet" in ctl("status", "resnet", socket=served.path).out


def test_help_and_version_everywhere(ctl):
    version = ctl("version").out
    assert re.fullmatch(r"gradsyncctl \d+\.\d+\.\d+\n", version)
    assert version == ctl("-V").out == ctl("--version").out == ctl("-j", "-V").out
    commands = commands_of(ctl)
    assert "version" in commands and len(commands) >= 15
    for command in commands:
        explained = ctl("help", command).out
        assert explained == ctl(command, "-h").out == ctl(command, "--help").out == ctl("-h", command).out
        assert explained.startswith(f"Usage: gradsyncctl {command} [OPTIONS]")
        for option in ("  -h, --help  ", "  -V, --version  "):
            assert explained.count(option) == 1, explained
        assert version == ctl(command, "-V").out == ctl(command, "--version").out
    for words in (["list", "jobs"], ["key", "new"], ["evict", "job", "0"]):
        assert ctl(*words, "-h").out == ctl("help", words[0]).out and ctl(*words, "-V").out == version
    assert ctl("run", "-n", "1", "--private", "--", "echo", "-V").out == "[0] -V\n"


@pytest.mark.parametrize("arguments, job", [
    (["status", "-w", "0.05"], None), (["-w", "0.05"], None), (["-jw", "0.05", "status"], None),
    (["--watch", ".05"], None), (["status", "--watch", "0.05", "resnet"], "resnet"),
    (["status", "resnet", "-w", "0.05"], "resnet"), (["status", "--watch=0.05", "7"], "7"),
    (["status", "7", "-w", "0.05"], "7"), (["status", "-w0.05", "--", "7"], "7"),
    (["status", "--watch", "resnet"], "resnet"),
], ids=lambda each: " ".join(each) if isinstance(each, list) else "")
def test_the_period_of_a_watch(program, served, arguments, job):
    """A number after it is the period; anything else is the job."""
    watching = program(harness.CTL, *arguments, socket=served.path, stdin=subprocess.DEVNULL)
    harness.wait_until(lambda: len(served.asked) >= 2, "it looks again")
    assert set(served.asked) == {job or ""}
    watching.signal(2)
    assert watching.wait() == 0


def test_a_pause_of_the_demo_may_be_none(ctl):
    """Options are read before what is refused for another reason."""
    for none in ("0", "0.0", "00.", "0."):
        assert "--socket has no use here" in ctl("demo", "-s", "/x", "--pause", none, code=2).err
    for wrong in ("0x", ".", "-0", "0s", "0.001", "1e7"):
        told = ctl("demo", "-s", "/x", f"--pause={wrong}", code=2).err
        assert f'a number of seconds, not "{wrong}"' in told
    assert 'a number of seconds, not "0"' in ctl("top", "-b", "-i", "0", code=2).err


# -- exit codes

def documented():
    """{code: meaning} of the table of the man page."""
    page = (TREE / "client/cli/man/gradsyncctl.1.scd").read_text()
    table = page[page.index("# EXIT STATUS"):]
    table = table[:table.index("\n\n", table.index("[["))]
    rows = re.findall(r"^\|  (\S[^\n]*)\n:  (.+)$", table, re.M)
    assert len({row[0] for row in rows}) == len(rows) > 5
    return dict(rows)


def test_exit_codes_are_in_one_table(ctl):
    header = (TREE / "client/cli/base/cli.h").read_text()
    codes = re.findall(r"^ +CLI_\w+ = (\d+),$", header, re.M)
    assert len(codes) == len(set(codes)) >= 6
    table = documented()
    assert [code for code in table if re.fullmatch(r"\d", code)] == codes
    shown = dict(re.findall(r"(\d+) ([^,.]+)", re.search(r"^Exit status: (.*)$", ctl("help").out, re.M)[1]))
    assert list(shown) == codes
    for code, text in shown.items():
        assert table[code].startswith(text), (code, table[code], text)
    assert {"126", "127", "128 + N"} <= set(table)
    tour = re.search(r"^- Exit codes: (.*?)\.", (TREE / "docs/TOUR.md").read_text(), re.M | re.S)[1]
    assert re.findall(r"\d+", tour) == codes
    ends = re.findall(r"^#define SERVER_\w+_FAILED (\d+)", (TREE / "daemon/core/server.h").read_text(), re.M)
    assert ends and not set(ends) & set(table)


def test_the_text_of_a_refusal_gives_a_terminal_no_orders(ctl, fake):
    """Whichever way it gets to the terminal, and whatever the refusal is."""
    words = (["status"], ["list", "jobs"], ["top", "-b", "-n", "1"], ["pause", "job"], ["drain"], ["metrics"],
             ["trace", "job", "-o", "-"], ["doctor"])
    for code in ("DENIED", "INVALID", "VERSION", "DAEMON_LOST"):
        refusing = fake(code, refuse=(code, "go \x1b]0;owned\x07 away"))
        for each in words:
            made = ctl(*each, socket=refusing.path, code=None)
            assert "\x1b" not in made.err + made.out and "\x07" not in made.err + made.out, (code, each)
            assert r"go \x1b]0;owned\x07 away" in made.err + made.out, (code, each, made.err)


def test_permission_denied(ctl, served, fake):
    denied = fake("denied", refuse=("DENIED", "no permission for you"))
    for words in (["status"], ["list", "jobs"], ["top", "-b", "-n", "1"], ["pause", "job"], ["drain"],
                  ["metrics"], ["trace", "job", "-o", "-"],
                  ["run", "--socket", denied.path, "-n", "1", "true"]):
        made = ctl(*words, socket=denied.path, code=5)
        assert "no permission for you" in made.err and made.out == "", words
    if os.geteuid() == 0:
        os.chmod(served.path, 0o600)
        assert "permission denied" in ctl("status", socket=served.path, uid=ALICE, code=5).err
