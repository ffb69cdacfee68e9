# SPDX-License-Identifier: Apache-2.0
"""Attacks over the network: by strangers, by holders of a key for their own uid, and by users of one daemon
of a cluster. The probe's job is on two other daemons of it."""
import contextlib
import io
import itertools
import os
import pathlib
import random
import secrets
import socket
import struct
import threading
import time

import harness
import linkpeer
from attack import PATIENCE_S, Attack
from clusters import HELPER, cluster_text, write_key
from linkpeer import PLACE, OverTls, arrival, frame, hello
from octets import HEADER
from rig import AS_INSTALLED, FIRST_UID, Counted
from strangers import HELLO as CLIENT_HELLO
from strangers import Crowd
from wire import generate

HOST = "127.0.0.1"
RESTART_S = 10                          # between two of the coordinator
HEARD_S = 0.05                          # a stranger waits so long for an answer
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
LISTENS = "0A"                          # in /proc/net/tcp
HONEST = 20                             # frames of a daemon that lies, between two lies
NUMBERS = [0, 1, 2, 7, 63, 64, 255, 4095, 4096, 65535, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 64) - 1]

peer_pb = generate("daemon/rendezvous/wire", "peer")


class Cluster:
    """A coordinator, a daemon whose users attack, and two daemons with the probe; in place of rig.Server."""

    def __init__(self, build, directory, attack):
        self.memory, self.build, self.directory = Counted(), build, directory
        self.port, self.metrics_port = harness.free_port(), harness.free_port()
        self.limited = ("limited", secrets.token_hex(32))
        self.daemons = []
        main = write_key(directory / "main")
        keys = directory / "keys"
        keys.write_text(main.read_text() + f"{' '.join(self.limited)} uids={FIRST_UID}\n")
        keys.chmod(0o600)
        group = str(self.memory.group.path) if self.memory.group.path else None
        try:
            self.coordinator = self.add("coordinator", keys, device="none", cgroup=group,
                                        listen=f"{HOST}:{self.port}, unix:{directory}/link")
            self.memory.pid = self.coordinator.pid
            to = f"{HOST}:{self.port}"
            helper = self.late_helper() if attack.late else build / HELPER
            metrics = {"metrics_listen": f"{HOST}:{self.metrics_port}"}
            self.nodes = [self.add("node0", main, gloo_helper=helper,
                                   coordinator=f"unix:{directory}/lies" if attack.lies else to),
                          self.add("node1", main, coordinator=to, settings=metrics),
                          self.add("node2", main, coordinator=to)]
            for node in self.nodes[attack.lies:]:
                node.wait_log("knows this gradsyncd as node")
        except BaseException:
            self.destroy()
            raise
        self.socket, self.metrics = self.nodes[0].socket, None
        self.of_probe = [node.socket for node in self.nodes[1:]]

    def add(self, name, keys, device="cpu", cgroup=None, settings=None, **how):
        text = cluster_text(**{"key_file": keys, "gloo_helper": self.build / HELPER, "host_id": name, **how})
        made = harness.Daemon(self.build, self.directory / name, config=text, device=device, cgroup=cgroup,
                              settings={**AS_INSTALLED, "socket_mode": "0666", **(settings or {})})
        self.daemons.append(made)
        made.start()
        return made

    def late_helper(self):
        """A helper that starts late: while the others wait for it, their ports are open."""
        program = self.directory / "late"
        program.write_text(f'#!/bin/sh\nsleep 1\nexec {self.build / HELPER} "$@"\n')
        program.chmod(0o755)
        return program

    def restart(self):
        harness.kill(self.coordinator)
        self.coordinator.start()
        self.memory.pid = self.coordinator.pid

    def finish(self):
        """Raises AssertionError if a daemon does not end as it should."""
        try:
            for daemon in reversed(self.daemons):
                daemon.finish()
        finally:
            self.destroy()

    def destroy(self):
        for daemon in self.daemons:
            daemon.destroy()
        self.memory.close()


