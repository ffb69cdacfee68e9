# SPDX-License-Identifier: Apache-2.0
"""
Network namespaces that stand for hosts, each with an interface of its own, and what joins them: a bridge, or
a router.

A router can do what networks do: lose packets and reset connections (nftables), and take its time, or lose
some packets only (forwarder.py, which they are sent through).
"""
import contextlib
import itertools
import json
import pathlib
import secrets
import subprocess
import sys

FORWARDER = pathlib.Path(__file__).with_name("forwarder.py")
TUN = "slow"                # the forwarder's interface, and its routes
MARK, TABLE = 1, 100
BOTH = ("in", "out")
DROP, RESET = "drop", "reject with tcp reset"


def ip(*arguments):
    subprocess.run(["ip", *map(str, arguments)], check=True, capture_output=True)


class Hosts:
    """`n` namespaces on a bridge; host i has the address 10.78.0.i+1 on its interface eth0."""

    def __init__(self, n):
        name = f"gs{secrets.token_hex(4)}"
        self.names = [f"{name}h{i}" for i in range(n)]
        self.middle = f"{name}m"                # the namespace between them
        self.made = []
        try:
            self.build()
        except BaseException:
            self.close()
            raise

    def build(self):
        self.add(self.middle)
        self.begin()
        for i, name in enumerate(self.names):
            self.add(name)
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"p{i}", "netns",
               self.middle)
            ip("-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            self.join(i)

    def add(self, name):
        ip("netns", "add", name)
        self.made.append(name)
        ip("-n", name, "link", "set", "lo", "up")

    def begin(self):
        """Makes the bridge that joins the hosts, before they are there."""
        ip("-n", self.middle, "link", "add", "br0", "type", "bridge")
        ip("-n", self.middle, "link", "set", "br0", "up")

    def join(self, i):
        ip("-n", self.middle, "link", "set", f"p{i}", "master", "br0", "up")

    def address(self, i):
        return f"10.78.0.{i + 1}"

    def inside(self, i):
        """The words before a command that runs on that host."""
        return ("ip", "netns", "exec", self.names[i])

    def plug(self, i, up):
        """The cable of that host."""
        ip("-n", self.middle, "link", "set", f"p{i}", "up" if up else "down")

    def close(self):
        for name in self.made:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class Rules:
    """Rules of a router for the packets of one host."""

    def __init__(self, router, table):
        self.router, self.table = router, table

    def hits(self):
        """Packets that it was done to."""
        made = self.router.in_middle("nft", "-j", "list", "table", "inet", self.table)
        rules = [entry["rule"]["expr"] for entry in json.loads(made.stdout)["nftables"] if "rule" in entry]
        return sum(part["counter"]["packets"] for parts in rules for part in parts if "counter" in part)


class Routed(Hosts):
    """Each host in a network of its own, with the address 10.78.i.1; a router is in all of them.

    The rules are about the packets of one host, on the way `in`, to the host, or `out`, or both; about all
    of them, or `only` about those between daemons and the coordinator ("control", by its port), or about the
    others ("data").
    """

    port = 7700             # of the coordinator

    def begin(self):
        self.count = itertools.count()
        self.in_middle("sh", "-c", "cd /proc/sys/net/ipv4 && echo 1 >ip_forward &&"
                       "echo 0 >conf/all/rp_filter && echo 0 >conf/default/rp_filter")

    def join(self, i):
        ip("-n", self.middle, "addr", "add", f"10.78.{i}.254/24", "dev", f"p{i}")
        ip("-n", self.middle, "link", "set", f"p{i}", "up")
        ip("-n", self.names[i], "route", "add", "default", "via", f"10.78.{i}.254")

    def address(self, i):
        return f"10.78.{i}.1"

    def in_middle(self, *command, **options):
        return subprocess.run(["ip", "netns", "exec", self.middle, *map(str, command)], check=True,
                              capture_output=True, text=True, **options)

    @contextlib.contextmanager
    def rules(self, host, hook, what, ways, only):
        """`what` happens to these packets meanwhile. (nft makes two comparisons with != of ports in one rule
        one of both ports together, which is another one.)"""
        ports = [f"tcp {end} {self.port}" for end in ("sport", "dport")]
        address = {"in": "daddr", "out": "saddr"}
        lines = [f"type filter hook {hook}; policy accept;", f"iifname {TUN} accept"]
        lines += [f"{port} accept" for port in ports if only == "data"]
        lines += [f"ip {address[way]} {self.address(host)} {port} counter {what}" for way in ways
                  for port in (ports if only == "control" else [""])]
        table = f"fault{next(self.count)}"
        text = f"table inet {table} {{\nchain those {{\n" + "\n".join(lines) + "\n}\n}\n"
        self.in_middle("nft", "-f", "-", input=text)
        try:
            yield Rules(self, table)
        finally:
            self.in_middle("nft", "delete", "table", "inet", table)

    def filtered(self, host, verdict, ways=BOTH, only=None):
        """Packets are lost (DROP), or refused (RESET): their sender's connection ends."""
        return self.rules(host, "forward priority 0", verdict, ways, only)

    @contextlib.contextmanager
    def slow(self, host, seconds, ways=BOTH, only=None, lost=0.0, seed=1):
        """Packets take so much longer, and that share of them is lost; of one host at a time."""
        command = [sys.executable, "-B", FORWARDER, TUN, 1000 * seconds, lost, seed]
        command = ["ip", "netns", "exec", self.middle, *map(str, command)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as forwarder:
            try:
                assert forwarder.stdout.readline() == b"ready\n", "the forwarder has ended"
                ip("-n", self.middle, "link", "set", TUN, "txqueuelen", 10000, "up")
                ip("-n", self.middle, "route", "add", "default", "dev", TUN, "table", TABLE)
                ip("-n", self.middle, "rule", "add", "fwmark", MARK, "lookup", TABLE)
                marked = f"meta mark set {MARK}"
                with self.rules(host, "prerouting priority mangle", marked, ways, only) as made:
                    yield made
                ip("-n", self.middle, "rule", "del", "fwmark", MARK, "lookup", TABLE)
            finally:
                forwarder.stdin.close()
                assert forwarder.wait(30) == 0
