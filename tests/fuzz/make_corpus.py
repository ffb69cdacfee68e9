#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fuzz/corpus: for each target the inputs from which a fuzzer best finds its way. The result is the same each time.

Run it after a change of the schema or of the settings. It removes nothing: inputs that once found something stay beside these.
"""
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

import wire  # noqa: E402  (lies in the folder added above)

TEXTS = {"name": "layer4.0.conv1.weight", "job": "training", "process_state": "stopped", "device": "cpu", "state": "running"}


def write(target, name, data):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def value(field, index):
    """A plausible value of a field; `index` makes neighbours differ."""
    kind = field.cpp_type
    if kind == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            return bytes([1 << index % 8, 0x80])
        return TEXTS.get(field.name, "text \u20ac")
    if kind == field.CPPTYPE_ENUM:
        numbers = [entry.number for entry in field.enum_type.values]
        return numbers[(index + 1) % len(numbers)]
    if kind == field.CPPTYPE_BOOL:
        return True
    if kind == field.CPPTYPE_DOUBLE:
        return 0.5 * index - 1
    if kind in (field.CPPTYPE_INT32, field.CPPTYPE_INT64):
        return 1000 + index if index % 2 else -1
    return (1, 300, (1 << 32) - 1, 4096)[index % 4] if kind == field.CPPTYPE_UINT32 else (1, 300, (1 << 64) - 1, 1 << 40)[index % 4]


def fill(message, repeat):
    """Sets every field of a message, repeated ones `repeat` times."""
    for index, field in enumerate(message.DESCRIPTOR.fields):
        if field.label == field.LABEL_REPEATED:
            target = getattr(message, field.name)
            for turn in range(repeat if field.message_type or field.name != "shape" else min(repeat, 8)):
                if field.message_type:
                    fill(target.add(), repeat)
                else:
                    target.append(value(field, index + turn))
        elif field.message_type:
            fill(getattr(message, field.name), repeat)
        else:
            setattr(message, field.name, value(field, index))
    return message


def codec():
    for name, number in wire.pb.MessageType.items():
        if number == 0:
            continue
        kind = struct.pack("<H", number)
        low = name.lower()
        write("codec", f"{low}-full", kind + fill(wire.message(name), 2).SerializeToString())
        write("codec", f"{low}-newer", kind + wire.unknown_fields())
    write("codec", "no-type", b"")
    write("codec", "unknown-type", struct.pack("<H", 77) + b"\x08\x01")
    wide = wire.pb.Step(result=[wire.pb.BucketResult(bucket=1, rank_sum_squares=[1.5] * 257, rank_nonfinite=[3] * 257)])
    write("codec", "step-too-wide", struct.pack("<H", wire.pb.STEP) + wide.SerializeToString())
    deep = wire.pb.PlanParams(param=[wire.pb.Param(name="p", shape=[1] * 9)])
    write("codec", "params-too-deep", struct.pack("<H", wire.pb.PLAN_PARAMS) + deep.SerializeToString())
    many = wire.pb.PlanBuckets(bucket=[wire.pb.Bucket(offset=4096 * turn) for turn in range(257)])
    write("codec", "buckets-too-many", struct.pack("<H", wire.pb.PLAN_BUCKETS) + many.SerializeToString())
    write("codec", "string-with-nul", struct.pack("<H", wire.pb.HELLO) + b"\x12\x03a\x00b")
    write("codec", "string-not-utf8", struct.pack("<H", wire.pb.HELLO) + b"\x12\x02\xc3\x28")
    write("codec", "absent-too-long", struct.pack("<H", wire.pb.READY) + wire.pb.Ready(absent=bytes(8193)).SerializeToString())
    write("codec", "negative-in-five-bytes", struct.pack("<H", wire.pb.HELLO) + b"\x28\xff\xff\xff\xff\x0f")
    write("codec", "field-zero", struct.pack("<H", wire.pb.PLAN_BUCKETS) + b"\x80\x00\x00")
    write("codec", "zero-inside", struct.pack("<H", wire.pb.STATUS_DAEMON) + b"\x8a\x03\x03\x80\x00\x01")
    write("codec", "shape-not-packed", struct.pack("<H", wire.pb.PLAN_PARAMS) + b"\x1a\x06\x18\x03\x18\x04\x18\x05")


def frame():
    write("frame", "empty", b"")
    write("frame", "header-only", wire.frame("STATUS", request=1))
    write("frame", "hello", wire.frame("HELLO", wire.message("HELLO", minor=0, program="trainer"), 1))
    write("frame", "arena-with-fd", wire.frame("PLAN_ARENA", wire.message("PLAN_ARENA", job=1, plan=0, bytes=8192), 7, 1))
    write("frame", "notice", wire.frame("LOST", wire.message("LOST", job=1, rank=3, text="gone")))
    for what, data in wire.malformed().items():
        if len(data) < 1024:
            write("frame", "bad-" + what.replace(" ", "-"), data)


def names():
    good = ["a", "layer4.0.conv1.weight", "with space", "a/b", "g\u00fcte", "\u20ac", "\U0001f600", "\ud7ff", "\ue000", "\U0010ffff", "n" * 255]
    for index, text in enumerate(good):
        write("names", f"good-{index}", text.encode())
    bad = [b"", b"n" * 256, b"a\nb", b"\x7f", b"\xc2\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80", b"a\x00b"]
    for index, text in enumerate(bad):
        write("names", f"bad-{index}", text)
    shapes = [[3, 5, 7], [1 << 32, 1 << 31], [1 << 32, 1 << 32], [4, 0], [1] * 8, [1] * 9, [(1 << 64) - 1, 1]]
    for index, shape in enumerate(shapes):
        write("names", f"shape-{index}", struct.pack(f"<{len(shape)}Q", *shape))
    for dtype in range(8):
        write("names", f"numbers-{dtype}", struct.pack("<II", 1 + dtype % 5, dtype))


def post():
    post_pb = wire.generate("daemon/rendezvous/wire", "post")
    times = {"heartbeat": 500000, "patience": 2000000, "death": 5000000, "abandon": 30000000,
             "drain": 5000000, "build": 10000000}
    messages = [post_pb.Arrival(device=1, host="a-b-c", has_address=True, address=7, name="n7"),
                post_pb.Place(address=7, host=3, **times),
                post_pb.Attach(uid=1000, incarnation=2, job="training"),
                post_pb.Refused(code=33, text="job 'j' is full \u20ac"),
                post_pb.Table(**{"term": 256, "number": 1, "nonce": 7, "from": 3, "table": b"addresses"}),
                post_pb.Letter(node=9, frames=b"frames")]
    wrong = {"2-token": post_pb.Attach(job="a", token=bytes(range(32))),
             "2-token-short": post_pb.Attach(job="a", token=b"x"),
             "2-long": post_pb.Attach(job="n" * 300),
             "0-address": post_pb.Arrival(host="h", name="n", has_address=True, address=5000),
             "1-hasty": post_pb.Place(address=1, **{**times, "death": 1}),
             "2-slash": post_pb.Attach(job="a/b")}
    for number, message in enumerate(messages):     # the first byte says which message it is
        data = message.SerializeToString()
        write("post", f"{number}-full", bytes([number]) + data)
        write("post", f"{number}-cut", bytes([number]) + data[:-1])
        write("post", f"{number}-newer", bytes([number]) + data + wire.unknown_fields())
        write("post", f"{number}-empty", bytes([number]))
    for name, message in wrong.items():
        write("post", name, bytes([int(name[0])]) + message.SerializeToString())


def link():
    secret = "0123456789abcdef" * 2
    texts = [f"main {secret}",
             f"main {secret} uids=1000,2000-2999 until=2031-01-01T00:00:00Z\n# c\n\nnew {secret}00 uids=*\n",
             f"main {secret} uids=5-4", "main 00", "host:7700", "[::1]:7700", "10.0.0.1:1", "unix:/run/link",
             "eth0:70000", "::1:5"]
    for number, text in enumerate(texts):
        write("link", f"text-{number}", text.encode())
    write("link", "header", wire.frame("HELLO", wire.message("HELLO", minor=0, program="trainer"), 1))
    link_pb = wire.generate("daemon/link", "link")
    hello = {"major": 1, "node": bytes(range(16)), "instance": 7, "role": 1, "release": "1.0", "host": "beta"}
    ping, pong = link_pb.Ping(sent=5), link_pb.Pong(sent=5, clock=9, wall=1 << 50)

    def stream(name, *frames, **changed):
        greeting = link_pb.Hello(**{**hello, **changed}).SerializeToString()
        write("link", f"stream-{name}", wire.frame(1, greeting) + b"".join(frames))

    stream("talk", wire.frame(2, ping.SerializeToString()), wire.frame(64, b"payload", 3),
           wire.frame(3, pong.SerializeToString()), wire.frame(70, bytes(300)))
    stream("refused", wire.frame(65, b"x"), wire.frame(66, b"y"))
    stream("unknown", wire.frame(63, b"newer"), wire.frame(2, b"\xff"), wire.frame(3, b"\x08"),
           wire.frame(64) + wire.frame(64)[:7])
    stream("too-large", wire.frame(64) + wire.header(64, 97 << 10, 0, 0))
    stream("fds", wire.header(64, 0, 0, 1))
    stream("names", host="b\x1b[31m", release="r" * 300)
    stream("version", major=2)
    stream("no-node", node=b"short")
    stream("own-id", node=bytes([1]) + bytes(15))
    stream("part", role=2)
    write("link", "stream-no-hello", wire.frame(64, b"x"))
    write("link", "stream-bad-hello", wire.frame(1, b"\x1a\xff"))


def http():
    begin = "GET /metrics HTTP/1.1\r\n"
    headers = "Host: localhost:9464\r\nUser-Agent: Prometheus/2.42\r\n"
    accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n"
    texts = [f"{begin}{headers}{accept}\r\n", f"{begin}Accept: text/plain\r\n\r\n", "GET / HTTP/1.0\n\n",
             "HEAD /metrics?x=1 HTTP/1.1\r\n\r\n", "POST /metrics HTTP/1.1\r\n\r\nAccept: text/plain\n",
             f"{begin}Host: [::1]:1\r\nhost: evil.example.\r\n\r\n", "GET /other HTTP/1.1\r\n\r\n",
             "GET", "x", "", "OPTIONS *\r\r\n\n", f"{begin}Host: 10.0.0.1.\r\n\r\n{begin}\r\n",
             f"{begin}\0\r\n\r\n", f"{begin}{headers}", f"{begin}X: {'y' * 4100}\r\n\r\n",
             f"{begin}\r\nHost: evil.example\r\n", "y" * 4100]
    for number, text in enumerate(texts):
        write("http", f"request-{number}", text.encode())


# Numbers of the enums in message.h.
NEWGEN, REFUSE, PLACES, EXPLAIN, REJECT, ORDERS = 8, 11, 12, 13, 14, 15
REPORT, ANSWERS = 1, 9
FACTS = {"prefix": 7, "index": 1, "params": 4, "buckets": 2, "name": "weight", "dtype": 1, "shape": [3, 5]}
REFUSAL = {"code": 3, "text": b"of another shape", "has_culprit": True, "rank": 1, "pid": 100,
           "parameter": "weight"}


def peer_common(message):
    """Fields that orders and reports have."""
    return message(major=1, instance=5, term=256, round=3, stamp=1000, generation_term=256,
                   generation_number=1, generation_nonce=7, comm_term=256, comm_number=1, comm_nonce=7,
                   set=b"\x03", seq=[2, 0, 1], world=2, history_term=256, history_step=4, mark=[1, 300])


def write_variants(name, data):
    write("peer", name, data)
    write("peer", f"{name}-newer", data + wire.unknown_fields())
    write("peer", f"{name}-cut", data[:len(data) * 2 // 3])


def peer_orders(peer_pb):
    for kind in range(ORDERS):
        order = peer_common(peer_pb.Order)
        order.kind, order.to, order.loss_member, order.loss_cause = kind, 1, 9, 2
        if kind < REFUSE:
            order.go.extend([4, 1])
            order.plan.add(digest=11, ordinal=1, track=1, open=True, unit=300, turn=7, kept=kind == NEWGEN)
        if kind == NEWGEN:
            order.secret = bytes(range(32))
            order.next_plan = 2
            for rank in range(2):
                order.member_of.add(member=1 << 52 | rank + 1, rank=rank, id=rank + 1, tag_step=4)
        elif kind == REFUSE:
            order.refusal.code = 3
            order.end = 3
            order.member = 1 << 52 | 1
            order.refusal.text = "job 'j' is full \u20ac".encode()
        elif kind == PLACES:
            order.places.grace = 1000
            order.places.vacant = b"\x05"
            order.places.waiting.extend([1 << 52 | 7, 1 << 52 | 1 << 40])
        elif kind == EXPLAIN:
            order.note, order.ordinal, order.index = 1, 2, 3
        elif kind == REJECT:
            order.ordinal = 2
            order.refusal.code = 3
        write_variants(f"order-{kind}", order.SerializeToString())


def peer_reports(peer_pb):
    for kind in range(REPORT, ANSWERS):
        report = peer_common(peer_pb.Report)
        report.kind = kind
        report.ready.extend([4])
        report.go.extend([3])
        report.committed.extend([1, 299])
        report.prepared.extend([1, 300])
        report.links = b"\x02"
        report.plan.add(digest=11, ordinal=1, track=1, open=True, unit=300, turn=6)
        report.plan.add(digest=12, ordinal=2)
        for rank in range(2):
            report.member_of.add(member=rank + 1, pid=100 + rank, min_world=1, max_world=4, rank=rank,
                                 id=rank + 1, tag_step=4, **{"in": True})
        report.gone.add(member=9, cause=2)
        write_variants(f"report-{kind}", report.SerializeToString())
    abouts = [{"facts": FACTS}, {"refusal": REFUSAL}, {"waited": 3000000}, {"refusal": REFUSAL}]
    for note, about in enumerate(abouts, 1):
        report = peer_pb.Report(major=1, kind=REPORT, instance=5, stamp=1000, note=note, ordinal=1,
                                about=about)
        write("peer", f"note-{note}", report.SerializeToString())


def peer():
    peer_pb = wire.generate("daemon/rendezvous/wire", "peer")
    peer_orders(peer_pb)
    peer_reports(peer_pb)
    report = {"major": 1, "kind": REPORT, "stamp": 1}
    bad = {
        "note-deep": peer_pb.Report(**report, note=1, about={"facts": {**FACTS, "shape": [1] * 9}}),
        "other-major": peer_pb.Report(**{**report, "major": 2}),
        "too-many-members": peer_pb.Report(**report, member_of=[peer_pb.Member(member=1)] * 258),
        "turn-twice": peer_pb.Order(
            major=1, kind=1, term=1, mark=[0, 1, 1],
            plan=[peer_pb.OrderPlan(track=track, open=True, unit=1, turn=5) for track in (1, 2)]),
        "ready-before-go": peer_pb.Report(**report, seq=[2], ready=[3], go=[4]),
        "secret-too-short": peer_pb.Order(
            major=1, kind=NEWGEN, to=1, term=1, generation_number=1, comm_number=1, set=b"\x02", world=1,
            secret=bytes(31)),
        "secret-of-another-order": peer_pb.Order(major=1, kind=1, term=1, secret=bytes(range(32))),
        "set-too-long": peer_pb.Report(**report, set=bytes(512) + b"\x01"),
    }
    write("peer", "empty", b"")
    for name, message in bad.items():
        write("peer", name, message.SerializeToString())


def config():
    full = """# every kind of value
