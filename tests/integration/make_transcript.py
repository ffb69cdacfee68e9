#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the transcripts of the current protocol version into transcripts/. What is there already is frozen: if it would change, this
fails and changes nothing. Then either the change is a mistake, or the minor version in proto/frame.h and wire.py has to be counted up."""
import pathlib
import struct
import sys

import transcript
import wire
from peer import Plan

FOLDER = pathlib.Path(__file__).resolve().parent / "transcripts"
STAGING = 8 << 20                       # staging_bytes, as a daemon has it unless it is told another
PARAMS = [("layer1.weight", 1000, 1), ("layer1.bias", 10, 1), ("layer2.weight", 300, 0)]


def hello(out, request=1, **more):
    out.send("HELLO", request, minor=wire.MINOR, program="trainer", library="libgradsync 0.1.0", pid=4242, **more)
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


def describe(out, request, ordinal=0, memory=0):
    """A plan of PARAMS, up to its buckets: in an arena, or in a registered memory from its begin. Returns where parameters lie. The
    diagnosis page lies in a control memory."""
    plan = Plan([(name, [count], bucket) for name, count, bucket in PARAMS], control=True)
    where = {"memory": memory} if memory else {}
    address = {"job": 1, "plan": ordinal}
    out.send("PLAN_BEGIN", request, generation=1, params=len(PARAMS), buckets=len(plan.buckets),
             arena_bytes=0 if memory else plan.bytes, control_bytes=plan.control, reduce=wire.pb.AVG,
             timeout_ms=300000, **address)
    out.send("PLAN_PARAMS", request, **address,
             param=[wire.pb.Param(name=name, dtype=wire.pb.F32, shape=[count], bucket=bucket)
                    for name, count, bucket in PARAMS])
    out.send("PLAN_BUCKETS", request, **address,
             bucket=[wire.pb.Bucket(dtype=wire.pb.F32, offset=at, bytes=length, payload=payload, **where)
                     for at, length, payload in plan.buckets])
    return plan.places


def agree(out, request, ordinal=0, memory=0):
    """A plan in two requests; returns where its parameters lie."""
    places = describe(out, request, ordinal, memory)
    out.send("PLAN_COMMIT", request, job=1, plan=ordinal)
    out.expect("PLAN_ARENA", request)
    out.send("PLAN_MAPPED", request + 1, job=1, plan=ordinal)
    out.expect("PLAN_AGREED", request + 1)
    return places


def simple_step(out, step, places, ordinal=0, generation=1):
    """A step in the memory that is meant."""
    for at, length in places:
        out.memory(at, floats(length // 4, step))
    for bucket in (0, 1):
        out.send("READY", 0, job=1, generation=generation, plan=ordinal, step=step, bucket=bucket)
    out.expect("STEP", 0)
    for (at, _), (_, count, _) in zip(places, PARAMS):
        out.result(at, floats(count, step))


def training():
    """Two steps of a plan with two buckets, one parameter absent in the second; then the plan and the job are given up. Memory 0 is its
    arena, memory 1 its control memory."""
    out = transcript.Writer()
    hello(out)
    join(out)
    places = agree(out, 3)
    address = {"job": 1, "plan": 0}
    for step in (1, 2):
        for at, length in places:
            out.memory(at, floats(length // 4, step))
        out.use(1)
        out.memory(16, struct.pack("<QQ", step, 1))
        ready = {"generation": 1, "step": step, **address}
        out.memory(wire.DIAGNOSIS_BITMAP, b"\x04")
        out.send("READY", 0, bucket=0, **ready)
        if step == 2:                   # the second parameter of bucket 1: zeros, and its bit
            out.use(0)
            out.memory(places[1][0], bytes(places[1][1]))
            out.use(1)
            ready["absent"] = b"\x02"
        out.memory(wire.DIAGNOSIS_BITMAP, b"\x07")
        out.send("READY", 0, bucket=1, **ready)
        out.expect("STEP", 0)
        out.use(0)
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


def registered():
    """Two plans in one memory of the client's own, one after the other, beside one in an arena; then all is given up."""
    out = transcript.Writer()
    hello(out)
    join(out)
    out.own(16 * wire.PAGE)
    out.send("REGISTER", 3, carries=[0], job=1, offset=0, bytes=8 * wire.PAGE)
    out.expect("REGISTERED", 3)
    out.send("REGISTER", 4, carries=[0], job=1, offset=8 * wire.PAGE, bytes=8 * wire.PAGE)
    out.expect("REGISTERED", 4)
    places = agree(out, 5, memory=1)
    out.use(0)
    simple_step(out, 1, places)
    simple_step(out, 2, places)
    elsewhere = agree(out, 7, ordinal=1)                # memories 2 and 3: memory 1 is the other's control
    simple_step(out, 1, elsewhere, ordinal=1)
    out.use(0)
    simple_step(out, 3, places)
    out.send("PLAN_DROP", 9, job=1, plan=0)
    out.expect("PLAN_DROPPED", 9)
    second = [(at + 8 * wire.PAGE, length) for at, length in agree(out, 10, ordinal=2, memory=2)]
    out.use(0)
    simple_step(out, 1, second, ordinal=2)
    out.send("UNREGISTER", 12, job=1, memory=1)
    out.expect("UNREGISTERED", 12)
    out.send("LEAVE", 13, job=1)
    out.expect("LEFT", 13)
    return out


