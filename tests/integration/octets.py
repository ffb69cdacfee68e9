# SPDX-License-Identifier: Apache-2.0
"""Bytes of the protocol, by Python's own library alone, which is all that hostile.py uses."""
import socket
import struct

HEADER = struct.Struct("<HBBHHII")


def varint(value):
    out = bytearray()
    while value > 0x7f:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def send_packet(sock, data, fds=()):
    if fds:
        socket.send_fds(sock, [data], list(fds))
    else:
        sock.send(data)
