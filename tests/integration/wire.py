# SPDX-License-Identifier: Apache-2.0
"""The protocol for tests, in Python and apart from the C code: frames as bytes, messages from the same schema.

The functions build and take apart frames, right or wrong ones. Wire is one connection on which a test says what it likes;
its join(), plan() and ready() do what a well-behaved client does. Message types are given by name ("PLAN_BEGIN") or number.
"""
import collections
import importlib
import itertools
import mmap
import os
import pathlib
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time

from octets import HEADER, send_packet, varint

MAGIC = 0x5347
MAJOR = 1
MINOR = 3
FRAME_MAX = 65536
PAYLOAD_MAX = FRAME_MAX - HEADER.size
FDS_MAX = 2
CHUNK = 256
PAGE = 4096
ALIGN = 64
DIAGNOSIS_BITMAP = 64
DEADLINE = float(os.environ.get("GRADSYNC_TEST_DEADLINE", "60"))

Header = collections.namedtuple("Header", "magic major flags type fds length request")


def generate(folder, schema):
    """The Python classes of a schema, generated into a directory that is gone afterwards."""
    source = pathlib.Path(__file__).resolve().parents[2] / folder
    with tempfile.TemporaryDirectory(prefix="gs-wire-") as directory:
        subprocess.run(["protoc", f"--proto_path={source}", f"--python_out={directory}", f"{schema}.proto"], check=True)
        sys.path.insert(0, directory)
        writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            return importlib.import_module(f"{schema}_pb2")
        finally:
            sys.dont_write_bytecode = writes
            sys.path.remove(directory)


pb = generate("proto", "gradsync")


def number(kind):
    """Number of a message type."""
    return kind if isinstance(kind, int) else pb.MessageType.Value(kind)


def name(kind):
    """Name of a message type; its number as text if the schema does not know it."""
    if isinstance(kind, str):
        return kind
    return pb.MessageType.Name(kind) if kind in pb.MessageType.values() else str(kind)


def message_class(kind):
    """The class of a message type's payload, or None."""
    return getattr(pb, "".join(part.capitalize() for part in name(kind).split("_")), None)


def message(kind, /, **fields):
    return message_class(kind)(**fields)


def header(kind, length, request=0, fds=0, magic=MAGIC, major=MAJOR, flags=0):
    return HEADER.pack(magic, major, flags, number(kind), fds, length, request)


def frame(kind, payload=b"", request=0, fds=0, length=None, **wrong):
    """Bytes of a frame around a message or bytes; `length` and `wrong` (magic, major, flags) override what would be right."""
    if not isinstance(payload, (bytes, bytearray)):
        payload = payload.SerializeToString()
    return header(kind, len(payload) if length is None else length, request, fds, **wrong) + bytes(payload)


def split(data):
    """(Header, payload) of a packet; every claim of the header is checked."""
    assert len(data) >= HEADER.size, f"a packet of {len(data)} bytes"
    head = Header(*HEADER.unpack_from(data))
    assert (head.magic, head.major, head.flags) == (MAGIC, MAJOR, 0), head
    assert head.length == len(data) - HEADER.size and len(data) <= FRAME_MAX, (head, len(data))
    assert head.fds <= FDS_MAX, head
    return head, data[HEADER.size:]


def parse(data):
    """(Header, message) of a packet from the daemon."""
    head, payload = split(data)
    made = message_class(head.type)
    assert made is not None and head.type in pb.MessageType.values(), f"unknown message type {head.type}"
    parsed = made()
    parsed.ParseFromString(payload)
    return head, parsed


def unknown_fields():
    """Bytes of fields that no message has: one of each kind of encoding, as a newer peer might add them to any payload."""
    def tag(field, kind):
        return varint(field << 3 | kind)
    return b"".join([tag(1000, 0) + varint(1 << 40), tag(1001, 2) + varint(5) + b"later", tag(1002, 5) + b"\x01\x02\x03\x04",
                     tag(1003, 1) + b"\x01\x02\x03\x04\x05\x06\x07\x08", tag(1001, 2) + varint(0)])


