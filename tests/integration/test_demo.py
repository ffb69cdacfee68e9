# SPDX-License-Identifier: Apache-2.0
"""gradsyncctl demo: the story is told in the order in which it happens, its times are those of what happened, and whatever
ends it, nothing is left."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

import harness
from clusters import HELPER
from harness import wait_until
from terminal import Controlled

NUMBER = r"\d+(\.\d+)?"


def processes_of(folder):
    """Processes that were told of this directory: the daemon, the trainers and gradsyncctl itself."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if str(folder).encode() in words and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


@pytest.fixture
def temporary(scratch):
    """$TMPDIR of the demo; in the end nothing may be in it, and no process may know of it."""
    made = scratch / "tmp"
    made.mkdir()
    yield made
    # ThreadSanitizer's runtime makes a file there as each process begins, and removes it at once; a process
    # that is killed just then leaves it.
    assert [each for each in made.iterdir() if not each.name.startswith("tsan.rodata.")] == []
    wait_until(lambda: not processes_of(made), "the end of all processes")


EPOCHS = 30                             # fewer than the demo's own, which the first test has
STEPS = 29 * EPOCHS


@pytest.fixture
def elsewhere(build, scratch):
    """gradsyncctl, gradsyncd and the rest as if they were installed, with a story of fewer epochs. The function
    writes another trainer."""
    folder = scratch / "libexec/gradsync"
    folder.mkdir(parents=True)
    for path, name in ((harness.CTL, "bin"), (harness.DAEMON, "sbin")):
        (scratch / name).mkdir()
        shutil.copy(build / path, scratch / name)
    for path in (HELPER, harness.DIGITS):
        (folder / pathlib.Path(path).name).symlink_to(build / path)
    story = (build / harness.CTL).with_name("demo.py").read_text("utf-8")
    short = re.sub(r"(?m)^EPOCHS = 100\b", f"EPOCHS = {EPOCHS}", story)
    assert short != story
    (folder / "demo.py").write_text(short, "utf-8")
    (folder / "demo.py").chmod(0o755)

    def write(line):
        trainer = folder / "digits"
        trainer.unlink()
        trainer.write_text(f"#!/bin/sh\n{line.replace('DIGITS', str(build / harness.DIGITS))}\n", "utf-8")
        trainer.chmod(0o755)
    write.path = scratch / "bin/gradsyncctl"
    return write


@pytest.fixture
def demo(program, temporary, elsewhere):
    def start(*arguments, path=elsewhere.path):
        return program(path, "demo", *arguments, env={"TMPDIR": temporary}, stdin=subprocess.DEVNULL)
    return start


def until(run, word):
    """All lines up to the one with this word."""
    lines = []
    while not lines or word not in lines[-1]:
        lines.append(run.line(harness.LONG))
        assert lines[-1] is not None, (word, lines, run.err)
    return lines


@pytest.mark.heavy
def test_the_story(demo):
    run = demo(path=harness.CTL)
    story = (
        r"1  Training, undisturbed",
        rf"2900 steps in {NUMBER} s\. Accuracy 0\.\d+, parameters (?P<hash>[0-9a-f]{{16}})\.",
        r"2  The same training; a trainer stops",
        r"Ranks 0 to 2 are pid (?P<zero>\d+), (?P<one>\d+) and (?P<two>\d+)\.",
        r"Rank 1 is stopped in step (?P<step>\d+): kill -STOP (?P=one)",
        rf"After {NUMBER} ms gradsyncctl status says:\n"
        rf" +waiting {NUMBER} s for rank 1 \(pid (?P=one), stopped\): bucket \d, parameter \"layer\d\.(weight|bias)\"",
        r"\[\d\] digits: rank \d: job 'disturbed', step (?P=step): waiting \d.* for rank 1 \(pid (?P=one), stopped\)",
        rf"{NUMBER} s after the stop all of them have said so\. It goes on: kill -CONT (?P=one)",
        rf"Step (?P=step) is committed within {NUMBER} ms\.",
        r"3  A trainer dies",
        r"Rank 2 is killed: kill -9 (?P=two)",
        r"Only its process was started again, as pid (?P<new>\d+)\.",
        rf"[01] steps? void, back in {NUMBER} s, same ranks\.",
        r"4  The end",
        rf"2900 steps in {NUMBER} s\. Accuracy 0\.\d+, parameters (?P=hash)\.",
        r"Equal to the undisturbed run's, bit for bit, on all 3 members\.",
    )
    assert run.wait(harness.LONG) == 0, run.told()
    assert re.search(r"(?s:.*?)".join(story), run.out), run.out
    assert run.err == ""
    assert "\x1b" not in run.out


