# SPDX-License-Identifier: Apache-2.0
"""
The benchmark's driver; run.sh builds what it needs and starts it. Only Python's own library is used.

A contender is a set of processes that live as long as their number of members is measured and sleep while others are.
Within a round each contender runs one batch, then the next one its own: what disturbs the machine disturbs them all.
"""

import json
import os
import sys

import driver
import hostile
import report
import stalls
import tables
from peers import Bench
from report import progress

TABLES = ["allreduce", "computing", "buckets", "recovery", "hostile"]
LOAD_MOST = 0.5


def arguments():
    parser = driver.parser_of("run.sh", "Measures gradsync beside Gloo, Open MPI and what memory allows.")
    parser.add_argument("--only", choices=TABLES, action="append", help="only this table; may be repeated")
    parser.add_argument("--members", type=int, choices=tables.MEMBERS, action="append", help="only this many members")
    parser.add_argument("--bytes", type=int, choices=tables.SIZES, action="append", help="only this size of allreduce and hostile")
    parser.add_argument("--save", metavar="NAME", help="also write NAME.json and NAME.txt")
    return parser.parse_args()


def rows_of(options, directory):
    bench = Bench(options.build, directory, options.quick, progress)
    options.workers = bench.workers
    wanted = options.only or TABLES
    members = options.members or tables.MEMBERS
    try:
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
    finally:
        bench.stop()


def save(name, rows, text):
    with open(name + ".json", "w", encoding="utf-8") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    with open(name + ".txt", "w", encoding="utf-8") as f:
        f.write(text)


def main():
    options, load = arguments(), os.getloadavg()[0]
    if load > LOAD_MOST:
        print(f"the machine is not idle (load {load:.1f}): the figures will say more about that than about "
              "anybody here", file=sys.stderr)
    status, rows, text = driver.run(options, rows_of, lambda rows, load: report.heading(options.workers, load)
                                    + report.text(rows))
    if options.save and status == 0:
        save(options.save, rows, text)
    return status


if __name__ == "__main__":
    sys.exit(main())
