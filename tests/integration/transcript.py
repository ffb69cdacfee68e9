# SPDX-License-Identifier: Apache-2.0
"""Reading, writing and replaying the files of transcripts/, whose README describes the format."""
import mmap
import os
import struct

import wire

RECORD = struct.Struct("<BI")
PATCH = struct.Struct("<HBB")
EXPECT = struct.Struct("<HI")
AT = struct.Struct("<I")
JOB, GENERATION = 1, 2


def read_varint(data, at):
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def find_number(payload, field):
    """(offset, length) of the value of a varint field at the top of a payload."""
    at = 0
    while at < len(payload):
        tag, start = read_varint(payload, at)
        if tag & 7 == 0:
            _, at = read_varint(payload, start)
            if tag >> 3 == field:
                return start, at - start
        elif tag & 7 == 2:
            length, start = read_varint(payload, start)
            at = start + length
        else:
            at = start + (8 if tag & 7 == 1 else 4)
    raise ValueError(f"no field {field}")


class Writer:
    """Builds a transcript. Every message that names a job gets patches for the numbers that the daemon chooses."""

    def __init__(self):
        self.data = bytearray()

    def record(self, kind, body):
        self.data += RECORD.pack(ord(kind), len(body)) + body

    def send(self, kind, request, /, **fields):
        made = wire.message(kind, **fields)
        payload = made.SerializeToString()
        numbers = made.DESCRIPTOR.fields_by_name
        for name, what in (("job", JOB), ("generation", GENERATION)):
            if name in fields and numbers[name].cpp_type == numbers[name].CPPTYPE_UINT32:
                self.record("P", PATCH.pack(*find_number(payload, numbers[name].number), what))
        self.record("F", wire.frame(kind, payload, request))

    def expect(self, kind, request):
        self.record("E", EXPECT.pack(wire.number(kind), request))

    def memory(self, at, data):
        self.record("M", AT.pack(at) + data)

    def result(self, at, data):
        self.record("R", AT.pack(at) + data)


def records(data):
    at = 0
    while at < len(data):
        kind, length = RECORD.unpack_from(data, at)
        at += RECORD.size
        yield chr(kind), data[at:at + length]
        at += length


class Replay:
    """Plays one transcript to a daemon. `patched` tells whether bytes had to be replaced."""

    def __init__(self, path, data):
        self.numbers = {}
        self.patches = []
        self.patched = False
        self.memory = None
        self.replies = []
        with wire.Wire(path) as self.link:
            for kind, body in records(data):
                getattr(self, "on_" + kind)(body)

    def on_P(self, body):
        self.patches.append(PATCH.unpack(body))

    def on_F(self, body):
        head = list(wire.Header(*wire.HEADER.unpack_from(body)))
        payload = bytearray(body[wire.HEADER.size:])
        for at, length, what in sorted(self.patches, reverse=True):
            if read_varint(payload, at)[0] != self.numbers[what]:
                payload[at:at + length] = wire.varint(self.numbers[what])
                self.patched = True
        self.patches = []
        head[wire.Header._fields.index("length")] = len(payload)
        self.link.send_raw(wire.HEADER.pack(*head) + bytes(payload))

    def on_E(self, body):
        kind, request = EXPECT.unpack(body)
        while True:
            got = self.link.recv()
            assert got is not None, f"the daemon closed instead of {wire.name(kind)}"
            name, answers, message, fds = got
            assert name != "REFUSED", message
            if (name, answers) == (wire.name(kind), request) and (name != "STEP" or message.outcome != wire.pb.OPEN):
                break
            assert answers in (0, request), f"{name} for request {answers} instead of {wire.name(kind)}"
            self.replies.append((name, message))
        self.replies.append((name, message))
        if name == "JOINED":
            self.numbers = {JOB: message.job, GENERATION: message.generation}
        if name == "STEP":
            assert message.outcome == wire.pb.COMMITTED, message
        if fds:
            self.memory = mmap.mmap(fds[0], message.bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            for fd in fds:
                os.close(fd)
            for page in range(0, message.bytes, wire.PAGE):
                self.memory[page] = self.memory[page]

    def on_M(self, body):
        at = AT.unpack_from(body)[0]
        self.memory[at:at + len(body) - AT.size] = body[AT.size:]

    def on_R(self, body):
        at = AT.unpack_from(body)[0]
        assert self.memory[at:at + len(body) - AT.size] == body[AT.size:]