@pytest.mark.heavy
def test_numbers(demo):
    """A document of what was measured, for programs."""
    run = demo("--json", "-n", 4)
    assert run.wait(harness.LONG) == 0, run.told()
    told = json.loads(run.out)
    assert list(told) == ["schema_version", "members", "undisturbed", "stop", "kill", "disturbed", "equal"]
    assert list(told["undisturbed"]) == list(told["disturbed"]) == ["steps", "seconds", "accuracy", "hash"]
    assert list(told["stop"]) == ["rank", "host", "pid", "step", "bucket", "parameter", "named_ms", "told_ms",
                                  "resumed_ms"]
    assert list(told["kill"]) == ["rank", "host", "pid", "successor_pid", "step", "void_steps", "noticed_ms",
                                  "void_ms", "committed_ms"]
    assert (told["schema_version"], told["members"], told["equal"]) == (1, 4, True)
    undisturbed, disturbed = told["undisturbed"], told["disturbed"]
    assert undisturbed["hash"] == disturbed["hash"] and re.fullmatch("[0-9a-f]{16}", disturbed["hash"])
    assert undisturbed["steps"] == disturbed["steps"] == STEPS and disturbed["accuracy"] > 0.9
    stop, kill = told["stop"], told["kill"]
    assert (stop["rank"], kill["rank"], stop["host"], kill["host"]) == (1, 2, None, None)
    assert len({stop["pid"], kill["pid"], kill["successor_pid"]}) == 3
    assert undisturbed["steps"] / 4 <= stop["step"] < kill["step"] <= undisturbed["steps"]
    assert re.fullmatch(r"layer\d\.(weight|bias)", stop["parameter"]) and 0 <= stop["bucket"] < 4
    assert 0 < stop["named_ms"] < stop["told_ms"] and stop["told_ms"] >= 1000 and stop["resumed_ms"] > 0
    assert 0 < kill["noticed_ms"] < kill["committed_ms"]
    assert (kill["void_ms"] is None) == (kill["void_steps"] == 0)
    assert kill["void_ms"] is None or kill["noticed_ms"] <= kill["void_ms"] < kill["committed_ms"]
    for rank in (0, 3):
        assert re.search(rf"^\[{rank}\] digits: .*waiting .* \(pid {stop['pid']}, stopped\)", run.err, re.M), run.err


@pytest.mark.host
@pytest.mark.heavy
def test_what_happens_on_another_host(demo):
    """Two daemons that stand for hosts: the waiting one names the host, and the answer is the same."""
    run = demo("--hosts", 2)
    named = r"rank 1 on host two \(pid (?P=one), stopped\)"
    story = (
        r"Ranks 1 and 2 are on host two\.",
        rf"{STEPS} steps in {NUMBER} s\. Accuracy 0\.\d+, parameters (?P<hash>[0-9a-f]{{16}})\.",
        r"Ranks 0 to 2 are pid (?P<zero>\d+), (?P<one>\d+) and (?P<two>\d+)\.",
        rf"After {NUMBER} ms gradsyncctl status says:\n +waiting {NUMBER} s for {named}: bucket \d, param",
        rf"\[0\] digits: rank 0: job 'disturbed', step \d+: waiting \d.* for {named}: bucket",
        r"Rank 2 is killed: kill -9 (?P<killed>\d+)",
        r"Only its process was started again, as pid (?P<new>\d+)\.",
        r"same ranks\. The communicator between the hosts is the same\.",
        rf"{STEPS} steps in {NUMBER} s\. Accuracy 0\.\d+, parameters (?P=hash)\.",
        r"Equal to the undisturbed run's, bit for bit, on all 3 members\.",
    )
    assert run.wait(harness.LONG) == 0, run.told()
    assert re.search(r"(?s:.*?)".join(story), run.out), run.out
    assert run.err == ""