class Network(Attack):
    """An attack on a cluster."""

    server_kind = Cluster
    lies = False                        # it stands between the first daemon and the coordinator
    late = False                        # the first daemon's process of Gloo comes late

    def __init__(self, server, number, seconds):
        super().__init__(server, number, seconds)
        self.server = server
        self.random = random.Random(f"{os.environ['GRADSYNC_TEST_SEED']}/{self.name}/{number}")
        self.serial = 0

    def source(self):
        """The next of 250 addresses of this process."""
        self.serial += 1
        return f"127.0.{20 + self.number}.{1 + self.serial % 250}"

    def link(self):
        """A connection with the key for its uid."""
        made = OverTls(self.server.port, self.server.limited, self.source())
        self.stack.callback(made.close)
        made.sock.settimeout(PATIENCE_S)
        return made

    def connect(self, port):
        sock = self.adopt(socket.create_connection((HOST, port), PATIENCE_S, (self.source(), 0)))
        sock.settimeout(HEARD_S)
        return sock

    def start(self, job, sockets, **env):
        """Starts the members of a job of its own, one on each of these daemons."""
        members = []
        for rank, path in enumerate(sockets):
            members.append(harness.Program(
                self.server.build / "tests/attacks/attack_probe", 4096, socket=path,
                env={"GRADSYNC_JOB": job, "GRADSYNC_RANK": rank, "GRADSYNC_WORLD_SIZE": len(sockets),
                     "GRADSYNC_REJOIN_GRACE": "0", **env}))
            self.stack.callback(members[-1].destroy)
        return members

    def began(self, members):
        """Whether these members take steps."""
        try:
            return all(member.line(PATIENCE_S) == "began" for member in members)
        except AssertionError:
            return False


class Restarts(Network, name="restarts-beside-stopped"):
    """A user starts a job again and again under the name of one of which a process is stopped; root restarts
    the coordinator meanwhile."""

    proof = ("lives", "restarts")

    @staticmethod
    def beside(server, counts):
        """Restarts the coordinator, but not so often that steps wait for it."""
        if time.monotonic() - counts["restarted_at"] > RESTART_S:
            server.restart()
            counts["restarts"] += 1
            counts["restarted_at"] = time.monotonic()

    def round(self):
        for _ in range(4):
            members = self.start("again", [self.socket] * 2)
            if self.began(members):
                self.counts["lives"] += 1
                members[0].stop()
            members[1].kill()


class NodeIds(Network, name="node-ids"):
    """A daemon with a key for its own uid comes with another node id each time."""

    processes = 4
    proof = ("placed",)

    def round(self):
        link = self.link()
        link.send(hello(node=os.urandom(16)))
        link.send(arrival(host=f"host{self.number}-{self.serial}"))
        with contextlib.suppress(AssertionError):       # hung up
            link.hello()
            self.counts["placed"] += link.frame()[0] == PLACE


class Strangers(Network, name="strangers"):
    """600 connections at a time from 119 addresses: silent ones, half and whole greetings of TLS, garbage."""

    kinds = {"silent": 120, "half": 120, "slow": 120, "hello": 120, "garbage": 120}
    proof = ("connections",)

    def round(self):
        crowd = Crowd((HOST, self.server.port), [f"127.0.5.{i}" for i in range(1, 120)])
        with contextlib.redirect_stdout(io.StringIO()):
            crowd.run(self.kinds, self.end)
        self.counts.update(crowd.told)


class Churn(Strangers, name="strangers-churn"):
    """300 connections at a time from 119 addresses, which leave at once."""

    kinds = {"churn": 300}


