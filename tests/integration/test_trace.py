# SPDX-License-Identifier: Apache-2.0
"""The flight record of a job and `gradsyncctl trace`: what was recorded, for how long it stays, and for whom."""
import collections
import itertools
import json
import os

import pytest

import harness
import wire
from peer import Crew, Peer, small_plan

ALICE, BOB = 61001, 61002
PIECE = 256 << 10                       # more than any answer to one TRACE has

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")


@pytest.fixture
def trace(scratch):
    """trace(daemon, job, code=0, uid=None) -> the trace of a job, parsed and checked as a whole; None where there is none."""
    number = itertools.count()

    def run(served, job, code=0, uid=None):
        path = scratch / f"{next(number)}.json"
        if uid is not None:
            text = served.ctl("trace", job, "-o", "-", code=code, uid=uid)
            return check(json.loads(text)) if code == 0 else None
        assert served.ctl("trace", job, "-o", path, code=code) == ""
        if code != 0:
            assert not path.exists()
            return None
        return check(json.loads(path.read_text("utf-8")))

    return run


class Trace:
    """Events of a trace by what they are: processes {pid: name}, threads {(pid, tid): name}, slices, instants, counters."""

    def __init__(self, events):
        self.processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.threads = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
        self.kinds = collections.defaultdict(list)
        for event in events:
            self.kinds[event["ph"]].append(event)

    def on(self, kind, start):
        """Events of one kind on the tracks whose names begin so."""
        return [event for event in self.kinds[kind] if self.threads[event["pid"], event["tid"]].startswith(start)]

    def steps(self):
        return [event for event in self.kinds["X"] if self.threads[event["pid"], event["tid"]].endswith(": steps")]


def check(document):
    """Checks the rules of every trace: known kinds, whole times, named tracks, and no two slices of a track
    overlap."""
    assert document["displayTimeUnit"] == "ms"
    found = Trace(document["traceEvents"])
    assert set(found.kinds) <= {"M", "X", "i", "C"}
    tracks = collections.defaultdict(list)
    for event in found.kinds["X"] + found.kinds["i"] + found.kinds["C"]:
        assert isinstance(event["ts"], int) and event["ts"] > 0 and event["pid"] in found.processes, event
        if event["ph"] == "X":
            assert isinstance(event["dur"], int) and event["dur"] >= 0, event
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for track, slices in tracks.items():
        assert track in found.threads
        slices.sort()
        for (_, end), (start, _) in itertools.pairwise(slices):
            assert end <= start, f"{found.threads[track]}: {end} behind {start}"
    assert all(event["ts"] >= 0 for event in found.kinds["i"])
    return found


def test_steps_buckets_and_ranks(served, peers, trace):
    crew = peers(Crew(served.socket, "digits", 2, lambda ordinal: small_plan(3, ordinal=ordinal)))
    crew.go(5)
    found = trace(served, "digits")
    assert [name.split(",")[:2] for name in found.processes.values()] == [["digits", f" uid {os.geteuid()}"]]
    assert sorted(found.threads.values()) == ["plan 0: bucket 0, p0", "plan 0: bucket 1, p1", "plan 0: bucket 2, p2", "plan 0: steps",
                                              f"rank 0 (pid {os.getpid()})", f"rank 1 (pid {os.getpid()})"]
    steps = found.steps()
    assert [event["name"] for event in steps] == [f"step {number}" for number in range(1, 6)]
    norm = (3 * 256 * 1.5 ** 2) ** 0.5
    for event in steps:
        assert event["args"] == {"step": event["args"]["step"], "outcome": "committed", "generation": crew.peers[0].generation,
                                 "buckets": 3, "norm": pytest.approx(norm), "nonfinite": 0}
    assert [event["args"]["norm"] for event in found.kinds["C"]] == [pytest.approx(norm)] * 5
    within = {event["args"]["step"]: (event["ts"], event["ts"] + event["dur"]) for event in steps}
    for bucket in range(3):
        reductions = found.on("X", f"plan 0: bucket {bucket}")
        assert [event["args"]["step"] for event in reductions] == [1, 2, 3, 4, 5]
        for event in reductions:
            begin, end = within[event["args"]["step"]]
            assert begin <= event["ts"] and event["ts"] + event["dur"] <= end
            assert event["args"]["norm"] == pytest.approx((256 * 1.5 ** 2) ** 0.5)
    for rank in range(2):
        moments = found.on("i", f"rank {rank} ")
        assert sorted((event["args"]["step"], event["args"]["bucket"]) for event in moments) == \
            [(step, bucket) for step in range(1, 6) for bucket in range(3)]
        for event in moments:
            assert within[event["args"]["step"]][0] <= event["ts"] <= within[event["args"]["step"]][1]


