# SPDX-License-Identifier: Apache-2.0
"""gradsyncctl __complete: what may stand at the cursor, whatever the shell."""
import re
import shlex
import string
import subprocess

import pytest

import harness
import wire
from fake import FakeDaemon

ALICE, BOB = 61001, 61002


@pytest.fixture
def told(ctl, scratch):
    """told(line, socket=None) -> the lines that are written for its last word. Nothing else is said."""
    def run(line, socket=None):
        words = shlex.split(line) + [""] * (line[-1:] in ("", " "))
        made = ctl("__complete", "--", *words, socket=socket,
                   env={"XDG_RUNTIME_DIR": scratch, "TMPDIR": scratch})
        assert made.err == ""
        return made.out.split("\n")[:-1]

    return run


@pytest.fixture
def offered(told):
    """The same without descriptions."""
    return lambda *arguments, **options: [line.split("\t")[0] for line in told(*arguments, **options)]


@pytest.fixture
def fake(scratch):
    """fake(device, *(name, uid)) -> a daemon with such jobs of three ranks, where its device has it."""
    made = []

    def start(device, *jobs, kind=FakeDaemon):
        folder = scratch / "gradsync" / device
        folder.mkdir(parents=True)
        answer = []
        for number, (name, uid) in enumerate(jobs, 1):
            member = {"job": number, "pid": 7, "state": "late"}
            answer += [("STATUS_JOB", wire.pb.StatusJob(job=number, name=name, uid=uid, state="running")),
                       *[("STATUS_MEMBER", wire.pb.StatusMember(rank=rank, member=rank + 1, **member))
                         for rank in range(3)]]
        made.append(kind(folder / "socket", answer=answer, device=device))
        return made[-1]

    yield start
    for each in made:
        each.close()


def explained(ctl, command):
    """[(letter, name, value)] of the options that its help explains."""
    lines = re.findall(r"^  (?:(-\w), |    )(--[a-z-]+)(?:\[=([A-Z]+)\]| ([A-Z]+))?  ",
                       ctl("help", command).out, re.M)
    return [(letter, name, optional or value) for letter, name, optional, value in lines]


def commands_of(ctl):
    return re.findall(r"^  ([a-z]+) +(.*)$", ctl("--help").out, re.M)


def test_commands(ctl, told, offered):
    commands = [f"{name}\t{summary}" for name, summary in commands_of(ctl)]
    assert len(commands) >= 8 and told("") == told("help ") == told("-s /x --json me") == commands
    assert told("-w 2 ") == told("-jw2 ") == told("--watch ") == told("--socket=/x -d ccc -- ") == commands
    assert not [line for line in commands if "__" in line]
    assert offered("nonsense ") == offered("version ") == offered("doctor ") == offered("help status ") == []
    assert ctl("__complete", code=2).out == ctl("__complete", "--", code=2).out == ""


#: Options that are read so that it can be said that they have no use there.
SILENT = {"demo": ["--socket"], "help": ["--socket", "--device"], "version": ["--socket", "--device"]}


