# SPDX-License-Identifier: Apache-2.0
"""Times and memory of PyTorch trainings on one host, with one thread in each rank.

ddp        PyTorch's DistributedDataParallel over Gloo (TCP loopback), with gradient_as_bucket_view=True
gradsync   gradsync's, with a private daemon (shared memory)
bare       the module alone in as many processes, without any synchronisation

All three train in the same run and take turns; a figure is the median of all rounds. All keep what they free
of large blocks (KEEPING below): by itself the C library gives gradients of more than 32 MiB back to the
system in each step, and new pages cost bare processes a third of their time or more. --malloc default leaves
that as it is. Peak memory is that of all ranks and the daemon together, without mapped files: each page
counts once, however many processes map it.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import threading

from contender import Contender, Failed

HERE = pathlib.Path(__file__).resolve().parent
CONTENDERS = ("bare", "ddp", "gradsync")
ROWS = [("mlp25m", 8), ("mlp25m", 256), ("mlp100m", 8), ("transformer", 4)]
KEEPING = {"MALLOC_MMAP_THRESHOLD_": str(256 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20)}
HEAD = ("model", "params", "batch", "ranks", "ddp_ms", "gradsync_ms", "bare_ms", "ddp_peak_mib",
        "gradsync_peak_mib")


class Training(Contender):
    """All ranks of a contender."""

    start_s, answer_s = 180, 600

    def __init__(self, name, options, model, batch, ranks, folder):
        def commands(path, _gate):
            command = [sys.executable, str(HERE / "torch_member.py"), name, model, str(batch), path,
                       f"{folder}/{name}.store"]
            if name == "gradsync":
                ctl = str(options.build / "client/cli/gradsyncctl")
                return [[ctl, "run", "--private", "-n", str(ranks), "--", *command]]
            return [["env", f"GRADSYNC_RANK={rank}", *command] for rank in range(ranks)]

        env = KEEPING if options.malloc == "keeping" else {}
        super().__init__(name, ranks, commands, folder, env | {
            "OMP_NUM_THREADS": "1", "GRADSYNC_WORLD_SIZE": str(ranks),
            "GRADSYNC_LIBRARY": str(options.build / "client/lib/libgradsync.so.0"),
            "PYTHONPATH": str(HERE.parents[1] / "client/python")})

    def params(self):
        return int(self.command("params")[0])

    def train(self, steps):
        """Mean over the ranks of the median step, in ms."""
        return statistics.mean(map(float, self.command(f"steps {steps}")))

    def pids(self):
        """The pids of the ranks, and of the daemon."""
        found = {member.pid for member in self.members}
        for process in self.processes:
            try:
                children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            except OSError:
                continue
            found |= {int(pid) for pid in children.split()}
        return found

    def peak(self, steps):
        """Peak memory in MiB while it trains; not timed."""
        over, seen = threading.Event(), []

        def look():
            while not over.is_set():
                seen.append(sum(map(memory_of, self.pids())))

        watcher = threading.Thread(target=look)
        watcher.start()
        self.train(steps)
        over.set()
        watcher.join()
        return max(seen) / 1024


def memory_of(pid):
    """KiB of a process: its own pages, and its part of the shared ones."""
    try:
        rows = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    sizes = {row.split()[0]: int(row.split()[1]) for row in rows[1:]}
    return sizes.get("Pss_Anon:", 0) + sizes.get("Pss_Shmem:", 0)


def measure(options, model, batch, ranks):
    with tempfile.TemporaryDirectory() as name:
        contenders = []
        try:
            for each in CONTENDERS:
                contenders.append(Training(each, options, model, batch, ranks, name))
            # PyTorch makes its buckets anew after the first step, gradsync after the first and the tenth.
            for each in contenders:
                each.train(12)
            times = {each: [] for each in CONTENDERS}
            for i in range(options.rounds):
                for each in contenders[i % 3:] + contenders[:i % 3]:
                    times[each.name].append(each.train(options.steps))
            peaks = {each.name: each.peak(options.steps) for each in contenders if each.name != "bare"}
            params = contenders[0].params()
        finally:
            for each in contenders:
                each.stop()
    row = {"model": model, "params": params, "batch": batch, "ranks": ranks}
    row |= {f"{each}_ms": round(statistics.median(times[each]), 2) for each in ("ddp", "gradsync", "bare")}
    return row | {f"{each}_peak_mib": round(peaks[each], 1) for each in ("ddp", "gradsync")}


def shown(row):
    """A sentence about a row, for people."""
    added = row["ddp_ms"] - row["bare_ms"]
    part = f"{(row['gradsync_ms'] - row['bare_ms']) / added:.2f}" if added > 0 else "-"
    return f"{row['ddp_ms'] / row['gradsync_ms']:.2f} times as fast, adds {part} of what DDP adds"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="only the rows, one JSON object a line")
    parser.add_argument("--quick", action="store_true",
                        help="fewer rounds: whether it works, not for figures")
    parser.add_argument("--rounds", type=int, default=7, help="of all contenders in turn (%(default)s)")
    parser.add_argument("--steps", type=int, default=7, help="of a contender in a round (%(default)s)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="(2 4)")
    parser.add_argument("--models", nargs="+", choices=sorted(dict(ROWS)), help="only these")
    parser.add_argument("--batches", type=int, nargs="+", help="only these")
    parser.add_argument("--malloc", choices=("keeping", "default"), default="keeping",
                        help="whether large blocks are kept for the next step (%(default)s)")
    options = parser.parse_args()
    options.build = options.build.resolve()
    for name in [name for name in os.environ if name.startswith("GRADSYNC_")]:
        del os.environ[name]
    if options.quick:
        options.rounds, options.steps = 2, 3
    try:
        import torch
    except ImportError:
        sys.exit(f"{sys.executable} has no torch: name one that has by PYTHON")
    if not options.json:
        print(f"torch {torch.__version__}, {os.cpu_count()} CPUs, one host, one thread in each rank; DDP: "
              "Gloo over TCP loopback, gradsync: shared memory\n" + "  ".join(HEAD), flush=True)
    for model, batch in ROWS:
        if options.models and model not in options.models or options.batches and batch not in options.batches:
            continue
        for ranks in options.ranks:
            try:
                row = measure(options, model, batch, ranks)
            except Failed as failure:
                sys.exit(f"failed: {failure}")
            cells = "  ".join(str(row[key]).rjust(len(key)) for key in HEAD)
            print(json.dumps(row) if options.json else f"{cells}  {shown(row)}", flush=True)


if __name__ == "__main__":
    main()
