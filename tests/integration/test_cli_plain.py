# SPDX-License-Identifier: Apache-2.0
"""--plain: lines of columns for programs. What the man page says of them is what is written."""
import json
import pathlib
import re

import pytest

import harness
import wire
from fake import FakeDaemon
from peer import Crew, small_plan

PAGE = pathlib.Path(__file__).resolve().parents[2] / "client/cli/man/gradsyncctl.1.scd"


def documented():
    """{("list", "jobs"): [names of the columns]} of the man page."""
    text = PAGE.read_text()
    text = text[text.index("# PLAIN TEXT"):text.index("# EXIT STATUS")].replace("\\_", "_")
    found = {}
    kinds = r"^\*(\w+)(?: |\*: _)(\w[\w -]*)[*_]\n((?:\t.*\n)+)"
    for command, kind, columns in re.findall(kinds, text, re.M):
        columns = re.sub(r"\([^)]*\)", "", " ".join(columns.split()))
        found[command, kind] = [name.strip() for name in columns.split(",")]
    assert len(found) == 10 and all(len(columns) >= 8 for columns in found.values()), found
    return found


COLUMNS = documented()


def read(text, command, kind=None):
    """[{column: value}] of the lines of a kind; each line must have the columns of its kind."""
    rows = []
    for line in text.splitlines():
        cells = line.split("\t")
        names = COLUMNS[command, kind if command == "list" else cells[0]]
        assert len(cells) == len(names), (line, names)
        row = dict(zip(names, cells))
        if command == "list" or cells[0] == kind:
            rows.append(row)
    return rows


EVIL = "a\tb\nc\\d\x1b[0m\u202ee"
ESCAPED = r"a\tb\nc\\d\x1b[0m\xe2\x80\xaee"
ANSWER = [
    ("STATUS_CLIENT", wire.pb.StatusClient(
        pid=41, uid=61007, program=EVIL, library="l 1", connected_ms=61001, jobs=2)),
    ("STATUS_LINK", wire.pb.StatusLink(
        role="node", host="beta", address="10.0.0.2:7", node="n1", state="connected", since_ms=1500,
        heard_ms=20,
        round_trip_us=321, wall_us=-2500, key="main", sent=11, received=12)),
    ("STATUS_LINK", wire.pb.StatusLink(
        role="coordinator", address="x:1", state="connecting", text="no route")),
    ("STATUS_JOB", wire.pb.StatusJob(
        job=1, name=EVIL, uid=61007, state="stalled", step=12, world=3, generation=4, step_rate=2.5,
        exposed=0.125,
        buckets=7, bytes=1048576, bytes_reduced=1 << 40, void_steps=2, nonfinite=3, norm=0.5, text="why so")),
    ("STATUS_MEMBER", wire.pb.StatusMember(
        job=1, rank=0, host="alpha", pid=51, uid=61007, state="waiting", step=12, exposed=0.25,
        process_state="sleeping", program="p", member=1)),
    ("STATUS_MEMBER", wire.pb.StatusMember(job=1, rank=1, pid=52, uid=61007, state="late", step=11,
                                           member=2)),
    ("STATUS_MEMBER", wire.pb.StatusMember(
        job=1, pid=53, uid=61007, state="joining", unranked=True, member=3)),
    ("STATUS_WAIT", wire.pb.StatusWait(
        job=1, rank=1, host="beta", pid=52, process_state="stopped", plan=1, bucket=5, parameter="w\t1",
        since_ms=3210, what="step", step=13)),
    ("STATUS_WAIT", wire.pb.StatusWait(
        job=1, host="gamma", since_ms=5, what="node", text="the node on host gamma")),
]


@pytest.fixture
def served(scratch):
    made = FakeDaemon(scratch / "socket", answer=ANSWER, device="cpu:x")
    yield made
    made.close()


def test_lists(ctl, served):
    assert read(ctl("list", "jobs", "--plain", socket=served.path).out, "list", "jobs") == [dict(
        name=ESCAPED, uid="61007", user="61007", device="cpu:x", state="stalled", members="3", world_size="3",
        generation="4", step="12", rate="2.500", bytes="1048576")]
    assert read(ctl("list", "--plain", "clients", socket=served.path).out, "list", "clients") == [dict(
        pid="41", uid="61007", user="61007", device="cpu:x", program=ESCAPED, library="l 1",
        connected="61.001",
        jobs="2")]
    assert read(ctl("--plain", "list", "links", socket=served.path).out, "list", "links") == [
        dict(device="cpu:x", role="node", host="beta", address="10.0.0.2:7", node="n1", state="connected",
             since="1.500", heard="0.020", round_trip="0.000321", wall="-0.002500", key="main", sent="11",
             received="12", text=""),
        dict(device="cpu:x", role="coordinator", host="", address="x:1", node="", state="connecting",
             since="0.000",
             heard="", round_trip="", wall="", key="", sent="0", received="0", text="no route")]