def malformed(kind="HELLO", request=1):
    """{what is wrong: packet}: frames that a receiver must refuse whatever the state of the connection."""
    good = message(kind).SerializeToString()
    return {
        "one byte": b"G",
        "half a header": frame(kind, good, request)[:HEADER.size - 1],
        "magic": frame(kind, good, request, magic=0x4753),
        "major": frame(kind, good, request, major=MAJOR + 1),
        "flags": frame(kind, good, request, flags=1),
        "truncated": frame(kind, good, request, length=len(good) + 1),
        "trailing": frame(kind, good, request) + b"\x00",
        "length beyond any frame": frame(kind, good, request, length=0xffffffff),
        "fds announced and not sent": frame(kind, good, request, fds=1),
        "too many fds announced": frame(kind, good, request, fds=0xffff),
        "type": frame(60000, good, request),
        "type zero": frame(0, good, request),
        "payload is noise": frame(kind, b"\xff" * 40, request),
        "payload ends in a tag": frame(kind, b"\x0a\x05ab", request),
        "oversized": bytes(frame(kind, b"\x00" * (PAYLOAD_MAX + 1), request)),
    }


class Refused(Exception):
    """The daemon answered with REFUSED."""

    def __init__(self, refusal):
        self.code = pb.Code.Name(refusal.code)
        self.message = refusal
        super().__init__(f"{self.code}: {refusal.text}")


Arena = collections.namedtuple("Arena", "map params buckets plan request")


