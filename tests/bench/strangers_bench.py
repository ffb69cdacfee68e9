# SPDX-License-Identifier: Apache-2.0
"""
A step over two hosts while strangers flood the port on which the coordinator listens, from four addresses
of a third host, in all ways that tests/integration/strangers.py knows; and the same step while a process
uses as much of a processor as the strangers' process does, without any connection.
"""

import os
import shutil
import statistics
import sys

import driver
from hostile import Neighbour, in_trouble     # before cluster_bench, after which another one comes first
from cluster_bench import PORT, Cluster
from peers import KIB, MIB, processors, thread_times
from report import heading, progress, size_name, table, time_name, times_name

from namespaces import ip  # on the path because of cluster_bench

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration", "strangers.py")
KINDS = ["silent=80", "half=40", "slow=20", "hello=30", "garbage=30", "churn=10"]
SOURCES = [f"10.78.0.{100 + i}" for i in range(4)]
SIZES = [4 * KIB, 25 * MIB]
BUFFERS = 2
TURN_US = 1500000           # of a turn, undisturbed


def arguments():
    parser = driver.parser_of("strangers.sh", "Measures steps beside a flood of strangers.")
    parser.add_argument("--bytes", type=int, action="append", help="only this size")
    parser.add_argument("--limit", type=float, help="the ratio beyond which this fails")
    return parser.parse_args()


class Attacked(Cluster):
    """Two hosts with daemons, and a third one with strangers."""

    def __init__(self, build, directory):
        super().__init__(build, directory, 2, 1)
        for source in SOURCES:
            ip("-n", self.network.names[2], "addr", "add", f"{source}/24", "dev", "eth0")

    def strangers(self):
        sources = [argument for source in SOURCES for argument in ("--from", source)]
        return Neighbour([SCRIPT, *sources, self.network.address(0), str(PORT), *KINDS],
                         self.network.inside(2))

    def coordinator_s(self):
        """CPU seconds of the coordinator's event thread, and of its door."""
        pid = self.daemons[0].pid
        times = thread_times(pid)
        door = sum(spent for tid, spent in times.items() if self.daemons[0].thread_name(tid) == "gs-door")
        return times[pid] / 1e9, door / 1e9


def step_us(contender, turn):
    return statistics.median(contender.run(turn)[BUFFERS:])


def measure(cluster, contender, size, quick):
    rounds, say = (3 if quick else 9), lambda text: progress(f"{size} bytes: {text}")
    contender.command(f"prepare {size} {BUFFERS} {25 if size >= MIB else 1} 0 0")
    step_us(contender, BUFFERS + 5)
    turn = BUFFERS + max(10, int(TURN_US / step_us(contender, BUFFERS + 10)))
    found, disturbed = in_trouble(rounds, say, lambda: step_us(contender, turn), cluster.strangers,
                                  cluster.coordinator_s)
    contender.release()
    median, told = statistics.median, found["told"]
    loop, door = ([spent[which] / t["wall_s"] for spent, t in zip(found["cpu_s"], told)] for which in (0, 1))
    alone, beside, burning = (median(found[each]) for each in ("alone", "beside", "burning"))
    return {"table": "strangers", "hosts": 2, "bytes": size, "step_alone_us": round(alone, 1),
            "step_burning_us": round(burning, 1), "step_strangers_us": round(beside, 1),
            "strangers_over_burning": round(beside / burning, 2),
            "strangers_cpu_share": round(median(t["cpu_s"] / t["wall_s"] for t in told), 2),
            "loop_cpu_share": round(median(loop), 2), "door_cpu_share": round(median(door), 2),
            "connections_per_s": round(median(t["connections"] / t["wall_s"] for t in told)),
            "iterations": turn * rounds, "rounds": rounds, "disturbed_rounds": disturbed}


def rows_of(options, directory):
    cluster = Attacked(options.build, directory)
    try:
        contender = cluster.gradsync(1)
        try:
            for size in options.bytes or SIZES:
                yield measure(cluster, contender, size, options.quick)
        finally:
            contender.stop()
    finally:
        cluster.stop()


def text_of(rows, load):
    body = [[size_name(r["bytes"]), time_name(r["step_alone_us"]), time_name(r["step_burning_us"]),
             time_name(r["step_strangers_us"]), times_name(r["strangers_over_burning"]),
             f"{r['strangers_cpu_share'] * 100:.0f} %", f"{r['loop_cpu_share'] * 100:.0f} %",
             f"{r['door_cpu_share'] * 100:.0f} %", r["connections_per_s"]] for r in rows]
    head = ["size", "step alone", "beside burning", "beside strangers", "ratio", "their CPU", "event thread",
            "door", "connections a second"]
    return heading(processors(), load) + table(head, body) + "\n"


def main():
    options = arguments()
    if os.geteuid() != 0 or not shutil.which("ip"):
        print("strangers.sh needs root and ip(8): hosts are network namespaces", file=sys.stderr)
        return 1
    status, rows, _ = driver.run(options, rows_of, text_of)
    worst = max((row["strangers_over_burning"] for row in rows), default=0)
    if status == 0 and options.limit and worst > options.limit:
        print(f"failed: {worst}× is more than {options.limit}×", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