def test_events_have_exactly_these_fields(served, peers, scratch):
    crew = peers(Crew(served.socket, "digits", 2, lambda ordinal: small_plan(3, ordinal=ordinal)))
    crew.go(2)
    document = json.loads(served.ctl("trace", "digits", "-o", "-"))
    assert list(document) == ["displayTimeUnit", "otherData", "traceEvents"]
    assert document["otherData"]["producer"].startswith("gradsyncctl ")
    found = collections.defaultdict(set)
    for event in document["traceEvents"]:
        found[event["ph"], event["name"].rstrip("0123456789")].add((*sorted(event), "args",
                                                                    *sorted(event["args"])))
    slices = ("args", "dur", "name", "ph", "pid", "tid", "ts")
    named = ("args", "name", "ph", "pid", "tid")
    assert found == {
        ("M", "process_name"): {(*named, "args", "name")},
        ("M", "process_sort_index"): {(*named, "args", "sort_index")},
        ("M", "thread_name"): {(*named, "args", "name")},
        ("M", "thread_sort_index"): {(*named, "args", "sort_index")},
        ("X", "step "): {(*slices, "args", "buckets", "generation", "nonfinite", "norm", "outcome", "step")},
        ("X", "reduce"): {(*slices, "args", "last", "nonfinite", "norm", "step")},
        ("i", "ready"): {("args", "name", "ph", "pid", "s", "tid", "ts", "args", "bucket", "plan", "step")},
        ("C", "gradient norm, plan "): {("args", "name", "ph", "pid", "ts", "args", "norm")},
    }
    last = {tuple(event["args"]["last"]) for event in document["traceEvents"] if event["name"] == "reduce"}
    assert last == {("rank", "us")}


def test_an_open_step_and_a_void_one(served, peers, trace):
    """The step of the moment is in the trace, without an end; a void one says that it is."""
    crew = peers(Crew(served.socket, "broken", 2, lambda ordinal: small_plan(2, ordinal=ordinal)))
    crew.go(1)
    crew.peers[0].ready(crew.plans[0][0], 0)
    crew.open(rank=1)
    found = trace(served, "broken")
    assert [(event["name"], event["args"]["outcome"]) for event in found.steps()] == [("step 1", "committed"), ("step 2, open", "open")]
    assert [event["args"]["step"] for event in found.on("X", "plan 0: bucket 0")] == [1, 2]
    assert [event["args"]["step"] for event in found.on("X", "plan 0: bucket 1")] == [1]
    crew.peers[1].close()
    assert crew.peers[0].outcome(crew.plans[0][0])[0] == "VOID"
    found = trace(served, "broken")
    assert [(event["name"], event["args"]["outcome"]) for event in found.steps()] == [("step 1", "committed"), ("step 2, void", "void")]


def test_nonfinite_inputs_are_counted_by_rank(served, peers, trace):
    crew = peers(Crew(served.socket, "nans", 2))
    for peer, plan in zip(crew.peers, crew.plans[0]):
        peer.write(plan, 0, [float("nan")] * 3 * peer.rank + [1.0] * (256 - 3 * peer.rank))
        peer.ready(plan, 0)
    assert crew.peers[0].outcome(crew.plans[0][0])[0] == "COMMITTED"
    found = trace(served, "nans")
    reduction, = found.on("X", "plan 0: bucket 0")
    assert reduction["args"]["nonfinite"] == [0, 3] and reduction["args"]["norm"] is None
    step, = found.steps()
    assert step["args"]["nonfinite"] == 3 and step["args"]["norm"] is None and not found.kinds["C"]