@pytest.mark.heavy
@pytest.mark.parametrize("word, options, number", [
    ("1  Training", [], signal.SIGINT), (f"{STEPS} steps in", ["--pause", 1000], signal.SIGINT),
    ("2  The same", [], signal.SIGTERM), ("It stays stopped", ["--pause", 3], signal.SIGINT),
    ("3  A trainer dies", [], signal.SIGINT), ("back in", [], signal.SIGTERM),
    pytest.param(f"{STEPS} steps in", ["--hosts", 2], signal.SIGINT, marks=pytest.mark.host)])
def test_interrupted_in_each_act(demo, word, options, number):
    """The fixtures see that nothing is left."""
    run = demo(*options)
    until(run, word)
    run.signal(number)
    assert run.wait(harness.LONG) == 128 + number, run.told()
    assert "Equal" not in run.out


@pytest.mark.heavy
def test_another_result_is_told(demo, elsewhere):
    elsewhere('[ "$GRADSYNC_JOB" = undisturbed ] || seed="--seed 2"; exec DIGITS "$@" $seed')
    run = demo()
    assert run.wait(harness.LONG) == 1, run.told()
    first, second = re.findall(r"parameters ([0-9a-f]{16})\.", run.out)
    assert first != second and f"the parameters differ: {first} undisturbed, {second} disturbed" in run.err
    assert "Equal" not in run.out


def test_a_training_that_ends_too_early(demo, elsewhere):
    elsewhere('exec DIGITS "$@" --epochs 1')
    run = demo()
    assert run.wait(harness.LONG) == 1, run.told()
    assert "over before everything had happened" in run.err and "Equal" not in run.out


def test_a_trainer_that_fails(demo, elsewhere):
    elsewhere('[ "$GRADSYNC_RANK" = 0 ] && { echo "no data" >&2; exit 3; }; exec DIGITS "$@"')
    run = demo()
    assert run.wait(harness.LONG) == 3, run.told()
    assert "[0] no data" in run.out and re.search(r"rank 0 \(pid \d+\) ended with status 3", run.err), run.told()


def test_without_its_trainer(demo, elsewhere):
    (elsewhere.path.parents[1] / "libexec").rename(elsewhere.path.parents[1] / "away")
    run = demo()
    assert run.wait(harness.LONG) == 1
    assert run.out == ""
    assert "the demo's trainer is not there" in run.err and "libexec/gradsync/digits" in run.err and "-Dexamples=true" in run.err


@pytest.mark.parametrize("wrong", [["-n", "2"], ["-n", "9"], ["--pause", "soon"], ["--hosts", "3"], ["--socket", "/tmp/x"], ["digits"], ["--fast"]])
def test_wrong_usage(demo, wrong):
    run = demo(*wrong)
    assert run.wait(harness.LONG) == 2
    assert run.out == "" and "Try: gradsyncctl help demo" in run.err


def test_colours_are_for_terminals(build, temporary):
    with contextlib.closing(Controlled([build / harness.CTL, "demo"], {"TMPDIR": temporary})) as run:
        wait_until(lambda: run.take(0.1) and "\x1b[1m1  Training, undisturbed\x1b[0m" in run.text, "the first act")
        run.key("\x03")
        assert run.wait() == 130
