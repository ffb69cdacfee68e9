# SPDX-License-Identifier: Apache-2.0
"""
The benchmark's driver; run.sh builds what it needs and starts it. Only Python's own library is used.

A contender is a set of processes that live as long as their number of members is measured and sleep while others are.
Within a round each contender runs one batch, then the next one its own: what disturbs the machine disturbs them all.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile

import hostile
import report
import stalls
import tables
from contender import Failed
from peers import Bench
from report import progress

TABLES = ["allreduce", "computing", "buckets", "recovery", "hostile"]
LOAD_MOST = 0.5


def arguments():
    parser = argparse.ArgumentParser(prog="run.sh", description="Measures gradsync beside Gloo, Open MPI and what memory allows.")
    parser.add_argument("--build", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print only the rows, one JSON object a line")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: to see whether it works, not for figures")
    parser.add_argument("--only", choices=TABLES, action="append", help="only this table; may be repeated")
    parser.add_argument("--members", type=int, choices=tables.MEMBERS, action="append", help="only this many members")
    parser.add_argument("--bytes", type=int, choices=tables.SIZES, action="append", help="only this size of allreduce and hostile")
    parser.add_argument("--save", metavar="NAME", help="also write NAME.json and NAME.txt")
    return parser.parse_args()


def rows_of(bench, options):
    wanted = options.only or TABLES
    members = options.members or tables.MEMBERS
    if "allreduce" in wanted:
        yield from tables.allreduce(bench, members, options.bytes or tables.SIZES)
    if "computing" in wanted:
        yield from tables.computing(bench, members)
    if "buckets" in wanted:
        yield tables.small_buckets(bench)
    if "recovery" in wanted:
        yield from tables.recovery(bench, members)
        yield from stalls.stalls(bench, members)
    if "hostile" in wanted:
        yield from hostile.hostile(bench, members, options.bytes)


def save(name, rows, text):
    with open(name + ".json", "w", encoding="utf-8") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    with open(name + ".txt", "w", encoding="utf-8") as f:
        f.write(text)


def measure(options):
    rows, load = [], os.getloadavg()[0]
    if load > LOAD_MOST:
        print(f"the machine is not idle (load {load:.1f}): the figures will say more about that than about anybody here",
              file=sys.stderr)
    directory = tempfile.mkdtemp(prefix="gradsync-bench.")
    try:
        bench = Bench(options.build, directory, options.quick, progress)
        try:
            for row in rows_of(bench, options):
                rows.append(row)
                if options.json:
                    print(json.dumps(row), flush=True)
            return rows, report.heading(bench.workers, load) + report.text(rows)
        finally:
            bench.stop()
            progress("")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)       # also when told to stop, leave nothing behind
    sys.stdout.reconfigure(encoding="utf-8")
    try:
        rows, text = measure(options)
    except Failed as e:
        print(f"\nfailed: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if not options.json:
        print(text, end="")
    if options.save:
        save(options.save, rows, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
