# SPDX-License-Identifier: Apache-2.0
"""
A step over several hosts, which are network namespaces of this machine with a daemon in each, joined by a
bridge.

Beside it, in the same namespaces, by turns: plain Gloo, flat over as many processes, at the fastest of its
settings; and `tcp_limit`, in which each host sends to the next as many bytes as a ring of hosts has to while
it receives as many. The link is shaped by a token bucket at each host's interface (1gbit), or not at all.
"""

import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile

import driver
from contender import Contender, Failed, Field
from peers import KIB, MIB, Daemon, Gloo, Quiet, idle_share, processors
from report import heading, progress, size_name, table, time_name, times_name
from tables import in_turns, ratio

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from namespaces import Hosts  # noqa: E402

LINKS = {"1gbit": ["tbf", "rate", "1gbit", "burst", "256kb", "latency", "50ms"], "unshaped": None}
HOSTS, MEMBERS, SIZES = [2, 4], [1, 2], [4 * KIB, 25 * MIB]
PORT = 7700
BUFFERS = 2
MUCH = 0.85         # of the network's or the processors' time: then that is what limits


def arguments():
    parser = driver.parser_of("cluster.sh", "Measures steps over several hosts beside Gloo and TCP.")
    parser.add_argument("--hosts", type=int, action="append", help="only this many hosts; may be repeated")
    parser.add_argument("--members", type=int, action="append", help="only this many members a host")
    parser.add_argument("--bytes", type=int, action="append", help="only this size")
    parser.add_argument("--link", choices=LINKS, action="append", help="only this link")
    return parser.parse_args()


class Network(Hosts):
    """Hosts whose interfaces can be shaped."""

    def shape(self, link):
        for i in range(len(self.names)):
            subprocess.run([*self.inside(i), "tc", "qdisc", "del", "dev", "eth0", "root"], check=False,
                           capture_output=True)
            if LINKS[link]:
                command = [*self.inside(i), "tc", "qdisc", "add", "dev", "eth0", "root", *LINKS[link]]
                done = subprocess.run(command, check=False, capture_output=True, text=True)
                if done.returncode != 0:
                    raise Failed(f"the link cannot be shaped: {done.stderr.strip()}")