def layout(params):
    """Places `params`, a list of (name, elements, bucket) of f32, into an arena: (diagnosis bytes, arena bytes, [(offset, bytes) of a
    parameter], [(offset, bytes, payload) of a bucket])."""
    diagnosis = -(-(DIAGNOSIS_BITMAP + -(-len(params) // 8)) // PAGE) * PAGE
    at, places, buckets = diagnosis, [None] * len(params), []
    for bucket in range(max(entry[2] for entry in params) + 1):
        start, payload = at, 0
        for index, (_, elements, mine) in enumerate(params):
            if mine == bucket:
                at = -(-at // ALIGN) * ALIGN
                places[index] = (at, 4 * elements)
                at += 4 * elements
                payload += 4 * elements
        buckets.append((start, at - start, payload))
        at = -(-at // PAGE) * PAGE
    return diagnosis, at, places, buckets


class Wire:
    """One connection. recv() hands over everything; the helpers for a client's life keep notices that they met in `notices`."""

    def __init__(self, path=None):
        self.sock = None
        self.requests = itertools.count(1)
        self.notices = []
        self.job = self.generation = self.rank = None
        if path is not None:
            self.connect(path)

    def connect(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self.sock.settimeout(DEADLINE)
        self.sock.connect(str(path))
        return self

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send_raw(self, data, fds=()):
        send_packet(self.sock, data, fds)

    def send(self, kind, /, payload=None, request=None, fds=(), suffix=b"", **fields):
        """Sends a message (built from `fields` if none is given, `suffix` behind it); returns its request."""
        if request is None:
            request = next(self.requests)
        body = (payload if payload is not None else message(kind, **fields))
        body = bytes(body) if isinstance(body, (bytes, bytearray)) else body.SerializeToString()
        self.send_raw(frame(kind, body + suffix, request, len(fds)), fds)
        return request

    def recv(self, timeout=DEADLINE):
        """(type, request, message, fds) of the next frame, or None when the daemon has closed."""
        if not select.select([self.sock], [], [], timeout)[0]:
            raise AssertionError(f"no frame within {timeout} s")
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, FRAME_MAX + 1, 16)
        except ConnectionResetError:
            return None
        if not data:
            return None
        head, parsed = parse(data)
        assert head.fds == len(fds), (head, fds)
        return name(head.type), head.request, parsed, fds

    def reply(self, request, *kinds, timeout=DEADLINE):
        """(message, fds) of the reply to `request`, which must be one of `kinds`; REFUSED raises Refused."""
        end = time.monotonic() + timeout
        while True:
            got = self.recv(max(end - time.monotonic(), 0))
            assert got is not None, "the daemon has closed the connection"
            kind, answers, parsed, fds = got
            if kind == "REFUSED" and answers in (0, request):
                raise Refused(parsed)
            if answers == request:
                assert kind in kinds, f"{kind} instead of {kinds}"
                return parsed, fds
            self.notices.append(got)

    def ask(self, kind, reply, /, fds=(), suffix=b"", **fields):
        return self.reply(self.send(kind, fds=fds, suffix=suffix, **fields), reply)[0]

    def hello(self, minor=MINOR, suffix=b"", **fields):
        return self.ask("HELLO", "WELCOME", minor=minor, suffix=suffix, **{"program": "wire", "library": "wire", **fields})

    def join(self, job, world=1, rank=None, suffix=b"", **fields):
        """Joins and waits until the job has formed."""
        if rank is not None:
            fields["rank"] = rank
        joined = self.ask("JOIN", "JOINED", suffix=suffix, job=job, min_world=world, max_world=world, **fields)
        self.job, self.generation, self.rank = joined.job, joined.generation, joined.rank
        return joined

    def plan(self, params=(("p0", 256, 0),), plan=0, reduce="AVG", suffix=b"", agree=True):
        """The whole exchange for a plan of f32 parameters (name, elements, bucket); returns an Arena that is mapped and touched.
        Without `agree` it returns when PLAN_MAPPED has been sent; agreed() then waits for the others."""
        request = next(self.requests)
        diagnosis, size, places, buckets = layout(params)
        address = {"job": self.job, "plan": plan}
        self.send("PLAN_BEGIN", request=request, suffix=suffix, generation=self.generation, params=len(params), buckets=len(buckets),
                  arena_bytes=size, diagnosis_bytes=diagnosis, reduce=pb.Reduce.Value(reduce), **address)
        for start in range(0, len(params), CHUNK):
            self.send("PLAN_PARAMS", request=request, suffix=suffix, **address,
                      param=[pb.Param(name=entry[0], dtype=pb.F32, shape=[entry[1]], bucket=entry[2])
                             for entry in params[start:start + CHUNK]])
        for start in range(0, len(buckets), CHUNK):
            self.send("PLAN_BUCKETS", request=request, suffix=suffix, **address,
                      bucket=[pb.Bucket(dtype=pb.F32, offset=at, bytes=length, payload=payload)
                              for at, length, payload in buckets[start:start + CHUNK]])
        self.send("PLAN_COMMIT", request=request, suffix=suffix, **address)
        reply, fds = self.reply(request, "PLAN_ARENA")
        assert reply.bytes == size and len(fds) == 1, (reply, fds)
        memory = mmap.mmap(fds[0], size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        os.close(fds[0])
        for page in range(0, size, PAGE):
            memory[page] = memory[page]
        arena = Arena(memory, places, buckets, plan, self.send("PLAN_MAPPED", suffix=suffix, **address))
        if agree:
            self.agreed(arena)
        return arena

    def agreed(self, arena):
        return self.reply(arena.request, "PLAN_AGREED")[0]

    def write(self, arena, param, values):
        at, size = arena.params[param]
        arena.map[at:at + size] = struct.pack(f"<{size // 4}f", *values)

    def read(self, arena, param):
        at, size = arena.params[param]
        return struct.unpack(f"<{size // 4}f", arena.map[at:at + size])

    def ready(self, arena, step, bucket=0, suffix=b"", **fields):
        self.send("READY", request=0, suffix=suffix, **{"job": self.job, "generation": self.generation, "plan": arena.plan, "step": step,
                                                        "bucket": bucket, **fields})

    def outcome(self, arena, step, timeout=DEADLINE):
        """("COMMITTED" or "VOID", [BucketResult]) of a step; other notices are kept."""
        results = []
        end = time.monotonic() + timeout
        while True:
            got = self.recv(max(end - time.monotonic(), 0))
            assert got is not None, "the daemon has closed the connection"
            kind, _, parsed, _ = got
            if kind == "REFUSED":
                raise Refused(parsed)
            if kind != "STEP" or (parsed.plan, parsed.step) != (arena.plan, step):
                self.notices.append(got)
                continue
            results.extend(parsed.result)
            if parsed.outcome != pb.OPEN:
                return pb.Outcome.Name(parsed.outcome), results

    def leave(self, suffix=b""):
        return self.ask("LEAVE", "LEFT", suffix=suffix, job=self.job)

    def status(self, job=None, suffix=b""):
        """[(type, message)] of one snapshot."""
        request = self.send("STATUS", suffix=suffix, **({"job": job} if job else {}))
        found = []
        while True:
            got = self.recv()
            assert got is not None, "the daemon has closed the connection"
            kind, answers, parsed, _ = got
            if answers != request:
                self.notices.append(got)
                continue
            if kind == "REFUSED":
                raise Refused(parsed)
            found.append((kind, parsed))
            if kind == "STATUS_END":
                return found
