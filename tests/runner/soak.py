# SPDX-License-Identifier: Apache-2.0
"""The unit and integration tests of the first tier, again and again, beside busy loops and in random order.
Called by tests/soak.sh."""
import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import time

import steps
import suites

TOGETHER = 30                   # unit tests that are started at once


@contextlib.contextmanager
def busy(count):
    loops = [subprocess.Popen([steps.PYTHON, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def a_round(run, order):
    listed = subprocess.run(["meson", "test", "-C", steps.OUT / "gcc", "--list"], check=True,
                            capture_output=True, text=True).stdout.splitlines()
    names = [line.rpartition(" / ")[2] for line in listed if " / " in line]
    order.shuffle(names)
    good = [run.unit("unit", "gcc", *names[i:i + TOGETHER]) for i in range(0, len(names), TOGETHER)]
    good += [run.pytest("integration", "gcc", *suites.QUICK, "--shuffle", str(order.randrange(2 ** 32)),
                        *suites.integration())]
    return all(good)


def main():
    parser = argparse.ArgumentParser(prog="tests/soak.sh", description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=30, help="default: 30")
    parser.add_argument("--busy", type=int, default=2, metavar="N", help="busy loops (default: 2)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the orders (default: fresh)")
    options = parser.parse_args()
    os.chdir(steps.TREE)
    print(f"{options.rounds} rounds beside {options.busy} busy loops, --seed {options.seed}")
    run, began, failed = steps.Run(os.cpu_count(), 0, retries=False), time.monotonic(), []
    if not run.build("gcc"):
        return 1
    with busy(options.busy):
        for i in range(1, options.rounds + 1):
            run.at = f"[{i:2}/{options.rounds}]"
            if not a_round(run, random.Random(options.seed + i)):
                failed.append(i)
                shutil.copytree(steps.OUT, steps.TREE / f"build-test/soak-{i}", ignore=lambda folder, names: [
                    name for name in names if not name.endswith((".log", ".xml"))])
    print(f"rounds with a failure: {failed or 'none'} of {options.rounds}")
    return 0 if run.end(began) else 1


if __name__ == "__main__":
    sys.exit(main())
