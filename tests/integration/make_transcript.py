#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the transcripts of the current protocol version into transcripts/. What is there already is frozen: if it would change, this
fails and changes nothing. Then either the change is a mistake, or the minor version in proto/frame.h and wire.py has to be counted up."""
import pathlib
import struct
import sys

import transcript
import wire

FOLDER = pathlib.Path(__file__).resolve().parent / "transcripts"
PARAMS = [("layer1.weight", 1000, 1), ("layer1.bias", 10, 1), ("layer2.weight", 300, 0)]


def hello(out, request=1):
    out.send("HELLO", request, minor=wire.MINOR, program="trainer", library="libgradsync 0.1.0", pid=4242)
    out.expect("WELCOME", request)


def join(out, request=2):
    out.send("JOIN", request, job="transcript", min_world=1, max_world=1, rank=0, incarnation=0, timeout_ms=300000, last_call_ms=2000)
    out.expect("JOINED", request)


def floats(count, factor):
    return struct.pack(f"<{count}f", *(factor * (index % 17) for index in range(count)))


def greeting():
    out = transcript.Writer()
    hello(out)
    return out


def status():
    out = transcript.Writer()
    out.send("HELLO", 1, minor=wire.MINOR, program="gradsyncctl", library="gradsyncctl 0.1.0", admin=True, pid=4242)
    out.expect("WELCOME", 1)
    out.send("STATUS", 2)
    out.expect("STATUS_DAEMON", 2)
    out.expect("STATUS_END", 2)
    out.send("STATUS", 3, job="nobody")
    out.expect("STATUS_END", 3)
    return out


def training():
    """Two steps of a plan with two buckets, one parameter absent in the second; then the plan and the job are given up."""
    out = transcript.Writer()
    hello(out)
    join(out)
    diagnosis, size, places, buckets = wire.layout(PARAMS)
    address = {"job": 1, "plan": 0}
    out.send("PLAN_BEGIN", 3, generation=1, params=len(PARAMS), buckets=len(buckets), arena_bytes=size, diagnosis_bytes=diagnosis,
             reduce=wire.pb.AVG, timeout_ms=300000, **address)
    out.send("PLAN_PARAMS", 3, param=[wire.pb.Param(name=name, dtype=wire.pb.F32, shape=[count], bucket=bucket)
                                      for name, count, bucket in PARAMS], **address)
    out.send("PLAN_BUCKETS", 3, bucket=[wire.pb.Bucket(dtype=wire.pb.F32, offset=at, bytes=length, payload=payload)
                                        for at, length, payload in buckets], **address)
    out.send("PLAN_COMMIT", 3, **address)
    out.expect("PLAN_ARENA", 3)
    out.send("PLAN_MAPPED", 4, **address)
    out.expect("PLAN_AGREED", 4)
    for step in (1, 2):
        out.memory(16, struct.pack("<Q", step))
        for at, length in places:
            out.memory(at, floats(length // 4, step))
        ready = {"generation": 1, "step": step, **address}
        out.memory(wire.DIAGNOSIS_BITMAP, b"\x04")
        out.send("READY", 0, bucket=0, **ready)
        if step == 2:                   # the second parameter of bucket 1: zeros, and its bit
            out.memory(places[1][0], bytes(places[1][1]))
            ready["absent"] = b"\x02"
        out.memory(wire.DIAGNOSIS_BITMAP, b"\x07")
        out.send("READY", 0, bucket=1, **ready)
        out.expect("STEP", 0)
        out.result(places[0][0], floats(PARAMS[0][1], step))
        out.result(places[1][0], floats(PARAMS[1][1], step if step == 1 else 0))
        out.result(places[2][0], floats(PARAMS[2][1], step))
    out.send("PLAN_DROP", 5, **address)
    out.expect("PLAN_DROPPED", 5)
    out.send("LEAVE", 6, job=1)
    out.expect("LEFT", 6)
    return out


def operations():
    """Each kind of operation once."""
    out = transcript.Writer()
    hello(out)
    join(out)
    out.send("OPERATION", 3, job=1, generation=1, sequence=0, kind=wire.pb.BARRIER)
    out.expect("OPERATION_DONE", 3)
    out.send("STAGING", 4, job=1)
    out.expect("STAGING_ARENA", 4)
    out.send("STAGING_MAPPED", 5, job=1)
    out.expect("STAGING_READY", 5)
    data = floats(256, 1)
    calls = [{"kind": wire.pb.BROADCAST, "root": 0}, {"kind": wire.pb.ALLGATHER},
             {"kind": wire.pb.REDUCE_SCATTER, "dtype": wire.pb.F32, "reduce": wire.pb.SUM},
             {"kind": wire.pb.ALLREDUCE, "dtype": wire.pb.F32, "reduce": wire.pb.AVG}]
    for sequence, call in enumerate(calls, 1):
        output = 0 if call["kind"] in (wire.pb.BROADCAST, wire.pb.ALLREDUCE) else 4096
        out.memory(0, data)
        out.send("OPERATION", 5 + sequence, job=1, generation=1, sequence=sequence, bytes=len(data), input=0, output=output, **call)
        out.expect("OPERATION_DONE", 5 + sequence)
        out.result(output, data)
    out.send("LEAVE", 10, job=1)
    out.expect("LEFT", 10)
    return out


def build():
    """{file name: bytes} of the current version."""
    parts = {"hello": greeting, "status": status, "training": training, "operations": operations}
    return {f"v{wire.MAJOR}.{wire.MINOR}-{name}.bin": bytes(make().data) for name, make in parts.items()}


def main():
    made = build()
    changed = [name for name, data in made.items() if (FOLDER / name).exists() and (FOLDER / name).read_bytes() != data]
    if changed:
        sys.exit(f"these are frozen and would change: {', '.join(changed)}")
    for name, data in made.items():
        (FOLDER / name).write_bytes(data)


if __name__ == "__main__":
    main()