def test_jobs_that_have_ended(ctl, daemon, peers):
    served = daemon()
    crew = peers(Crew(served.socket, "was here", 1, lambda ordinal: small_plan(2, ordinal=ordinal)))
    crew.go(3)
    crew.close()
    harness.wait_until(lambda: not served.job("was here"), "the job is gone")
    out = ctl("list", "jobs", "--ended", "--plain", socket=served.socket).out
    row, = read(out, "list", "jobs --ended")
    wanted, = json.loads(ctl("list", "jobs", "--ended", "--json", socket=served.socket).out)["ended_jobs"]
    names = {"ended": "ended_at", "user": None, "traced": None}
    for column, value in row.items():
        name = names.get(column, column)
        if name:
            assert value == ("" if wanted[name] is None else str(wanted[name])), column
    assert row["name"] == "was here" and row["step"] == "3" and row["traced"] == "1"


def test_status(ctl, served):
    out = ctl("--plain", socket=served.path).out
    assert out == ctl("status", "--plain", socket=served.path).out
    assert [line.split("\t")[0] for line in out.splitlines()] == ["daemon", "job", *3 * ["member"],
                                                                  *2 * ["wait"]]
    assert read(out, "status", "daemon") == [dict(
        kind="daemon", device="cpu:x", version="0.1.0", pid="1", uid="0", socket=served.path, uptime="0.000",
        clients="0", jobs="0", draining="0")]
    common = dict(device="cpu:x", job=f"61007/{ESCAPED}")
    assert read(out, "status", "job") == [dict(
        common, kind="job", state="stalled", step="12", members="3", world_size="3", generation="4",
        rate="2.500",
        exposed="0.1250", buckets="7", bytes="1048576", bytes_reduced=str(1 << 40), void_steps="2",
        nonfinite="3",
        norm="0.5", text="why so")]
    assert read(out, "status", "member") == [
        dict(common, kind="member", rank="0", host="alpha", pid="51", uid="61007", state="waiting", step="12",
             exposed="0.2500", process_state="sleeping", program="p"),
        dict(common, kind="member", rank="1", host="", pid="52", uid="61007", state="late", step="11",
             exposed="",
             process_state="", program=""),
        dict(common, kind="member", rank="", host="", pid="53", uid="61007", state="joining", step="0",
             exposed="",
             process_state="", program="")]
    assert read(out, "status", "wait") == [
        dict(common, kind="wait", rank="1", host="beta", pid="52", process_state="stopped", what="step",
             bucket="5",
             parameter=r"w\t1", since="3.210", text=""),
        dict(common, kind="wait", rank="", host="gamma", pid="", process_state="", what="node", bucket="",
             parameter="", since="0.005", text="the node on host gamma")]


def test_top(ctl, served):
    out = ctl("top", "-b", "--plain", "-n", "1", socket=served.path).out
    assert [line.split("\t")[0] for line in out.splitlines()] == ["job", "member", "member", "member"]
    common = dict(device="cpu:x", job=f"61007/{ESCAPED}")
    assert read(out, "top", "job") == [dict(
        common, kind="job", state="stalled", step="12", rate="2.500", exposed="0.1250", members="3",
        world_size="3",
        waits="2", since="3.210")]
    rows = read(out, "top", "member")
    assert rows[1] == dict(common, kind="member", state="late", step="11", rate="", exposed="", late="",
                           rank="1", pid="52", since="3.210", what="step", bucket="5", parameter=r"w\t1")
    assert [row["rate"] for row in rows] == ["", "", ""]           # no interval has been looked at yet
    assert [row["rank"] for row in rows] == ["0", "1", ""] and rows[0]["since"] == rows[0]["what"] == ""
    pages = ctl("top", "--plain", "-n", "3", "-i", "0.01", socket=served.path).out.split("\n\n")
    assert len(pages) == 3 and all(len(read(page, "top", "member")) == 3 for page in pages)
    assert {row["rate"] for page in pages[1:] for row in read(page, "top", "member")} == {"0.000"}


def test_watch(program, served):
    watching = program(harness.CTL, "status", "--plain", "-w", "0.05", socket=served.path)
    for _ in range(2):
        page = []
        while line := watching.line():
            page.append(line)
        assert len(page) == 7 and len(read("\n".join(page), "status", "member")) == 3
    watching.signal(2)
    assert watching.wait() == 0


def test_one_form_at_a_time(ctl):
    for words in (["status"], ["list", "jobs"]):
        assert "either --json or --plain" in ctl(*words, "--json", "--plain", code=2).err
    for command in ("doctor", "metrics", "demo"):
        assert "option --plain is unknown" in ctl(command, "--plain", code=2).err