class Cluster:
    """A network, a daemon on each host, the first of which coordinates; and who is measured there. The
    `others` have no daemon."""

    def __init__(self, build, directory, hosts, others=0):
        self.build, self.directory, self.hosts = build, directory, hosts
        self.network, self.daemons, self.serial = Network(hosts + others), [], 0
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def start(self):
        key = os.path.join(self.directory, "key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as f:
            f.write(f"bench {secrets.token_hex(32)}\n")
        for i in range(self.hosts):
            where = f"coordinator = {self.network.address(0)}:{PORT}"
            if i == 0:
                where = f"coordinator = self\nlisten = eth0:{PORT}"
            text = (f"[cluster]\n{where}\nkey_file = {key}\nhost_id = host{i}\n"
                    f"gloo_helper = {self.build}/daemon/engine/gloo/gradsync-gloo\n")
            self.daemons.append(Daemon(self.build, self.directory, f"host{i}", text, self.network.inside(i)))

    def stop(self):
        for daemon in self.daemons:
            daemon.stop()
        self.network.close()

    def program(self, name):
        return os.path.join(self.build, "tests/bench", name)

    def contender(self, name, per_host, command):
        """`command(host, rank, line, gate)` is what runs there."""
        world = self.hosts * per_host
        return Contender(name, world, lambda line, gate: [
            [*self.network.inside(rank // per_host), *command(rank // per_host, rank, line, gate)]
            for rank in range(world)], self.directory)

    def gradsync(self, per_host):
        self.serial += 1
        job = [f"GRADSYNC_JOB=cluster-{self.serial}", f"GRADSYNC_WORLD_SIZE={self.hosts * per_host}"]
        return self.contender("gradsync", per_host, lambda host, rank, line, gate: [
            "env", *job, f"GRADSYNC_SOCKET={self.daemons[host].socket}", f"GRADSYNC_RANK={rank}",
            self.program("bench_member"), line, gate, "gradsync"])

    def ring(self):
        return self.contender("ring", 1, lambda host, rank, line, gate: [
            self.program("bench_ring"), line, gate, "ring", str(rank), str(self.hosts),
            self.network.address(host), self.network.address((host + 1) % self.hosts)])

    def gloo(self, members):
        self.serial += 1
        store = os.path.join(self.directory, f"store.{self.serial}")
        os.mkdir(store)
        return self.contender("gloo", members // self.hosts, lambda host, rank, line, gate: [
            self.program("bench_gloo"), line, gate, "gloo", str(rank), str(members), store,
            self.network.address(host)])


def limited_by(used, share):
    """Processors come first: without a limit of its own, the network takes no more than they give."""
    if used >= MUCH:
        return "cpu"
    return "link" if share >= MUCH else "latency"


class ClusterField(Field):
    """All contenders with one number of members a host."""

    def __init__(self, cluster, per_host, quick):
        self.cluster, self.per_host, self.quick = cluster, per_host, quick
        super().__init__()

    def begin(self):
        self.gradsync = self.add(self.cluster.gradsync(self.per_host))
        self.gloo = self.add(Gloo(self.cluster, self.cluster.hosts * self.per_host))
        self.ring = self.add(self.cluster.ring())

    def step(self, turn, used):
        """gradsync's turn; `used` is told how busy the processors were."""
        idle, times = idle_share(lambda: self.gradsync.run(turn))
        used.append(1 - idle)
        return times

    def measure(self, size, link):
        hosts = self.cluster.hosts
        batch, rounds = (60 if size < MIB else 5), (3 if self.quick else 9)
        say = lambda text: progress(f"{hosts} hosts of {self.per_host}, {size} bytes, {link}: {text}")
        say("preparing")
        self.cluster.network.shape(link)
        ring_bytes = max(1, size * 2 * (hosts - 1) // hosts)
        self.gradsync.command(f"prepare {size} {BUFFERS} {25 if size >= MIB else 1} 0 0")
        self.gloo.prepare(size, BUFFERS, max(3, batch // 4))
        self.ring.prepare(ring_bytes, 1)
        turn, used = BUFFERS + batch, []
        runs = {"gradsync": lambda: self.step(turn, used),
                "gloo": lambda: self.gloo.event[3](turn), "tcp_limit": lambda: self.ring.run(turn)}
        for run in runs.values():
            run()
        quiet = Quiet(say)
        times = in_turns(rounds, runs, BUFFERS, say, quiet)
        self.release()
        median = {name: statistics.median(values) for name, values in times.items()}
        share = median["tcp_limit"] / median["gradsync"]
        return {"table": "cluster", "hosts": hosts, "members_per_host": self.per_host, "bytes": size,
                "link": link, **{f"{name}_us": round(value, 1) for name, value in median.items()},
                "limited_by": limited_by(statistics.median(used), share), "of_tcp_limit": round(share, 2),
                "gloo_over_gradsync": ratio(median["gloo"], median["gradsync"]),
                "busy": round(statistics.median(used), 2), "ring_bytes": ring_bytes,
                "gloo_setting": self.gloo.event[1], "oversubscribed": hosts * self.per_host > processors(),
                "iterations": len(times["gradsync"]), "rounds": rounds, "disturbed_rounds": quiet.disturbed}


def rows_of(options, directory):
    for hosts in options.hosts or HOSTS:
        cluster = Cluster(options.build, tempfile.mkdtemp(dir=directory), hosts)
        try:
            for per_host in options.members or MEMBERS:
                field = ClusterField(cluster, per_host, options.quick)
                try:
                    for link in options.link or LINKS:
                        for size in options.bytes or SIZES:
                            yield field.measure(size, link)
                finally:
                    field.stop()
        finally:
            cluster.stop()


def text_of(rows, load):
    body = [[r["hosts"], f"{r['members_per_host']}{' *' if r['oversubscribed'] else ''}",
             size_name(r["bytes"]), r["link"], time_name(r["gradsync_us"]), time_name(r["gloo_us"]),
             time_name(r["tcp_limit_us"]), times_name(r["of_tcp_limit"]), times_name(r["gloo_over_gradsync"]),
             f"{r['busy'] * 100:.0f} %", r["limited_by"]] for r in rows]
    head = ["hosts", "members a host", "size", "link", "gradsync", "Gloo", "TCP limit", "limit ÷ gs",
            "Gloo ÷ gs", "CPU", "limited by"]
    return heading(processors(), load) + table(head, body) + "\n"


def main():
    options = arguments()
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        print("cluster.sh needs root, ip(8) and tc(8): hosts are network namespaces", file=sys.stderr)
        return 1
    return driver.run(options, rows_of, text_of)[0]


if __name__ == "__main__":
    sys.exit(main())