[daemon]
device = cpu:left
socket = /run/gradsync/left/socket
socket_group = users
socket_mode = 0600
metrics_socket = /run/gradsync/left/metrics
metrics_mode = 0660
admin_group = wheel
allow_nobody = yes
workers = 2
affinity = 0-1
log_level = debug
drain_timeout = 1.5s
handshake_timeout = 500ms
step_deadline = 2min
stall_notice = 1
staging_bytes = 1M

[limits]
clients_per_uid = 10
connects_per_uid = 20
jobs_per_uid = 3
arenas_per_uid = 7
fds_per_uid = 9
bytes_per_uid = 1G

[cluster]
coordinator = head:7700
listen = eth0:7700, unix:/run/gradsync/link
key_file = /etc/gradsync/key
insecure_no_auth = no
handshakes = 200
handshakes_per_address = 20
host_id = rack3-7
data_address = ib0
heartbeat = 500ms
patience = 2s
death = 5s
abandon = 30s
"""
    texts = {
        "full": full, "empty": "", "comment": "; nothing\n# at all\n", "no-newline": "[daemon]\nworkers = 1",
        "windows": "[daemon]\r\nworkers = 1\r\n", "bom": "\ufeff[daemon]\nworkers = 1\n", "colon": "[daemon]\nworkers: 1\n",
        "unknown-key": "[daemon]\nworker = 1\n", "unknown-section": "[demon]\nworkers = 1\n", "no-section": "workers = 1\n",
        "no-value": "[daemon]\nworkers\n", "open-section": "[daemon\nworkers = 1\n", "twice": "[daemon]\nworkers = 1\nworkers = 2\n",
        "indented": "[daemon]\n  workers = 1\n   2\n", "too-large": "[daemon]\nworkers = 99999999999999999999\n",
        "long-line": "[daemon]\nsocket = /" + "x" * 300 + "\n", "nul": "[daemon]\nworkers = 1\x00\n", "time": "[daemon]\nstep_deadline = 1h\n",
        "affinity": "[daemon]\naffinity = 0-3,5,7-\n", "comment-behind": "[daemon]\nworkers = 1 ; all\n",
    }
    for name, text in texts.items():
        write("config", name, text.encode())


if __name__ == "__main__":
    frame()
    codec()
    names()
    peer()
    post()
    link()
    http()
    config()
