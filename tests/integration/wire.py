# SPDX-License-Identifier: Apache-2.0
"""The protocol for tests, in Python and apart from the C code: frames as bytes, messages from the same schema.

The functions build and take apart frames, right or wrong ones; connections are in peer.py. Message types are given by
name ("PLAN_BEGIN") or number.
"""
import collections
import importlib
import pathlib
import subprocess
import sys
import tempfile

from octets import HEADER, varint

MAGIC = 0x5347
MAJOR = 1
MINOR = 0
FRAME_MAX = 65536
PAYLOAD_MAX = FRAME_MAX - HEADER.size
FDS_MAX = 2
PAGE = 4096
DIAGNOSIS_BITMAP = 64

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
