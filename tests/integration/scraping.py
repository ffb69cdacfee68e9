# SPDX-License-Identifier: Apache-2.0
"""Asking for metrics over TCP: an address that no other test has, and requests as collectors send them."""
import itertools
import os
import socket

import harness

PROMETHEUS = ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
              "text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
PORT = 9464

numbers = itertools.count(1)


def own_address():
    """The loopback interface has millions of addresses: one for each process of the tests, a port for each
    call."""
    pid = os.getpid()
    return f"127.{64 + (pid >> 16 & 63)}.{pid >> 8 & 255}.{pid & 255}:{PORT + next(numbers)}"


def call(address, origin=None):
    """A connection; from another address of this host if `origin` names one."""
    host, _, port = address.rpartition(":")
    caller = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    caller.settimeout(harness.DEADLINE)
    if origin:
        caller.bind((origin, 0))
    caller.connect((host, int(port)))
    return caller


def rest_of(caller):
    out = b""
    while part := caller.recv(65536):
        out += part
    return out.decode()


def ask(address, request):
    with call(address) as caller:
        caller.sendall(request)
        return rest_of(caller)


def get(address, accept=None, method="GET", path="/metrics", version="1.1"):
    """The answer to a collector."""
    head = f"{method} {path} HTTP/{version}\r\nHost: {address}\r\n"
    return ask(address, (head + (f"Accept: {accept}\r\n" if accept else "") + "\r\n").encode())