class Greetings(Network, name="tls-garbage"):
    """Greetings of TLS that are changed, cut, or far too long."""

    proof = ("sent",)

    def greeting(self):
        data, pick = bytearray(CLIENT_HELLO), self.random.random()
        for _ in range(self.random.choice([0, 1, 3, 20])):
            data[self.random.randrange(len(data))] = self.random.randrange(256)
        if pick < 0.2:
            del data[self.random.randrange(len(data)):]
        elif pick < 0.3:
            data += self.random.randbytes(self.random.choice([10, 1000, 20000]))
        elif pick < 0.4:
            data = b"\x16\x03\x03\xff\xff" + bytes(70000)
        return bytes(data)

    def round(self):
        sock = self.connect(self.server.port)
        sock.sendall(self.greeting())
        self.counts["sent"] += 1
        if self.random.random() < 0.3:
            sock.recv(100)


class Frames(Network, name="frames-of-a-key"):
    """A daemon with a key for the uid of its own sends frames of all kinds, of right and wrong sizes and
    contents."""

    processes = 2
    proof = ("frames",)

    def payload(self):
        pick = self.random.randrange(4)
        if pick == 0:
            return self.random.randbytes(self.random.choice([0, 1, 30, 900, 60000]))
        if pick == 1:
            return linkpeer.post.Attach(uid=self.random.choice([0, FIRST_UID, (1 << 32) - 1]),
                                        incarnation=self.random.choice([0, (1 << 64) - 1]),
                                        job=self.random.choice(["probe", "x1", "", "a/b", "x" * 400]),
                                        token=self.random.choice([b"", bytes(32), b"y"])).SerializeToString()
        if pick == 2:
            return linkpeer.post.Letter(node=self.random.choice([0, 1, 4096, *range((1 << 32) - 3, 1 << 32)]),
                                        frames=self.random.randbytes(40)).SerializeToString()
        return lied(self.random, peer_pb.Report(major=1, kind=1, stamp=1)).SerializeToString()

    def round(self):
        link = self.link()
        link.send(self.random.choice([hello(), hello(role=2), hello(node=b"x"), hello(major=9),
                                      hello(host="x" * 900), hello(instance=(1 << 64) - 1), b""]))
        link.send(arrival(address=self.random.choice([0, 1, 4095, 4096, (1 << 32) - 1]), has_address=True))
        for _ in range(self.random.choice([1, 5, 50])):
            wrong = self.random.choice([{}, {}, {}, {"flags": 255}, {"fds": 1}, {"length": (1 << 32) - 1}])
            link.send(frame(self.random.choice([*range(5), *range(60, 80), 255, 65535]), self.payload(),
                            about=self.random.choice([0, 1, 2, self.random.randrange(1 << 32)]), **wrong))
            self.counts["frames"] += 1


class Metrics(Network, name="metrics-network"):
    """Callers of metrics_listen from 250 addresses ask, ask by half, do not read, or say nothing."""

    processes = 2
    proof = ("callers",)

    def round(self):
        for _ in range(100):
            sock = self.connect(self.server.metrics_port)
            sock.sendall(self.random.choice([REQUEST, REQUEST[:-5], b"", REQUEST * 2, os.urandom(300),
                                             REQUEST[:-2] + b"A: " + bytes(100000)]))
            self.counts["callers"] += 1
            if self.random.random() < 0.2:
                sock.recv(65536)


def lied(chance, message):
    """The message with one field changed, on any level."""
    field = chance.choice(message.DESCRIPTOR.fields)
    value = getattr(message, field.name)
    with contextlib.suppress(ValueError, TypeError):        # a number that it cannot hold
        if field.label == field.LABEL_REPEATED:
            if len(value) and chance.random() < 0.3:
                del value[chance.randrange(len(value))]
            elif field.message_type:
                lied(chance, chance.choice(value) if len(value) else value.add())
            else:
                value.append(chance.choice(NUMBERS))
        elif field.message_type:
            lied(chance, value)
        elif field.type == field.TYPE_BYTES:
            setattr(message, field.name, chance.randbytes(chance.choice([0, 1, 8, 64, 512])))
        elif field.type == field.TYPE_STRING:
            setattr(message, field.name, chance.choice(["", "x", "probe", "a" * 300]))
        else:
            near = value + chance.choice([-2, -1, 1, 2])
            setattr(message, field.name, chance.choice([near, chance.choice(NUMBERS)]))
    return message