def test_plans_beside_each_other(served, peers, trace):
    crew = peers(Crew(served.socket, "two", 2))
    crew.plan(lambda ordinal: small_plan(2, ordinal=ordinal))
    crew.peers[0].ready(crew.plans[0][0], 0)        # the first plan's step stays open around one of the second plan
    crew.go(2, ordinal=1)
    crew.peers[1].ready(crew.plans[0][1], 0)
    assert crew.peers[0].outcome(crew.plans[0][0])[0] == "COMMITTED"
    found = trace(served, "two")
    assert len(found.on("X", "plan 0: steps")) == 1 and len(found.on("X", "plan 1: steps")) == 2
    assert len(found.on("X", "plan 1: bucket 1")) == 2


def test_a_large_record_comes_in_pieces(served, peers, trace):
    """No answer is larger than a bounded piece, frames are within their limits, and together they are the record."""
    crew = peers(Crew(served.socket, "large", 4, lambda ordinal: small_plan(300, elements=16, ordinal=ordinal)))
    crew.go(20)
    asker = peers(Peer(served.socket, program="asker"))
    steps, request, pieces = collections.defaultdict(list), {"job": "large"}, 0
    while True:
        number, size = asker.send("TRACE", **request), 0
        pieces += 1
        while (frame := asker.receive()).kind == "TRACE_STEP":
            assert frame.request == number
            assert len(frame.message.bucket) <= 128
            size += frame.message.ByteSize()
            steps[frame.message.step] += [bucket.bucket for bucket in frame.message.bucket]
        assert frame.kind == "TRACE_END" and frame.message.found and size <= PIECE
        if not frame.message.HasField("record"):
            break
        request.update(record=frame.message.record, after=frame.message.after)
    assert pieces > 1
    assert sorted(steps) == list(range(min(steps), 21)) and len(steps) > 3
    assert all(buckets == list(range(300)) for buckets in steps.values())
    found = trace(served, "large")
    assert [event["args"]["step"] for event in found.steps()] == sorted(steps)
    assert len(found.kinds["i"]) == len(steps) * 300 * 4


def test_a_piece_may_begin_anywhere(served, peers):
    """A client may make up where a piece begins: it is answered, and no other client loses anything."""
    crew = peers(Crew(served.socket, "j", 1))
    crew.go(3)
    asker = peers(Peer(served.socket, program="asker"))
    record = asker.expect("TRACE_END", asker.send("TRACE", job="j", until_us=0))
    assert record.found and not record.HasField("record")
    top = (1 << 64) - 1
    for fields in ({"after": top}, {"record": 1 << 31}, {"record": (1 << 32) - 1, "after": top}):
        request = asker.send("TRACE", job="j", **fields)
        kinds = []
        while (frame := asker.receive()).request == request:
            kinds.append(frame.kind)
            if frame.kind == "TRACE_END":
                break
        assert kinds[-1] == "TRACE_END" and frame.message.found
    assert asker.refusal(asker.send("TRACE")).code == "INVALID"
    assert asker.refusal(asker.send("TRACE", job="")).code == "INVALID"
    crew.go(1)


def test_a_record_outlives_its_job(served, peers, trace):
    for name in ["first"] + [f"job{number}" for number in range(7)]:
        crew = Crew(served.socket, name, 1)
        crew.go(2)
        crew.leave()
        crew.close()
    watcher = peers(Peer(served.socket, program="watcher"))
    harness.wait_until(lambda: "STATUS_JOB" not in watcher.status(), "the end of the jobs")
    found = trace(served, "first")
    assert ", ended" in found.processes[1] and len(found.steps()) == 2
    assert watcher.status()["STATUS_DAEMON"][0].arena_bytes == 0
    fresh = peers(Crew(served.socket, "first", 1))      # beside the old one there may be a new one
    fresh.go(3)
    found = trace(served, "first")
    assert len(found.processes) == 2 and len(found.steps()) == 5
    fresh.leave()
    fresh.close()
    harness.wait_until(lambda: "STATUS_JOB" not in watcher.status(), "the end of the job")
    assert len(trace(served, "first").steps()) == 3     # the oldest record has been pushed out


