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
from test_cli_status import SENT, Outspoken

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


#: The key in the document, and what of a unit in it is one here.
KEYS = {"uptime": ("uptime_ms", 1000), "connected": ("connected_ms", 1000), "since": ("since_ms", 1000),
        "heard": ("heard_ms", 1000), "round_trip": ("round_trip_us", 10 ** 6), "wall": ("wall_us", 10 ** 6),
        "rate": ("step_rate", 1), "ended": ("ended_at", 1)}
DIGITS = {1000: 3, 10 ** 6: 6}


def cell(column, row):
    key, unit = KEYS.get(column, (column, 1))
    value = row[key]
    if value is None or isinstance(value, str):
        return value or ""
    digits = {"rate": 3, "exposed": 4}.get(column, DIGITS.get(unit))
    return f"{value / unit:.{digits}f}" if digits else f"{int(value) if isinstance(value, bool) else value:g}"


def expected(columns, row):
    return {column: cell(column, row) for column in columns}


@pytest.fixture
def served(scratch):
    made = Outspoken(scratch / "socket", answer=SENT)
    yield made
    made.close()


def rows_of(document):
    """{kind: [the facts of a line of status]} of what the document says; a job is named by its user, too."""
    daemon, (job,) = document["daemon"], document["jobs"]
    common = {"device": "cpu:x", "job": f"{job['uid']}/{job['name']}"}
    return {"daemon": [{"kind": "daemon", **daemon}],
            "job": [{**job, **common, "kind": "job", "members": len(job["members"])}],
            "member": [{**member, **common, "kind": "member", "uid": member["uid"] or 0}
                       for member in job["members"]],
            "wait": [{**wait, **common, "kind": "wait"} for wait in job["waiting_for"]]}


def test_lines_say_what_the_document_says(ctl, served):
    """Of which test_cli_status.py shows that it has each value that the daemon has sent."""
    document = json.loads(ctl("--json", socket=served.path).out)
    for kind in ("jobs", "clients", "links"):
        found = read(ctl("list", kind, "--plain", socket=served.path).out, "list", kind)
        wanted = [{**row, "user": str(row.get("uid"))} for row in document[kind]]
        for row in wanted if kind == "jobs" else []:
            row["members"] = len(row["members"])
        assert found == [expected(COLUMNS["list", kind], row) for row in wanted], kind
    out = ctl("--plain", socket=served.path).out
    assert out == ctl("status", "--plain", socket=served.path).out
    for kind, wanted in rows_of(document).items():
        assert read(out, "status", kind) == [expected(COLUMNS["status", kind], row) for row in wanted], kind
    kinds = [line.split("\t")[0] for line in out.splitlines()]
    assert kinds == ["daemon", "job", *2 * ["member"], *4 * ["wait"]]


def test_top(ctl, served):
    """A member has its wait beside it; of no interval that has been looked at there are no rates."""
    served.answer.append(("STATUS_WAIT", wire.pb.StatusWait(
        job=1, rank=4001, pid=4003, bucket=7001, since_ms=7002, what="step", parameter="u")))
    facts = rows_of(json.loads(ctl("--json", socket=served.path).out))
    out = ctl("top", "--batch", "--plain", "-n", "1", socket=served.path).out
    waits = {"waits": 5, "since_ms": 6005}          # of the first one
    assert read(out, "top", "job") == [expected(COLUMNS["top", "job"], {**facts["job"][0], **waits})]
    first, second = read(out, "top", "member")
    told = {**facts["wait"][-1], **facts["member"][0], "step_rate": None, "late": None}
    assert first == expected(COLUMNS["top", "member"], told)
    assert (second["rank"], second["since"], second["what"]) == ("", "", "")
    pages = ctl("top", "--plain", "-n", "3", "-i", "0.01", socket=served.path).out.split("\n\n")
    assert len(pages) == 3 and all(len(read(page, "top", "member")) == 2 for page in pages)
    assert {row["rate"] for page in pages[1:] for row in read(page, "top", "member")} == {"0.000"}


def test_no_name_ends_a_column(ctl, scratch):
    evil, escaped = "a\tb\nc\\d\x1b[0m\u202ee", r"a\tb\nc\\d\x1b[0m\xe2\x80\xaee"
    served = FakeDaemon(scratch / "socket", answer=[
        ("STATUS_CLIENT", wire.pb.StatusClient(pid=41, uid=7, program=evil)),
        ("STATUS_JOB", wire.pb.StatusJob(job=1, name=evil, uid=7, state="running", world=1)),
        ("STATUS_WAIT", wire.pb.StatusWait(job=1, rank=1, what="step", parameter="w\t1"))])
    assert read(ctl("list", "jobs", "--plain", socket=served.path).out, "list", "jobs")[0]["name"] == escaped
    client, = read(ctl("list", "--plain", "clients", socket=served.path).out, "list", "clients")
    assert client["program"] == escaped
    wait, = read(ctl("--plain", socket=served.path).out, "status", "wait")
    assert (wait["job"], wait["parameter"]) == (f"7/{escaped}", r"w\t1")
    served.close()


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


def test_watch(program, served):
    watching = program(harness.CTL, "status", "--plain", "-w", "0.05", socket=served.path)
    for _ in range(2):
        page = []
        while line := watching.line():
            page.append(line)
        assert len(page) == 8 and len(read("\n".join(page), "status", "member")) == 2
    watching.signal(2)
    assert watching.wait() == 0
