# SPDX-License-Identifier: Apache-2.0
"""The contenders of recovery_bench.py: how each starts its ranks, and how it replaces a rank that is killed.
Each runs with the settings with which it is back soonest.
"""
import json
import os
import pathlib
import socket
import subprocess
import sys

from recovery_training import Failed

HERE = pathlib.Path(__file__).resolve().parent
RANKS, VICTIM = 2, 1
STOP_S = 40
#: torchft: how often a replica says that it is alive, after how long without that it counts as dead, and how
#: often the lighthouse looks.
HEARTBEAT_MS, DEAD_MS, LOOK_MS = 50, 500, 10


class Contender:
    """One way to train, and to go on when a rank is lost.

    note   for the reader of the row
    exact  whether the training has to end with the parameters of an undisturbed one
    """

    note, exact = "", True

    def __init__(self, options, folder, path, kills):
        self.options, self.folder, self.path, self.kills = options, folder, path, kills
        self.log = folder / "log"
        self.processes = []

    def begin(self):
        """Starts all ranks."""
        raise NotImplementedError

    def prepare(self, training):
        """Called before a rank is killed."""

    def replace(self):
        """Called right after a rank was killed."""

    def told(self, training):
        """The ns at which the other rank knew of the last loss; None: the rank reports it itself."""
        return None

    def statuses(self):
        """The expected exit statuses of all processes, after the training."""
        return [0] * len(self.processes)

    def start(self, command, **more):
        env = {name: value for name, value in os.environ.items()
               if not name.startswith("GRADSYNC_") and not name.lower().endswith("_proxy")}
        env |= {"OMP_NUM_THREADS": "1", "GRADSYNC_LIBRARY": str(self.built("client/lib/libgradsync.so.0")),
                "PYTHONPATH": str(HERE.parents[1] / "client/python")}
        with self.log.open("ab") as log:
            self.processes.append(subprocess.Popen(list(map(str, command)), env=env | more, stdout=log,
                                                   stderr=log, stdin=subprocess.DEVNULL))
        return self.processes[-1]

    def built(self, path):
        return self.options.build.resolve() / path

    def alive(self):
        """Raises Failed if a process has ended that should not have."""
        for process, expected in zip(self.processes, self.statuses(), strict=True):
            if process.poll() is not None and process.returncode != expected:
                name = pathlib.Path(process.args[0]).name
                raise Failed(f"{name} has ended with status {process.returncode}")

    def end(self):
        """Waits until all processes have ended by themselves, as they should."""
        for process in self.processes:
            process.wait(STOP_S)
        self.alive()

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def said(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Gradsync(Contender):
    """`gradsyncctl run --restart` starts the lost rank again; the others wait for it."""

    note = "run --restart; the state comes from the other rank"

    def run(self, *options, **env):
        self.start([self.built("client/cli/gradsyncctl"), "run", "--private", "-n", RANKS, *options, "--",
                    *self.member()], **env)

    def member(self):
        return [sys.executable, HERE / "recovery_gradsync.py", self.options.width, self.path]

    def begin(self):
        self.run("--restart", self.kills)

    def told(self, training):
        """From the daemon: the script itself notices within backward(), which waits for the new process."""
        loss = self.job(training)["last_loss"]
        return loss["void_ms"] and loss["noticed_us"] * 1000 + round(loss["void_ms"] * 1e6)

    def job(self, training):
        """The job in the output of `gradsyncctl status`."""
        command = [self.built("client/cli/gradsyncctl"), "-s", self.environ(training)["GRADSYNC_SOCKET"],
                   "status", "--json"]
        told = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(told.stdout)["jobs"][0]

    def environ(self, training):
        """The variables by which rank 0 finds the job: its daemon is a private one."""
        text = pathlib.Path(f"/proc/{training.members[0].pid}/environ").read_text()
        env = dict(each.partition("=")[::2] for each in text.split("\0") if each)
        return {name: env[name] for name in ("GRADSYNC_JOB", "GRADSYNC_JOB_TOKEN", "GRADSYNC_WORLD_SIZE",
                                             "GRADSYNC_SOCKET")}


class Spare(Gradsync):
    """A process that has imported everything waits for the place."""

    note = "a spare that waits; another one is started afterwards"

    def begin(self):
        self.run("--keep-going", GRADSYNC_REJOIN_GRACE="120")

    def prepare(self, training):
        """Starts a spare of the same job, without a rank, and waits until the daemon has it."""
        spare = self.start(self.member(), GRADSYNC_SPARE="1", **self.environ(training))
        while not any(member["pid"] == spare.pid and member["state"] == "spare"
                      for member in self.job(training)["members"]):
            training.next()

    def statuses(self):
        """All spares except the last one are killed. `run` ends with the status of its killed rank 1."""
        killed = len(self.processes) - 2
        return [128 + 9, *[-9] * killed, 0][:len(self.processes)]


class Torchrun(Contender):
    """torchrun ends all ranks and starts all again; they read the last checkpoint. By default the new ranks
    get the store of the old ones, and may find the old addresses in it: then they do not find each other.
    """

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.note = f"--monitor-interval 0.01; a checkpoint each step in {self.folder.parent}"

    def begin(self):
        self.start([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes", 1,
                    "--nproc-per-node", RANKS, "--max-restarts", self.kills, "--monitor-interval", 0.01,
                    HERE / "recovery_torchrun.py", self.options.width, self.path, self.folder / "checkpoint"],
                   TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")


class Torchft(Contender):
    """A replica group of one rank each. The driver starts the killed one again at once."""

    least = 1
    note = f"min_replicas 1; heartbeat {HEARTBEAT_MS} ms, dead after {DEAD_MS} ms; started again at once"
    exact = False

    def begin(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.lighthouse = f"http://127.0.0.1:{port}"
        self.start([self.options.torchft / "bin/torchft_lighthouse", "--bind", f"127.0.0.1:{port}",
                    "--min_replicas", self.least, "--quorum_tick_ms", LOOK_MS, "--join_timeout_ms", 10000,
                    "--heartbeat_timeout_ms", DEAD_MS])
        for rank in range(RANKS):
            self.start_rank(rank)

    def start_rank(self, rank):
        self.start([self.options.torchft / "bin/python", HERE / "recovery_torchft.py", self.options.width,
                    self.path, rank, self.least, HEARTBEAT_MS], TORCHFT_LIGHTHOUSE=self.lighthouse)

    def replace(self):
        self.processes[-1].wait()
        self.start_rank(VICTIM)

    def statuses(self):
        """The lighthouse is terminated at the end; the new processes of the rank come last."""
        killed = len(self.processes) - 3
        return [-15, 0, *[-9] * killed, 0][:len(self.processes)]

    def end(self):
        for process in self.processes[1:]:
            process.wait(STOP_S)
        self.processes[0].terminate()
        super().end()


class TorchftAll(Torchft):
    """No step without all replicas."""

    least = RANKS
    note = Torchft.note.replace("min_replicas 1", f"min_replicas {RANKS}")
    exact = True


CONTENDERS = {"gradsync": Gradsync, "gradsync-spare": Spare, "torchrun": Torchrun, "torchft": Torchft,
              "torchft-all": TorchftAll}