def test_jobs_of_one_name_one_after_the_other(served, peers, trace):
    """Nothing of a later one is missing, however much there was of those before."""
    for steps in (5, 3, 7):
        crew = Crew(served.socket, "again", 1)
        crew.go(steps)
        crew.leave()
        crew.close()
    watcher = peers(Peer(served.socket, program="watcher"))
    harness.wait_until(lambda: "STATUS_JOB" not in watcher.status(), "the end of the jobs")
    found = trace(served, "again")
    assert len(found.processes) == 3
    assert [sum(event["pid"] == job for event in found.steps()) for job in sorted(found.processes)] == [5, 3, 7]


def test_a_job_without_steps(served, peers, trace):
    peers(Crew(served.socket, "young", 1, plan=None))
    assert not any(trace(served, "young").kinds.values())
    trace(served, "nobody", code=4)


@needs_root
def test_users_trace_their_own_jobs(daemon, peers, trace):
    served = daemon(settings={"socket_mode": "0666"})
    for uid, steps in ((ALICE, 2), (BOB, 3)):
        peers(Crew(served.socket, "same", 1, uid=uid)).go(steps)
    assert len(trace(served, "same", uid=ALICE).steps()) == 2
    assert len(trace(served, f"{BOB}/same").steps()) == 3
    assert len(trace(served, "same").processes) == 2
    trace(served, f"{BOB}/same", uid=ALICE, code=4)
    bobs = Crew(served.socket, "over", 1, uid=BOB)
    bobs.go(1)
    bobs.close()
    harness.wait_until(lambda: served.job("over") is None, "the end of the job")
    assert len(trace(served, "over").steps()) == 1
    trace(served, f"{BOB}/over", uid=ALICE, code=4)


def test_a_file_that_cannot_be_made(served, peers, ctl, scratch):
    peers(Crew(served.socket, "j", 1))
    made = ctl("trace", "j", "-o", scratch / "no" / "such", socket=served.socket, code=1)
    assert "cannot write" in made.err


def test_frames_that_make_no_sense(fake, ctl):
    """A daemon that answers something else is told apart from a mistake of ours."""
    for kind, message in (("TRACE_STEP", wire.pb.TraceStep(record=1, step=1)), ("STATUS_END", wire.pb.StatusEnd(found=True))):
        made = ctl("trace", "j", "-o", "-", socket=fake(kind, trace=[(kind, message)]).path, code=1)
        assert "out of order" in made.err and made.out == ""


def test_a_step_of_which_the_record_holds_a_part(fake, ctl):
    """Its norm is not known, and is not taken for that of what is there. And a file that cannot be written is an error."""
    bucket = wire.pb.TraceBucket(bucket=0, ready=[1], start=2, end=3, sum_squares=16.0)
    facts = {"record": 1, "name": "j", "now_us": 100, "pid": [5], "plan": 0, "generation": 1, "outcome": wire.pb.COMMITTED, "bucket": [bucket]}
    served = fake(trace=[("TRACE_STEP", wire.pb.TraceStep(step=1, buckets=2, opened_us=10, ended_us=20, **facts)),
                         ("TRACE_STEP", wire.pb.TraceStep(step=2, buckets=1, opened_us=30, ended_us=40, **facts)),
                         ("TRACE_END", wire.pb.TraceEnd(found=True))])
    events = json.loads(ctl("trace", "j", "-o", "-", socket=served.path).out)["traceEvents"]
    assert [event["args"]["norm"] for event in events if event["ph"] == "X" and "buckets" in event["args"]] == [None, 4.0]
    assert [event["ts"] for event in events if event["ph"] == "C"] == [40]
    made = ctl("trace", "j", "-o", "/dev/full", socket=served.path, code=1)
    assert "cannot write /dev/full: No space left" in made.err, made.err


def test_a_trace_of_what_cannot_be(served, peers):
    peer = peers(Peer(served.socket))
    for fields, words in (({}, "TRACE names no job"), ({"job": "j", "node": 4096}, "numbers below 4096")):
        refused = peer.refusal(peer.send("TRACE", **fields))
        assert refused.code == "INVALID" and words in refused.text
