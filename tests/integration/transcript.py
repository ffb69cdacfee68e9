# SPDX-License-Identifier: Apache-2.0
"""Replays the files of transcripts/, whose README describes the format."""
import fcntl
import mmap
import os
import struct

import wire
from peer import Peer

RECORD = struct.Struct("<BI")
PATCH = struct.Struct("<HBB")
EXPECT = struct.Struct("<HI")
AT = struct.Struct("<I")
SIZE = struct.Struct("<I")
WHICH = struct.Struct("<B")
JOB, GENERATION, MEMBER = 1, 2, 3
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def read_varint(data, at):
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def records(data):
    at = 0
    while at < len(data):
        kind, length = RECORD.unpack_from(data, at)
        at += RECORD.size
        yield chr(kind), data[at:at + length]
        at += length


class Replay:
    """Plays one transcript to a daemon, which restart() restarts. `patched` tells whether bytes had to be replaced."""

    def __init__(self, path, data, restart):
        self.path, self.restart = path, restart
        self.numbers = {}
        self.patches = []
        self.patched = False
        self.fds = []                   # of all memories, in the order in which they came
        self.maps = []
        self.memory = None              # the one that is meant
        self.carried = []
        self.replies = []
        self.link = Peer(path, hello=False)
        try:
            for kind, body in records(data):
                getattr(self, "on_" + kind)(body)
        finally:
            self.link.close()
            for fd in self.fds:
                os.close(fd)

    def keep(self, fd, size):
        """One more memory: mapped, touched, and meant from now on."""
        self.memory = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self.fds.append(fd)
        self.maps.append(self.memory)
        for page in range(0, size, wire.PAGE):
            self.memory[page] = self.memory[page]

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
        self.link.send_raw(wire.HEADER.pack(*head) + bytes(payload), self.carried)
        self.carried = []

    def on_E(self, body):
        kind, request = EXPECT.unpack(body)
        while True:
            got = self.link.receive()
            name, answers, message, fds = got.kind, got.request, got.message, got.fds
            assert name != "REFUSED", message
            if (name, answers) == (wire.name(kind), request) and (name != "STEP" or message.outcome != wire.pb.OPEN):
                break
            assert answers in (0, request), f"{name} for request {answers} instead of {wire.name(kind)}"
            self.replies.append((name, message))
        self.replies.append((name, message))
        if name == "JOINED":
            self.numbers = {JOB: message.job, GENERATION: message.generation, MEMBER: message.member}
        if name == "REJOINED":
            self.numbers[JOB] = message.job
        if name == "RESUMED":
            self.numbers[GENERATION] = message.generation
        if name == "STEP":
            assert message.outcome == wire.pb.COMMITTED, message
        for fd in fds:
            self.keep(fd, os.fstat(fd).st_size)
        if fds:
            self.memory = self.maps[-len(fds)]

    def on_M(self, body):
        at = AT.unpack_from(body)[0]
        self.memory[at:at + len(body) - AT.size] = body[AT.size:]

    def on_R(self, body):
        at = AT.unpack_from(body)[0]
        assert self.memory[at:at + len(body) - AT.size] == body[AT.size:]

    def on_O(self, body):
        size, = SIZE.unpack(body)
        fd = os.memfd_create("own", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        self.keep(fd, size)

    def on_U(self, body):
        self.memory = self.maps[WHICH.unpack(body)[0]]

    def on_D(self, body):
        self.carried.append(self.fds[WHICH.unpack(body)[0]])

    def on_X(self, body):
        self.restart()
        assert self.link.receive().kind == "RESTARTING"
        self.link.hangup()
        self.link.close()
        self.link = Peer(self.path, hello=False)
