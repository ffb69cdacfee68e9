# SPDX-License-Identifier: Apache-2.0
"""A daemon's other end, in Python and apart from the C code: frames between daemons, right or wrong ones,
over a Unix socket or through openssl(1), which knows how to show a key."""
import socket
import subprocess
import time

from harness import DEADLINE
from octets import HEADER
from wire import MAGIC, MAJOR, generate

link = generate("daemon/link", "link")
post = generate("daemon/rendezvous/wire", "post")

HELLO, PING, LINK_REFUSED = 1, 2, 4
ARRIVAL, PLACE, ATTACH, DETACH, ORDER, REPORT, REFUSED, TABLE, LETTER = range(64, 73)
NODE_ROLE, COORDINATOR = 1, 2
NODE = bytes(range(100, 116))
HELLO_MOST, PAYLOAD_MOST = 1024, 96 << 10


def frame(kind, payload=b"", about=0, length=None, magic=MAGIC, major=MAJOR, flags=0, fds=0):
    if not isinstance(payload, bytes):
        payload = payload.SerializeToString()
    length = len(payload) if length is None else length
    return HEADER.pack(magic, major, flags, kind, fds, length, about) + payload


def hello(**fields):
    return frame(HELLO, link.Hello(**{"major": 1, "node": NODE, "instance": 1, "role": NODE_ROLE,
                                      "release": "test", **fields}))


def arrival(**fields):
    return frame(ARRIVAL, post.Arrival(**{"host": "elsewhere", "name": "elsewhere", **fields}))


class Plain:
    """Frames over a stream socket."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(DEADLINE)

    def send(self, data):
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass                    # it has hung up already, which is what ended() looks for

    def read(self, size):
        try:
            return self.sock.recv(size)
        except ConnectionResetError:
            return b""

    def exactly(self, size):
        data = b""
        while len(data) < size:
            part = self.read(size - len(data))
            assert part, f"the daemon has hung up after {data!r}"
            data += part
        return data

    def frame(self):
        """(type, payload) of the next one that is more than a ping."""
        while True:
            _, _, _, kind, _, length, _ = HEADER.unpack(self.exactly(HEADER.size))
            payload = self.exactly(length)
            if kind != PING:
                return kind, payload

    def hello(self):
        """The other end's Hello."""
        kind, payload = self.frame()
        assert kind == HELLO
        said = link.Hello()
        said.ParseFromString(payload)
        return said

    def refused(self):
        """Why the other end does not let this one in; it has hung up then."""
        kind, payload = self.frame()
        assert kind == LINK_REFUSED
        said = link.Refused()
        said.ParseFromString(payload)
        assert self.ended()
        return said.why

    def ended(self):
        """Waits until the other end has hung up, which may say something now and then."""
        end = time.monotonic() + DEADLINE
        while self.read(65536):
            assert time.monotonic() < end, "the other end has not hung up"
        return True

    def close(self):
        self.sock.close()


def over_unix(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    return Plain(sock)


class OverTls(Plain):
    """Through openssl(1): what it says, and hears, are the bytes within TLS. `key` is (name, secret in hex),
    or None."""

    def __init__(self, port, key, source="127.0.0.1"):
        ours, theirs = socket.socketpair()
        shown = ["-psk_identity", key[0], "-psk", key[1]] if key else []
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-bind", f"{source}:0", "-tls1_3",
                   "-quiet", *shown]
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
        theirs.close()
        super().__init__(ours)

    def close(self):
        super().close()
        self.process.kill()
        self.process.communicate()
