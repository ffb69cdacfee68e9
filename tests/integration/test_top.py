# SPDX-License-Identifier: Apache-2.0
"""gradsyncctl top: jobs and members live on a terminal, or page after page."""
import os
import re
import signal

import harness
import wire
from peer import Crew, Peer, Plan, small_plan

HEAD = ["JOB", "MEMBER", "PID", "STATE", "STEP", "RATE", "EXPOSED", "LATE", "WAITED", "FOR"]


def rows(page):
    """(summary, [cells of a row]) of a page; no cell of these tests holds two blanks."""
    first, head, *lines = page.rstrip("\n").split("\n")
    assert head.split() == HEAD, page
    return first, [re.split(r" {2,}", line.strip()) for line in lines]


def next_page(program):
    lines = []
    while line := program.line():
        lines.append(line)
    assert lines, program.told()
    return rows("\n".join(lines))


def test_pages_with_rates(served, program, peers):
    """A page compares with the one before it."""
    crew = peers(Crew(served.socket, "digits", 2, lambda ordinal: small_plan(3, ordinal=ordinal)))
    crew.go(2)
    top = program(harness.CTL, "top", "-b", "-i", "0.05", socket=served.socket)
    first, found = next_page(top)
    assert first == "1 daemon, 1 job, 2 members, 0 waited for"
    job, zero, one = found
    assert job[:5] == ["digits", "2/2", "-", "running", "2"] and job[-1] == "-"
    assert zero[:3] == ["digits", "0", str(os.getpid())] and one[:3] == ["digits", "1", str(os.getpid())]
    assert [member[4:] for member in (zero, one)] == [["2", "-", "-", "-", "-"]] * 2
    for _ in range(1000):                               # pages and steps meet sooner or later
        crew.go(5)
        _, (job, zero, one) = next_page(top)
        if zero[5].endswith("/s"):
            break
    assert zero[5].endswith("/s") and job[5].endswith("/s"), (job, zero)
    assert zero[7].endswith(" %") and one[7].endswith(" %")
    top.signal(signal.SIGINT)
    assert top.wait() == 0
    assert "\x1b" not in top.out


def test_a_number_of_pages(served, ctl, peers):
    peers(Crew(served.socket, "one", 1))
    peers(Crew(served.socket, "two", 1))
    top = ctl("top", "--batch", "--count", "3", "--interval=0.01", "two", socket=served.socket)
    pages = top.out.split("\n\n")
    assert len(pages) == 3
    for page in pages:
        assert [row[0] for row in rows(page)[1]] == ["two", "two"], page


def test_who_is_waited_for(served, ctl, peers):
    plan = [("embed.weight", [64], 1), ("layer4.bias", [64], 0)]
    crew = peers(Crew(served.socket, "waiting", 2, lambda ordinal: Plan(plan, ordinal)))
    crew.open()
    first = peers(Peer(served.socket))
    first.join_send("young", 2, 1)
    first.silent()
    first, found = rows(ctl("top", "-b", "-n", "1", socket=served.socket).out)
    assert first == "1 daemon, 2 jobs, 3 members, 2 waited for"
    assert re.fullmatch(r"\d+\.\d s, 1 member", found[0][-1]), found
    assert found[1][-1] == "-"
    assert re.fullmatch(r"\d+\.\d s, bucket 0, layer4\.bias", found[2][-1]) and found[2][3] == "late", found
    assert found[3][:4] == ["young", "1/2", "-", "forming"] and re.fullmatch(r"\d+\.\d s, 1 member", found[3][-1])
    assert found[4][1] == "-" and found[4][3] == "joining"


def on_terminal(build, arguments, path, lines):
    """The output of top on a terminal of so many lines."""
    out = harness.on_terminal([build / harness.CTL, "top", *arguments], {"GRADSYNC_SOCKET": path}, lines)
    return out.replace("\r\n", "\n")


def test_on_a_terminal(build, fake):
    """Each page begins at the top, in colours, and ends where the terminal does, and so do its lines: they are not broken."""
    evil = "x\x1b]0;owned\x07y"
    answer = [("STATUS_JOB", wire.pb.StatusJob(job=1, name=evil, state="running", world=20))]
    answer += [("STATUS_MEMBER", wire.pb.StatusMember(job=1, rank=rank, pid=5, state="stopped", member=rank)) for rank in range(20)]
    served = fake(answer=answer)
    out = on_terminal(build, ["-n", "2", "-i", "0.01"], served.path, 10)
    pages = out.split("\x1b[H\x1b[J")
    assert len(pages) == 3 and pages[0] == "\x1b[?7l"
    assert pages[1].endswith("\x1b[?7h\x1b[?7l") and pages[2].endswith("\x1b[?7h")
    for page in pages[1:]:
        assert page.count("\n") == 9 and "\x1b[32mrunning" in page and "\x1b[31mstopped" in page
        assert r"x\x1b]0;owned\x07y" in page and "\x07" not in page
    assert on_terminal(build, ["-n", "1"], served.path, 50).count("\n") == 23
    plain = on_terminal(build, ["-n", "1", "-b"], served.path, 10)
    assert plain.count("\n") == 23 and "\x1b" not in plain


def test_counters_that_begin_anew(fake, program):
    """A daemon or a job that was replaced by one with the same name is not compared with it."""
    job = {"job": 1, "name": "j", "state": "running", "world": 1}
    member = {"job": 1, "rank": 0, "pid": 5, "state": "computing", "member": 1}
    served = fake(answer=[
        ("STATUS_JOB", wire.pb.StatusJob(step=9000, committed=9000, **job)),
        ("STATUS_MEMBER", wire.pb.StatusMember(step=9000, exposed_us=1 << 40, late_us=1 << 40, **member))])
    top = program(harness.CTL, "top", "-b", "-i", "0.01", socket=served.path)
    next_page(top)
    served.answer[:] = [("STATUS_JOB", wire.pb.StatusJob(step=3, committed=3, **job)),
                        ("STATUS_MEMBER", wire.pb.StatusMember(step=3, exposed_us=5, late_us=7, **member))]
    while (found := next_page(top)[1])[0][4] != "3":
        pass
    assert found[0][5] == "-" and found[1][5:8] == ["-", "0.0 %", "0.0 %"], found
    served.answer[1] = ("STATUS_MEMBER", wire.pb.StatusMember(step=4, exposed_us=1 << 40, late_us=7, **member))
    while (found := next_page(top)[1])[1][4] != "4":
        pass
    assert found[1][6:8] == ["100.0 %", "0.0 %"], found
    top.signal(signal.SIGTERM)
    assert top.wait() == 0
