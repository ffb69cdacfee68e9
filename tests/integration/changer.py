# SPDX-License-Identifier: Apache-2.0
"""Stands between two hosts and changes bytes that pass: takes the TCP connections that nftables sends to
PORT, and leads each on to where it was to go.

    changer.py PORT UID

It runs as UID, whose connections are let through. A line of standard input has two words in hexadecimal
digits: from then on the first becomes the second, wherever it is in one piece. "changed" is said each time.
An empty line ends that.
"""
import os
import socket
import struct
import sys
import threading

ORIGINAL_DESTINATION = 80


class Changer:
    def __init__(self):
        self.words = None

    def changed(self, data):
        words = self.words
        if words is not None and words[0] in data:
            print("changed", flush=True)
            data = data.replace(*words)
        return data

    def pass_on(self, come, go):
        try:
            while data := come.recv(1 << 20):
                go.sendall(self.changed(data))
        except OSError:
            pass
        for each in (come, go):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def serve(self, listener):
        while True:
            come, _ = listener.accept()
            place = come.getsockopt(socket.SOL_IP, ORIGINAL_DESTINATION, 16)
            port, address = struct.unpack("!2xH4s8x", place)
            go = socket.create_connection((socket.inet_ntoa(address), port))
            for one, other in ((come, go), (go, come)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.pass_on, args=(one, other), daemon=True).start()


def main(port, uid):
    os.setgroups([])
    os.setuid(int(uid))
    changer = Changer()
    listener = socket.create_server(("", int(port)))
    threading.Thread(target=changer.serve, args=(listener,), daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        changer.words = tuple(map(bytes.fromhex, line.split())) or None
        print("taken", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
