#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Strangers at the port where daemons meet: connections without a key, as many as one process can make.

    strangers.py [--from ADDRESS]... [--seconds N] HOST PORT KIND=N...

Kinds: `silent` say nothing, `half` say half a ClientHello, `slow` say one byte by byte, `hello` say a whole
one, without a key, `garbage` say bytes of no protocol, `churn` leave at once. Each that has ended comes
again, from the next of the addresses. Says "began" when all have tried once; then each second, and at its
end, which is SIGTERM or after so many seconds, a JSON object of what it has done. Needs Python's own library
alone, so that it can be started anywhere.
"""
import argparse
import errno
import json
import resource
import selectors
import signal
import socket
import ssl
import struct
import sys
import time

SLOWNESS = 0.05             # seconds between the bytes of a slow one
GARBAGE = bytes(range(7, 200)) * 3
HARD = struct.pack("ii", 1, 0)


def client_hello():
    """As any TLS client says it, with a Diffie-Hellman share."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    out = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


HELLO = client_hello()
SAY = {"silent": b"", "half": HELLO[:len(HELLO) // 2], "slow": HELLO, "hello": HELLO, "garbage": GARBAGE,
       "churn": b""}


class Crowd:
    def __init__(self, at, sources):
        self.at, self.sources = at, sources
        self.selector = selectors.DefaultSelector()
        self.slow = {}              # socket -> how much it has said
        self.serial = 0
        self.told = {"connections": 0, "ended": 0, "failed": 0}
        self.begin_at = self.next_line = time.monotonic()

    def come(self, kind):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        if self.sources:
            sock.setsockopt(socket.IPPROTO_IP, 24, 1)       # IP_BIND_ADDRESS_NO_PORT
            sock.bind((self.sources[self.serial % len(self.sources)], 0))
        self.serial += 1
        problem = sock.connect_ex(self.at)
        if problem not in (0, errno.EINPROGRESS):
            self.told["failed"] += 1
            sock.close()
            return
        self.selector.register(sock, selectors.EVENT_WRITE, kind)

    def leave(self, sock, kind):
        self.selector.unregister(sock)
        self.slow.pop(sock, None)
        sock.close()
        self.come(kind)

    def begin(self, sock, kind):
        """It is connected, or is not."""
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
            self.told["failed"] += 1
            self.leave(sock, kind)
            return
        self.told["connections"] += 1
        if kind == "churn":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, HARD)
            self.leave(sock, kind)
            return
        if kind == "slow":
            self.slow[sock] = 0
        else:
            sock.send(SAY[kind])
        self.selector.modify(sock, selectors.EVENT_READ, kind)

    def on_ready(self, sock, kind, events):
        try:
            if events & selectors.EVENT_WRITE:
                self.begin(sock, kind)
            elif not sock.recv(4096):
                self.told["ended"] += 1
                self.leave(sock, kind)
        except BlockingIOError:
            pass
        except OSError:
            self.told["ended"] += 1
            self.leave(sock, kind)

    def go_slowly(self):
        for sock, said in list(self.slow.items()):
            try:
                self.slow[sock] = said + sock.send(HELLO[said:said + 1])
            except OSError:
                pass                # its end is about to be read

    def tell(self):
        print(json.dumps({**self.told, "cpu_s": round(time.process_time(), 3),
                          "wall_s": round(time.monotonic() - self.begin_at, 3)}), flush=True)

    def run(self, wanted, end):
        for kind, count in wanted.items():
            for _ in range(count):
                self.come(kind)
        began, next_slow = False, 0
        while time.monotonic() < end and not stopped:
            for key, events in self.selector.select(SLOWNESS):
                self.on_ready(key.fileobj, key.data, events)
            now = time.monotonic()
            if now >= next_slow:
                self.go_slowly()
                next_slow = now + SLOWNESS
            if not began and self.told["connections"] + self.told["failed"] >= sum(wanted.values()):
                print("began", flush=True)
                began, self.next_line = True, now + 1
            if began and now >= self.next_line:
                self.tell()
                self.next_line = now + 1


stopped = []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--from", dest="sources", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("kinds", nargs="+")
    options = parser.parse_args()
    wanted = {kind: int(count) for kind, count in (each.split("=") for each in options.kinds)}
    if set(wanted) - set(SAY):
        parser.error(f"kinds are {', '.join(SAY)}")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    crowd = Crowd((options.host, options.port), options.sources)
    crowd.run(wanted, crowd.begin_at + options.seconds)
    crowd.tell()
    return 0


if __name__ == "__main__":
    sys.exit(main())
