# SPDX-License-Identifier: Apache-2.0
"""A way between a daemon and the one that coordinates, on which what one of them says comes out changed:
fields of its messages, their order and their number, by a seed. So that end lies as one would that has a key,
in the middle of jobs that form, run steps and end; frames are right, and payloads are well-formed."""
import contextlib
import random
import socket
import threading

from linkpeer import ARRIVAL, ATTACH, DETACH, ORDER, REFUSED, REPORT, TABLE, frame, post
from octets import HEADER
from wire import generate

peer = generate("daemon/rendezvous/wire", "peer")

LETTER = 72
# Not PLACE: a daemon keeps its place, and with a wrong one, or with other times, says nothing more for long.
CLASSES = {ARRIVAL: post.Arrival, ATTACH: post.Attach, ORDER: peer.Order, REPORT: peer.Report,
           REFUSED: post.Refused, TABLE: post.Table, LETTER: post.Letter}
NUMBERS = [0, 1, 2, 3, 7, 63, 64, 255, 257, 4095, 4096, 65535, 65536, 3 << 30, 2 ** 31 - 1, 2 ** 32 - 1,
           2 ** 53, 2 ** 62, 2 ** 63 - 1, 2 ** 64 - 1]
TEXTS = ["", "lied0", "lied1", "é" * 20, "x" * 64, "x" * 300]
# Fields of a message itself that are mostly left as they are: no node accepts it with other values.
CLOSED = ("from", "to", "host", "major", "instance", "stamp")
OLD = 400               # frames that may be said again


class Liar:
    """Listens at `path`, and leads to the socket `beyond`. Lies by the daemon that connects if `up`, by the
    other one if not, in a share `rate` of its frames; counts the frames, and the lies."""

    def __init__(self, path, beyond, up, seed, rate):
        self.path, self.beyond, self.up, self.rate = path, beyond, up, rate
        self.random = random.Random(seed)
        self.said = self.lies = 0
        self.old, self.ends = [], []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.start(self.accept)

    @staticmethod
    def start(what, *arguments):
        threading.Thread(target=what, args=arguments, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(self.beyond))
                self.ends += [near, far]
                self.start(self.pass_on, near, far, self.up)
                self.start(self.pass_on, far, near, not self.up)

    def pass_on(self, source, sink, lying):
        with contextlib.suppress(OSError):
            for said in frames(source):
                for kind, about, payload in self.change(*said) if lying else [said]:
                    sink.sendall(frame(kind, payload, about=about))
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def be_honest(self):
        """From now on, on new connections."""
        self.rate = 0
        for each in self.ends:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.be_honest()
        self.listener.close()

    def change(self, kind, about, payload):
        """The frames that are said instead of that one."""
        self.said += 1
        if kind not in CLASSES and kind != DETACH or self.random.random() >= self.rate:
            return [(kind, about, payload)]
        self.lies += 1
        self.old = self.old[-OLD:] + [(kind, about, payload)]
        way = self.random.random()
        if way < .6:
            return [(kind, about, self.scrambled(kind, payload))]
        if way < .7:                                        # the truth, and a lie after it
            return [(kind, about, payload), (kind, about, self.scrambled(kind, payload))]
        if way < .75:
            return [(kind, about, payload)] * 2
        if way < .8 and kind != ARRIVAL:                    # which is awaited before anything else is said
            return []
        if way < .9:
            return [(kind, about, payload), self.random.choice(self.old)]
        if way < .95:
            return [(kind, self.random.choice([0, about + 1, 99]), payload)]
        return [(kind, about, payload), self.invented(about)]

    def invented(self, about):
        """All of whose fields are made up."""
        kind = self.random.choice([*CLASSES, DETACH])
        return kind, about, self.scrambled(kind, b"", 40)

    def scrambled(self, kind, payload, most=0):
        if kind not in CLASSES:
            return payload
        message = CLASSES[kind]()
        message.ParseFromString(payload)
        for _ in range(most or self.random.choice([1, 1, 1, 2, 4])):
            self.scramble(message, CLOSED)
        return message.SerializeToString()

    def scramble(self, message, closed=()):
        """Changes a field, of it or of a message in it."""
        field = self.random.choice(message.DESCRIPTOR.fields)
        if field.name == "term" or field.name in closed and self.random.random() < .9:
            return                                          # in a later term no other coordinator is heard
        if field.label == field.LABEL_REPEATED:
            self.scramble_list(field, getattr(message, field.name))
        elif field.message_type:
            self.scramble(getattr(message, field.name))
        else:
            with contextlib.suppress(ValueError):           # it has no such number
                setattr(message, field.name, self.value(field, getattr(message, field.name)))

    def scramble_list(self, field, values):
        way = self.random.random()
        if not values or way < .15:
            if field.message_type:
                self.scramble(values.add())
            else:
                values.append(self.random.choice(NUMBERS[:13]))
        elif way < .3:
            del values[self.random.randrange(len(values))]
        elif way < .4 and field.message_type:               # twice
            values.add().CopyFrom(self.random.choice(values))
        elif field.message_type:
            self.scramble(self.random.choice(values))
        else:
            with contextlib.suppress(ValueError):
                index = self.random.randrange(len(values))
                values[index] = self.value(field, values[index])

    def value(self, field, before):
        if field.type == field.TYPE_BOOL:
            return not before
        if field.type == field.TYPE_STRING:
            return self.random.choice(TEXTS)
        if field.type == field.TYPE_BYTES:
            return self.octets(before)
        return before + self.random.choice([-2, -1, 1, 2, 8]) if self.random.random() < .6 \
            else self.random.choice(NUMBERS)

    def octets(self, before):
        if before and self.random.random() < .6:
            index = self.random.randrange(len(before))
            bit = 1 << self.random.randrange(8)
            return before[:index] + bytes([before[index] ^ bit]) + before[index + 1:]
        return self.random.randbytes(self.random.choice([0, 1, 8, 64, 512]))


def frames(source):
    """(type, about, payload) of each one that comes."""
    data = b""
    while True:
        part = source.recv(65536)
        if not part:
            return
        data += part
        while len(data) >= HEADER.size:
            _, _, _, kind, _, length, about = HEADER.unpack(data[:HEADER.size])
            if len(data) < HEADER.size + length:
                break
            payload, data = data[HEADER.size:HEADER.size + length], data[HEADER.size + length:]
            yield kind, about, payload