COMMANDS = ["status", "list", "top", "trace", "metrics", "doctor", "demo", "run", "evict", "pause", "resume",
            "drain", "key", "help", "version"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_that_a_command_takes(build, ctl, told, command):
    """Its parser is asked with the beginnings of names; no command gets further than its options."""
    def refused(option):
        return subprocess.run([build / harness.CTL, command, option, "--zzz"], capture_output=True, text=True,
                              check=False, stdin=subprocess.DEVNULL).stderr

    options = explained(ctl, command)
    names = [name for _, name, _ in options]
    taken = names + SILENT.get(command, [])
    assert [line.split("\t")[0] for line in told(f"{command} --")] == names and "--help" in names
    assert all(re.fullmatch(r"--[a-z-]+\t\S.*", line) for line in told(f"{command} --"))
    for letter in string.ascii_lowercase:
        complaint = refused(f"--{letter}=")
        several = re.search("is the beginning of several: (.*)", complaint)
        number = len(several[1].split(", ")) if several else f"option --{letter}= is unknown" not in complaint
        assert number == sum(name.startswith(f"--{letter}") for name in taken), complaint
    for _, name, value in options:
        assert ("takes no value" in refused(f"{name}=")) == (not value), name


def test_every_command_is_among_those(ctl):
    assert COMMANDS == [name for name, _ in commands_of(ctl)]


@pytest.mark.parametrize("command", ["status", "list", "metrics", "trace", "run", "demo", "evict", "key"])
def test_values_of_options(ctl, offered, command):
    """The help says of which kind they are. Nothing else is offered in their place."""
    kinds = {"FILE": [":files"], "PATH": [":files"], "DIR": [":directories"], "DEVICE": ["cpu"]}
    for letter, name, value in explained(ctl, command):
        for option in filter(None, [letter, name]):
            if value and name != "--watch":
                assert offered(f"{command} {option} ") == kinds.get(value, []), option
        if value:
            leads = [kind if kind[0] == ":" else f"{name}={kind}" for kind in kinds.get(value, [])]
            assert offered(f"{command} {name}=x") == leads, name


def test_before_the_command(ctl, offered):
    """There may stand what all commands take, and what the one takes that needs no name."""
    assert offered("-") == offered("--json --") == [name for _, name, _ in explained(ctl, "status")]
    assert offered("-s ") == offered("--socket=") == [":files"] and offered("-d ") == ["cpu"]


def test_jobs(told, offered, fake):
    served = fake("x", ("resnet", ALICE), ("bert", ALICE))
    assert told("status ") == [f"bert\trunning on x, of {ALICE}", f"resnet\trunning on x, of {ALICE}"]
    jobs = ["bert", "resnet"]
    for line in ("status -w 2 ", "status --watch ", "status --watch=2 ", "top -n 3 ", "trace -o file ",
                 "evict ", "pause ", "resume ", "evict --token x ", "status -j -- ", "-jw2 status "):
        assert offered(line) == jobs, line
    assert offered("top b") == ["bert", f"{ALICE}/bert", "resnet", f"{ALICE}/resnet"]
    for line in ("status bert ", "pause bert ", "trace bert ", "trace bert -o f ", "metrics ",
                 "pause --token be"):
        assert offered(line) == [], line
    assert set(served.asked) == {""}


def test_after_a_double_dash(offered, fake):
    """No word is an option any more."""
    fake("x", ("bert", ALICE))
    assert offered("status -- -") == offered("status -j -- --") == ["bert", f"{ALICE}/bert"]


def test_ranks(told, offered, fake):
    served = fake("x", ("bert", ALICE))
    assert told("evict bert ") == [f"{rank}\tpid 7, late" for rank in range(3)]
    assert offered("evict --token x 7/bert ") == offered("evict --token=x -- root/bert ") == ["0", "1", "2"]
    assert served.asked == ["bert", "7/bert", "0/bert"]
    assert offered("evict bert 0 ") == offered("evict nouser-of-here/bert ") == offered("evict '' ") == []


def test_jobs_of_several_users(told, offered, fake):
    """Where the name alone says too little the user comes with it. A job may be known to several daemons."""
    fake("x", ("same", BOB), ("same", ALICE), ("other", BOB), ("mine", 0))
    fake("y", ("same", BOB), ("other", BOB))
    assert offered("status ") == ["mine", "other", f"{ALICE}/same", f"{BOB}/same"]
    assert offered("status r")[:3] == ["mine", "root/mine", "0/mine"] and "same" not in offered("status s")


def test_the_daemon_that_the_line_means(offered, fake, scratch):
    fake("x", ("at-x", ALICE))
    fake("cpu", ("at-cpu", ALICE))
    assert offered("status ") == ["at-cpu", "at-x"]
    at_x = scratch / "gradsync/x/socket"
    for option in ("-d x", "-dx", "--device x", "--device=x", f"-s {at_x}", f"-s{at_x}", f"--socket {at_x}",
                   f"--socket={at_x}", "--json -d x"):
        assert offered(f"{option} status ") == ["at-x"], option
    for option in ("-d x", "-jdx", f"--socket={at_x}"):
        assert offered(f"status {option} ") == ["at-x"], option
    assert offered("status ", socket=at_x) == ["at-x"] and offered("-d nowhere status ") == []
    assert offered("status --device c") == ["cpu", "x"]
    assert offered("--device=x") == ["--device=cpu", "--device=x"]


def test_names_that_could_do_harm(told, fake):
    """A line has one tab. A name that a terminal must not show as it is is not offered."""
    fine = [":command 1", ":files", "$(touch x)", "a b", "a'b", 'a"b', "a:b", "a=b", "a\\b",
            "\u00fcber", "~", "*"]
    fake("x", *[(name, 0) for name in (*fine, "-rf", "a\tb", "a\nb", "a\x1bb", "a\u202eb", "")])
    lines = told("status ")
    assert {line.count("\t") for line in lines} == {1}
    assert sorted(line.split("\t")[0] for line in lines) == sorted([*fine, "root/-rf"])


def test_texts_that_could_do_harm(told, fake):
    served = fake("x")
    served.answer.append(("STATUS_JOB", wire.pb.StatusJob(job=1, name="j", state="a\tb\nc", uid=ALICE)))
    assert told("status ") == [f"j\ta\\x09b\\x0ac on x, of {ALICE}"]


class Silent(FakeDaemon):
    """It takes connections, and says nothing."""

    def _talk(self, client):
        while client.recv(wire.FRAME_MAX):
            pass


def test_daemons_that_do_not_answer(offered, fake):
    """One takes nothing from those that do. Where too many are silent, the line is not completed."""
    fake("silent", kind=Silent)
    fake("x", ("bert", ALICE))
    assert offered("status ") == ["bert"]
    assert offered("-d silent status ") == offered("-d silent evict j ") == []
    for number in range(12):
        fake(f"silent-{number}", kind=Silent)
    assert offered("status ") == []


def test_the_command_of_a_job(offered):
    """Another program knows how to complete it; the number of the word where it begins is said."""
    assert offered("run -n 2 -- ") == offered("run -n 2 -- tru") == [":command 5"]
    assert offered("run -n 2 -- cat -n tra") == [":command 5"]
    assert offered("-d x run -n2 -- -") == [":command 6"]
    for line in ("run -n 2 pyth", "run -n 2 python --ver", "run -n 2 a -- "):
        assert offered(line) == [":command 4"], line
    assert offered("run ") == offered("run -n 2 ") == [] and "--restart" in offered("run -n 2 -")


def test_fixed_words(offered):
    assert offered("list ") == offered("list --ended j") == ["jobs", "clients", "links"]
    assert offered("key ") == ["new"]
    assert offered("list jobs ") == offered("key new ") == offered("demo ") == offered("drain ") == []


def test_there_is_no_word_of_it(ctl):
    """It is for the completions of the shells alone."""
    assert "__complete" not in ctl("--help").out and "__complete" not in ctl("__complet", code=2).err
    ctl("help", "__complete", code=2)