def rejoin():
    """A step and an operation; then the daemon is restarted, and both go on, as does a plan in memory of the client's own."""
    out = transcript.Writer()
    hello(out, returns=True)
    out.send("JOIN", 2, job="transcript", min_world=1, max_world=1, rank=0, incarnation=0, timeout_ms=300000, last_call_ms=2000,
             rejoin_grace_ms=10000)
    out.expect("JOINED", 2)
    places = agree(out, 3)                              # memories 0 and 1
    simple_step(out, 1, places)
    out.send("STAGING", 5, job=1)                       # memory 2
    out.expect("STAGING_ARENA", 5)
    out.send("STAGING_MAPPED", 6, job=1)
    out.expect("STAGING_READY", 6)
    data = floats(256, 1)
    call = {"kind": wire.pb.ALLREDUCE, "dtype": wire.pb.F32, "reduce": wire.pb.AVG, "bytes": len(data), "input": 0, "output": 0}
    out.memory(0, data)
    out.send("OPERATION", 7, job=1, generation=1, sequence=0, **call)
    out.expect("OPERATION_DONE", 7)
    out.own(8 * wire.PAGE)                              # memory 3
    out.send("REGISTER", 8, carries=[3], job=1, offset=0, bytes=8 * wire.PAGE)
    out.expect("REGISTERED", 8)
    own = agree(out, 9, ordinal=1, memory=1)            # memory 4
    out.use(3)
    simple_step(out, 1, own, ordinal=1)

    out.restart()
    hello(out, 11, returns=True)
    out.send("REJOIN", 12, job="transcript", incarnation=0, generation=1, rank=0, local_rank=0, world=1, member=1, min_world=1, max_world=1,
             asked_rank=True, rejoin_grace_ms=10000, wait_ms=300000, operations=1, next_plan=2, orderly=True, history=True)
    out.expect("REJOINED", 12)
    out.send("REGISTER", 13, carries=[3], job=1, offset=0, bytes=8 * wire.PAGE)
    out.expect("REGISTERED", 13)
    for request, ordinal, memories in ((14, 0, [0, 1]), (15, 1, [4])):
        describe(out, request, ordinal, memory=ordinal)
        out.send("REJOIN_PLAN", request, carries=memories, job=1, plan=ordinal, step=1, launched=0)
    out.send("REJOIN_STAGING", 16, carries=[2], job=1, bytes=STAGING)
    out.send("REJOIN_END", 17, job=1)
    out.expect("RESUMED", 0)

    out.use(0)
    simple_step(out, 2, places, generation=2)
    out.use(3)
    simple_step(out, 2, own, ordinal=1, generation=2)
    out.use(2)
    out.result(0, data)
    out.send("OPERATION", 18, job=1, generation=2, sequence=1, **call)
    out.expect("OPERATION_DONE", 18)
    out.result(0, data)
    out.send("LEAVE", 19, job=1)
    out.expect("LEFT", 19)
    return out


def build():
    """{file name: bytes} of the current version."""
    parts = {"hello": greeting, "status": status, "training": training, "operations": operations, "registered": registered,
             "rejoin": rejoin}
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
