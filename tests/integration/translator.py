# SPDX-License-Identifier: Apache-2.0
"""Between a daemon and its coordinator, on a Unix socket: makes of what each says to the other what it would
say if it were of another release, so that each meets one."""
import contextlib
import socket
import threading

import wire
from linkpeer import ARRIVAL, ATTACH, HELLO, MESSAGE, PING, PLACE, REFUSED, TABLE, Plain, frame, link, post
from octets import HEADER

peer = wire.generate("daemon/rendezvous", "peer")

PONG, ASK, TELL = 3, 71, 72
UNHEARD_OF = 200            # a type that no release has yet
SCHEMA = {HELLO: link.Hello, PING: link.Ping, PONG: link.Pong, ARRIVAL: post.Arrival, PLACE: post.Place,
          ATTACH: post.Attach, MESSAGE: peer.Message, REFUSED: post.Refused, TABLE: post.Table, ASK: post.Ask,
          TELL: post.Tell}
UNKNOWN = wire.unknown_fields()


def enrich(message):
    """Fields that nobody knows, in this message and in all those within."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.label == field.LABEL_REPEATED else [value]:
                enrich(part)
    message.MergeFromString(UNKNOWN)


def newer(kind, about, payload):
    """As the next minor version would say it, with a message after each that this one does not know."""
    if kind in SCHEMA:
        message = SCHEMA[kind].FromString(payload)
        if kind in (HELLO, MESSAGE):
            message.minor += 1
        enrich(message)
        payload = message.SerializeToString()
        assert payload.count(b"later") >= 1
    yield frame(kind, payload, about)
    if kind != HELLO:
        yield frame(UNHEARD_OF, UNKNOWN, about)


def first(kind, about, payload):
    """As a release would say it that asks no questions for people's sake, answers none, tells no time, and
    whose engine knows only the first dialect."""
    if kind == MESSAGE:
        message = peer.Message.FromString(payload)
        message.ClearField("dialect")
        payload = message.SerializeToString()
    if kind not in (PING, PONG, ASK, TELL):
        yield frame(kind, payload, about)


class Translator:
    """Listens at `path`, and passes on to `there` what it makes of each frame, and the other way round.
    `seen` are the types that have come, by the end that has said them."""

    def __init__(self, path, there, translate):
        self.path, self.there, self.translate = str(path), str(there), translate
        self.seen = {"node": set(), "coordinator": set()}
        self.open, self.threads = [], []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.thread = threading.Thread(target=self._accept)
        self.thread.start()

    def _accept(self):
        while True:
            try:
                here, _ = self.listener.accept()
            except OSError:
                return              # closed
            there = socket.socket(socket.AF_UNIX)
            self.open += [here, there]
            try:
                there.connect(self.there)
            except OSError:
                here.close()        # nobody listens there at the moment: it dials again
                continue
            for who, source, target in (("node", here, there), ("coordinator", there, here)):
                self.threads.append(threading.Thread(target=self._pass_on, args=(who, source, target)))
                self.threads[-1].start()

    def _pass_on(self, who, source, target):
        ear = Plain(source)
        source.settimeout(None)
        with contextlib.suppress(AssertionError, OSError):      # one of the ends has hung up
            while True:
                _, _, _, kind, _, length, about = HEADER.unpack(ear.exactly(HEADER.size))
                payload = ear.exactly(length)
                self.seen[who].add(kind)
                for data in self.translate(kind, about, payload):
                    target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for each in self.open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        for each in self.open:
            each.close()