class Liar(Network, name="lying-daemon"):
    """Messages about jobs between a daemon and its coordinator are changed, repeated, dropped, or delayed."""

    uid = 0                             # between root's daemons
    lies = True
    proof = ("changed", "lives")
    types = {linkpeer.ARRIVAL: linkpeer.post.Arrival, linkpeer.PLACE: linkpeer.post.Place,
             linkpeer.ATTACH: linkpeer.post.Attach, linkpeer.ORDER: peer_pb.Order,
             linkpeer.REPORT: peer_pb.Report, linkpeer.REFUSED: linkpeer.post.Refused,
             linkpeer.TABLE: linkpeer.post.Table, linkpeer.LETTER: linkpeer.post.Letter}

    def prepare(self):
        self.old, self.said = [], itertools.count(1)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self.server.directory}/lies")
        listener.listen(8)
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            node, coordinator = listener.accept()[0], socket.socket(socket.AF_UNIX)
            coordinator.connect(f"{self.server.directory}/link")
            for way in ((node, coordinator), (coordinator, node)):
                threading.Thread(target=self.pass_on, args=way, daemon=True).start()

    def pass_on(self, start, end):
        with contextlib.suppress(OSError), start.makefile("rb") as stream:
            while len(head := stream.read(HEADER.size)) == HEADER.size:
                _, _, _, kind, _, length, about = HEADER.unpack(head)
                for said in self.instead((kind, about, stream.read(length))):
                    end.sendall(frame(said[0], said[2], about=said[1]))
        for sock in (start, end):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def instead(self, said):
        kind, about, payload = said
        self.old = [*self.old[-200:], said]
        if kind not in self.types or next(self.said) % HONEST != 0:
            return [said]
        self.counts["changed"] += 1
        message = self.types[kind]()
        message.ParseFromString(payload)
        lie = (kind, about, lied(self.random, message).SerializeToString())
        return self.random.choice([[lie], [lie], [said] * 2, [], [said, self.random.choice(self.old)],
                                   [(kind, about + 1, payload)]])

    def over(self):
        return super().over() and all(self.counts[what] for what in self.proof)

    def round(self):
        members = self.start(f"of{self.serial % 3}", [self.socket, self.server.of_probe[0]],
                             GRADSYNC_RECONNECT_TIMEOUT="2")
        self.serial += 1
        self.counts["lives"] += self.began(members)


class Gloo(Network, name="gloo-stranger"):
    """A stranger is the first to connect to ports of Gloo when a user's job begins, and sends messages of
    Gloo without end."""

    late = True
    proof = ("ports",)

    def ports(self):
        """The sockets that listen, as /proc/net/tcp writes them: "address:port"."""
        rows = pathlib.Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]
        return {row.split()[1] for row in rows if row.split()[3] == LISTENS}

    def attack(self, at):
        address, port = (int(part, 16) for part in at.split(":"))
        with contextlib.suppress(OSError), socket.create_connection(
                (socket.inet_ntoa(struct.pack("<I", address)), port), 1) as sock:
            self.counts["ports"] += 1
            while not self.over():
                self.serial += 1000
                sock.sendall(b"".join(struct.pack("<6Q", 48, 2, self.serial + i, 0, 1, 0)
                                      for i in range(1000)))

    def round(self):
        known = self.ports()
        self.start(f"of{self.counts['rounds']}", [self.socket, self.server.of_probe[0]])
        end = time.monotonic() + 2
        while time.monotonic() < end:
            for at in self.ports() - known:
                known.add(at)
                threading.Thread(target=self.attack, args=(at,), daemon=True).start()
        self.counts["bytes"] = 48 * self.serial
