# SPDX-License-Identifier: Apache-2.0
"""The cost of the loss of a rank, for a PyTorch training of two ranks on one host: one of them is killed
(kill -9) in the middle of the backward pass of a step. Each rank has one thread.

gradsync        `gradsyncctl run --restart`, gradsync.State
gradsync-spare  the same with a spare: a process that waits for the place of a lost one
torchrun        PyTorch's DistributedDataParallel over Gloo, `torchrun --max-restarts`, a checkpoint each step
torchft         torchft 0.2.0 over its Gloo, min_replicas 1: the other rank goes on alone meanwhile
torchft-all     the same with min_replicas 2: no step without both

All train the same model on the same samples, and each kill is in the same training. A rank commits a step
when its optimiser has made it; rank 0 of torchrun has also saved the checkpoint by then. Times are medians of
all kills, in ms, and count from the kill, except for start_ms and rest_ms:

to_all_ms           until all ranks, the new process among them, have committed the same step
to_all_min_ms, to_all_max_ms
survivor_ms         until the other rank has committed a step, alone or not
survivor_notice_ms  until the other rank knows of it, or is ended
spawn_ms            until the new process exists; the later one if both ranks are new
start_ms            from there until it has imported everything: Python's part
rest_ms             to_all_ms without start_ms: the contender's part
steps_lost          steps that all had committed before and that were computed again, and steps without the
                    samples of one rank; the step in which the kill was is computed again by all contenders

At the end the parameters of both ranks have to be equal. `undisturbed`: they equal those of a training
without a kill, bit by bit; all contenders except torchft have to reach that.
"""
import argparse
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from recovery_contenders import CONTENDERS, HERE, RANKS, VICTIM
from recovery_training import Failed, Loss, Training, medians

#: Steps between two kills. gradsync makes its buckets anew after the first and the tenth step.
SETTLE, SETTLE_QUICK = 12, 3
TIMES = ("to_all_ms", "to_all_min_ms", "to_all_max_ms", "survivor_ms", "survivor_notice_ms", "spawn_ms",
         "start_ms", "rest_ms", "steps_lost")
HEAD = ("contender", "ranks", "params", "kills", *TIMES, "undisturbed", "note")


@functools.cache
def undisturbed(width, steps):
    """The digest of the parameters at the end of a training without a kill."""
    command = [sys.executable, HERE / "recovery_undisturbed.py", width, RANKS, steps]
    told = subprocess.run(list(map(str, command)), env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True,
                          stdout=subprocess.PIPE, text=True)
    return told.stdout.strip()


def check(contender, digests, wanted):
    if len(set(digests)) > 1:
        raise Failed("the parameters of the ranks differ in the end")
    if contender.exact and digests[0] != wanted:
        raise Failed("the parameters are not those of a training in which nobody is killed")


def train(contender, options):
    """The row of a training in which a rank is killed options.kills times."""
    training = Training(contender.path, RANKS, contender.alive)
    try:
        contender.begin()
        losses = []
        for _ in range(options.kills):
            training.settle(options.settle)
            contender.prepare(training)
            losses.append(Loss(training, VICTIM, contender))
        training.settle(options.settle)
        steps, params, digests = training.end()
        contender.end()
    finally:
        contender.stop()
        training.close()
    wanted = undisturbed(options.width, steps)
    check(contender, digests, wanted)
    return {"params": params, "kills": len(losses), **medians(losses), "undisturbed": digests[0] == wanted}


def why(failure, contender):
    """The failure, with the first error in the output of the processes."""
    told = [line.strip() for line in contender.said().splitlines() if "Error" in line]
    return f"failed: {failure}" + (f": {told[0]}" if told else "")


def measure(name, options):
    """(the row, whether the contender has failed)."""
    row = dict.fromkeys(HEAD) | {"contender": name, "ranks": RANKS, "kills": 0}
    if name.startswith("torchft") and not (options.torchft / "bin/torchft_lighthouse").exists():
        return row | {"note": "not measured: torchft is not installed; --install installs it"}, False
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        path = pathlib.Path(folder)
        contender = CONTENDERS[name](options, path, path / "socket", options.kills)
        try:
            return row | train(contender, options) | {"note": contender.note}, False
        except (Failed, subprocess.SubprocessError) as failure:
            sys.stderr.write(contender.said())
            return row | {"note": why(failure, contender)}, True


def shown(row):
    cells = ["-" if row[key] is None else str(row[key]) for key in HEAD]
    widths = [max(len(key), 14 if key == "contender" else 8) for key in HEAD[:-1]]
    return "  ".join([cell.rjust(width) for cell, width in zip(cells, widths)] + cells[-1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--torchft", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="only the rows, one JSON object a line")
    parser.add_argument("--quick", action="store_true",
                        help="one kill and a small model: whether it works, not for figures")
    parser.add_argument("--kills", type=int, default=7, help="of each contender (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=sorted(CONTENDERS), metavar="CONTENDER",
                        default=list(CONTENDERS), help="only these")
    options = parser.parse_args()
    options.width, options.settle = (256, SETTLE_QUICK) if options.quick else (2048, SETTLE)
    options.kills = 1 if options.quick else options.kills
    try:
        import torch
    except ImportError:
        sys.exit(f"{sys.executable} has no torch: name one that has by PYTHON")
    if not options.json:
        print(f"torch {torch.__version__}, {os.cpu_count()} CPUs, one host, {RANKS} ranks, one thread in "
              "each; torchrun and torchft: Gloo over TCP loopback, gradsync: shared memory\n"
              + shown(dict(zip(HEAD, HEAD))), flush=True)
    failed = False
    for name in options.only:
        row, failure = measure(name, options)
        print(json.dumps(row) if options.json else shown(row), flush=True)
        failed = failed or failure
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
