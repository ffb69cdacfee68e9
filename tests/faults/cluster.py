# SPDX-License-Identifier: Apache-2.0
"""
Faults against a training job over several hosts: those of faults.py, and faults of daemons, their
coordinator, the processes of Gloo and the network between them.

Hosts are network namespaces with a daemon in each, and a router between them, which loses, refuses and delays
packets; the coordinator has a host of its own. The oracle is that of faults.py. If a host's daemon was killed
or passed for dead, its trainers may end, and are started again. If the coordinator's state directory is empty
or old, jobs may end by name, and begin anew.
"""

import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import time

import faults
from faults import Fault, Rig, now, open_files

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

from forwarder import DEVICE  # noqa: E402
from namespaces import BOTH, DROP, RESET, Routed  # noqa: E402

PORT = Routed.port
TIMES = {"heartbeat": "100ms", "patience": "2s", "death": "5s", "abandon": "12s"}
DEATH_S, ABANDON_S = 5, 12
PATIENCE_S = 60         # with events that come sooner or later
KNOWN, CONNECTED = "knows this gradsyncd as node", "connected to the coordinator"
# How the router treats packets of a host: (rule, directions, which packets).
CUTS = {
    "cut": (DROP, BOTH, None),
    "cut_in": (DROP, ["in"], None),
    "cut_out": (DROP, ["out"], None),
    "cut_control": (DROP, BOTH, "control"),
    "cut_data": (DROP, BOTH, "data"),
    "reset_control": (RESET, ["in"], "control"),
    "reset_data": (RESET, ["in"], "data"),
    "reset_both": (RESET, BOTH, None),
}


class Daemon:
    """One gradsyncd, through all of its incarnations."""

    def __init__(self, rig, name, host, text, *arguments):
        self.rig, self.name, self.host, self.arguments = rig, name, host, arguments
        self.socket, self.log = str(rig.directory / f"{name}.socket"), rig.directory / f"{name}.log"
        self.config = rig.directory / f"{name}.conf"
        self.away = False               # killed, and not yet started again
        self.config.write_text("[cluster]\n" + "".join(f"{key} = {value}\n" for key, value in text.items()))
        self.process = None

    def kill(self):
        self.away = True
        self.process.kill()
        self.process.wait()

    @property
    def state(self):
        return self.rig.directory / f"{self.name}.state"

    def start(self, env=None):
        self.state.mkdir(exist_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.rig.hosts.inside(self.host), self.rig.build / "daemon/core/gradsyncd",
                 "--config", self.config, "--socket", self.socket, "--rejoin-grace", "30s",
                 "--drain-timeout", "5s", *self.arguments],
                env={**os.environ, "STATE_DIRECTORY": str(self.state), **(env or {})},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = now() + 10
        while not self.rig.listens(self.socket):
            if self.process.poll() is not None or now() > end:
                raise Fault(f"{self.name} did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.01)
        self.away = False

    def said(self, words):
        """How often its log has these words."""
        return self.log.read_text().count(words)

    def helpers(self):
        """Its processes of Gloo."""
        try:
            pid = self.process.pid
            text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        except OSError:
            return []
        return [int(word) for word in text.split()]

    def holdings(self):
        """Resources that jobs may leave behind: not sockets, as connections between daemons come and go."""
        found = open_files(self.process.pid)
        return {"fds": [name for name in found["fds"] if name != "socket"], "arenas": found["arenas"],
                "helpers": len(self.helpers())}


class ClusterRig(Rig):
    """The hosts, a daemon on each, and the coordinator; `daemon` is the coordinator's process."""

    daemon_class = Daemon

    def start_daemon(self):
        self.n_hosts, self.daemons = self.options.hosts, []
        self.old = self.directory / "old"       # the coordinator's state before any job
        self.others = []                        # trainers of jobs that come and go
        self.hosts = self.make_hosts()
        try:
            self.start_daemons()
            self.nodes = self.daemons[1:]
            self.socket = self.nodes[0].socket
            self.settle_down()
        except BaseException:
            self.kill_all()
            raise
        return self.coordinator.process

    def make_hosts(self):
        return Routed(self.n_hosts + 1)

    def start_daemons(self):
        key = self.directory / "key"
        key.write_text(f"faults {secrets.token_hex(32)}\n")
        key.chmod(0o600)
        at = self.n_hosts
        common = {"key_file": key, "gloo_helper": self.build / "daemon/engine/gloo/gradsync-gloo"}
        self.coordinator = self.add("coordinator", at, {"listen": f"eth0:{PORT}", **common, **TIMES},
                                    "--device", "none")
        for i in range(self.n_hosts):
            text = {"coordinator": f"{self.hosts.address(at)}:{PORT}", "host_id": f"host{i}", **common,
                    **TIMES}
            self.add(f"host{i}", i, text)

    def add(self, *what):
        self.daemons.append(self.daemon_class(self, *what))
        self.daemons[-1].start()
        return self.daemons[-1]

    def settle_down(self):
        """Waits until each daemon has found the coordinator: files that it opens before do not count."""
        self.wait_said(KNOWN, dict.fromkeys(self.nodes, 0), lambda: time.sleep(0.01))
        shutil.copytree(self.coordinator.state, self.old)

    def wait_said(self, words, before, between):
        """Waits until the log of each has these words once more."""
        end = now() + PATIENCE_S
        while not all(node.said(words) > count for node, count in before.items()):
            if now() > end:
                raise Fault(f"a daemon has not said once more: {words}")
            between()

    def node_of(self, rank):
        return rank * self.n_hosts // self.world

    def socket_of(self, rank):
        return self.nodes[self.node_of(rank)].socket

    def may_fail(self, trainer, line):
        trainer.expelled |= trainer.training.may_end
        return trainer.expelled

    def extras(self, trainer):
        """The environment of a job that comes and goes: a member on each host, and no place is kept."""
        if trainer.training in self.trainings:
            return {}
        return {"GRADSYNC_SOCKET": self.nodes[trainer.rank].socket, "GRADSYNC_WORLD_SIZE": str(self.n_hosts),
                "GRADSYNC_REJOIN_GRACE": "0"}

    def figures(self):
        return {"begun_anew": self.anew}

    def refusals(self):
        return 0

    def check_daemons(self):
        for daemon in self.daemons:
            if not daemon.away and daemon.process.poll() is not None:
                raise Fault(f"{daemon.name} has ended: " + daemon.log.read_text()[-2000:])

    def at_rest(self):
        return [node.holdings() for node in self.nodes]

    def holdings(self):
        return self.at_rest()

    def tell_hang(self, training):
        super().tell_hang(training)
        for daemon in self.daemons:
            print(f"  {daemon.name}: {daemon.log.read_text().splitlines()[-4:]}", file=sys.stderr)

    def stop_daemon(self):
        statuses = []
        for daemon in reversed(self.daemons):
            daemon.process.terminate()
            statuses.append(daemon.process.wait(30))
        return next(filter(None, statuses), 0)

    def kill_all(self):
        for trainer in getattr(self, "trainers", []) + self.others:
            trainer.process.kill()
        for daemon in self.daemons:
            if daemon.process is not None:
                daemon.kill()
        self.hosts.close()

    def last_words(self):
        return [f"{daemon.name}: {line}" for daemon in self.daemons
                for line in daemon.log.read_text().splitlines()[-60:]]

    # --- faults

    def expel(self, but=None):
        """Chooses a host, another one than `but`, without which each job keeps a member whose state is whole.
        Returns it with its members, which may end now."""
        whole = [{self.node_of(trainer.rank) for trainer in self.whole(training)}
                 for training in self.trainings]
        able = [i for i in range(self.n_hosts) if i != but and all(hosts - {i} for hosts in whole)]
        if not able:
            return None, []
        host = self.random.choice(able)
        hit = [t for t in self.trainers if self.node_of(t.rank) == host]
        for trainer in hit:
            trainer.expelled, trainer.back = True, faults.MOST
        return host, hit

    def readmit(self, hit):
        """Lets these members come back from now on."""
        for trainer in hit:
            trainer.back = now()
        return hit

    def rest(self, seconds):
        """Waits. The time does not count as a hang, because this driver causes it."""
        self.pause(seconds)
        self.excuse()

    def kill_helper(self, number=signal.SIGKILL):
        able = [helper for node in self.nodes for helper in node.helpers()]
        if not able:
            return None
        try:
            os.kill(self.random.choice(able), number)
        except ProcessLookupError:      # its daemon was faster
            return None
        return []

    def stop_helper(self):
        """Stops a helper for good: its daemon ends it after `death`, and the job goes on."""
        return self.kill_helper(signal.SIGSTOP)

    def kill_coordinator(self):
        self.coordinator.kill()
        self.pause(self.random.choice([0, 0, 0.3, 1]))
        self.coordinator.start()
        return []

    def stop_coordinator(self):
        self.coordinator.process.send_signal(signal.SIGSTOP)
        self.rest(self.random.choice([0.1, 0.5, 1.5]))
        self.coordinator.process.send_signal(signal.SIGCONT)
        return []

    def kill_node(self):
        host, hit = self.expel()
        if hit:
            self.nodes[host].kill()
            self.nodes[host].start()
        return self.readmit(hit)

    def end(self, daemon):
        daemon.process.terminate()
        daemon.away = True
        status = daemon.process.wait(30)
        if status != 0:
            raise Fault(f"{daemon.name} ended with {status}")

    def restart_node(self):
        node = self.random.choice(self.nodes)
        self.end(node)
        node.start()
        return []

    def upgrade(self):
        """Restarts one daemon after the other, the coordinator's too."""
        for daemon in self.random.sample(self.daemons, len(self.daemons)):
            self.end(daemon)
            daemon.start()
            self.pause(self.random.choice([0, 0.1, 0.5]))
        return []

    def stop_node(self):
        node = self.random.choice(self.nodes)
        node.process.send_signal(signal.SIGSTOP)
        self.rest(self.random.choice([0.1, 0.5, 1.5]))
        node.process.send_signal(signal.SIGCONT)
        return []

    def cut(self, host, kind, seconds):
        """Cuts a host off in that way, for so many seconds."""
        with self.hosts.filtered(host, *CUTS[kind]):
            self.rest(seconds)

    def network(self, kind):
        """Disturbs the network for less than `patience`: TCP repeats lost packets."""
        seconds = 0.05 if kind.startswith("reset") else self.random.choice([0.1, 0.4, 1.2])
        self.cut(self.random.randrange(self.n_hosts), kind, seconds)
        return []

    def worse(self, seconds, lost):
        """Delays the packets of a host for a while, or loses some of them."""
        host = self.random.randrange(self.n_hosts)
        with self.hosts.slow(host, seconds, lost=lost, seed=self.random.randrange(1000)):
            self.rest(self.random.choice([0.4, 1.2, 2.0]))
        return []

    def delay(self):
        return self.worse(self.random.choice([0.05, 0.1, 0.2]), 0)

    def lossy(self):
        return self.worse(0.002, 0.1)

    def cut_off(self, seconds=DEATH_S + 2):
        """Cuts a host off for so long that it passes for dead."""
        host, hit = self.expel()
        if hit:
            self.cut(host, "cut", seconds)
        return self.readmit(hit)

    def cut_off_long(self):
        """Cuts a host off for so long that it has given its jobs up, too."""
        return self.cut_off(ABANDON_S + 2)

    def next_coordinator(self, between=lambda: None):
        """Starts the coordinator again, and waits until all daemons are back."""
        before = {node: node.said(CONNECTED) for node in self.nodes}
        self.random.choice([self.coordinator.kill, lambda: self.end(self.coordinator)])()
        between()
        self.coordinator.start()
        self.wait_said(CONNECTED, before, lambda: self.pause(0.01))

    def coordinate_anew(self, saved=None):
        """Starts a coordinator with an empty state directory, or with a saved one. Its jobs go on, or are
        lost by name."""
        def change():
            shutil.rmtree(self.coordinator.state)
            if saved:
                shutil.copytree(saved, self.coordinator.state)

        for training in self.trainings:
            training.may_end = True
        self.next_coordinator(change)
        self.pass_steps(20)
        for training in self.trainings:
            training.may_end = False

    def lose_state(self):
        self.coordinate_anew()
        return []

    def old_state(self):
        """Starts a coordinator with an old state, with or without an empty one in between."""
        if self.random.random() < 0.5:
            self.coordinate_anew()
        self.coordinate_anew(self.old)
        return []

    def again(self):
        """Loses a job while one of its processes is stopped, and starts it again under the same name. The
        coordinator may be restarted, too, before the process wakes, or is killed."""
        job = f"again{self.done}"
        first = self.begin(job, "first")
        self.wait_steps(first)
        stopped = first.pop(self.random.randrange(len(first)))
        stopped.process.send_signal(signal.SIGSTOP)
        stopped.expelled = True
        self.end_others(first)
        second = self.begin(job, "second")
        self.wait_steps(second, retry=True)
        if self.random.random() < 0.7:
            self.next_coordinator()
        self.wait_steps(second)
        if self.random.random() < 0.5:
            stopped.process.kill()
        stopped.process.send_signal(signal.SIGCONT)
        self.wait_ended(stopped)
        self.wait_steps(second)
        self.end_others(self.others)
        return []

    def begin(self, job, life):
        made = [faults.Trainer(self, faults.Training(job, f"{job}-{life}-"), rank)
                for rank in range(self.n_hosts)]
        self.others += made
        return made

    def end_others(self, those):
        for trainer in those:
            trainer.expelled = True     # it may hear of another one's end first
            trainer.process.kill()
        for trainer in those:
            trainer.process.wait()
            trainer.read()
        self.others = [trainer for trainer in self.others if trainer not in those]

    def wait_steps(self, those, retry=False):
        """Waits until each has committed some more. With `retry` those that fail try again."""
        until, end = {trainer: min(trainer.steps) + 5 for trainer in those}, now() + PATIENCE_S
        while not all(min(trainer.steps) >= until[trainer] for trainer in those):
            self.pause(0.01)
            for trainer in those:
                trainer.expelled |= retry
                trainer.read()
                if trainer.process.poll() is not None:
                    trainer.start()
            if now() > end:
                raise Fault("\n".join(["a job that comes and goes does not go on",
                                       *(trainer.log.read_text()[-500:] for trainer in self.others)]))
        for trainer in those:
            trainer.expelled = False

    def wait_ended(self, trainer):
        """Waits until the trainer ends by itself, as its job is over."""
        end = now() + PATIENCE_S
        while trainer.process.poll() is None:
            self.pause(0.01)
            if now() > end:
                raise Fault(f"{trainer} has woken and does not end: {trainer.log.read_text()[-500:]}")
        trainer.read()

    def wanted(self, kinds):
        return [kind for kind in kinds if kind.__name__ in (self.options.only or [kind.__name__])]

    def kinds(self):
        def on_network(kind):
            def make():
                return self.network(kind)
            make.__name__ = kind
            return make

        members = [self.kill, self.kill, self.kill_several, self.fork_and_die, self.stop, self.kill_node,
                   self.cut_off, self.cut_off_long]
        others = [self.kill_helper, self.stop_helper, self.kill_coordinator, self.stop_coordinator,
                  self.stop_node, self.restart_node, self.upgrade, self.lose_state, self.old_state,
                  self.again, self.delay, self.lossy, *map(on_network, CUTS)]
        return self.wanted(members), self.wanted(others)


def add_only(parser):
    parser.add_argument("--only", action="append", metavar="KIND",
                        help="only this kind of fault; may be repeated")


def main():
    parser = faults.parser_of("cluster.sh", "Faults against a training job over several hosts.", 20.0)
    parser.add_argument("--hosts", type=int, default=2, choices=[2, 3, 4])
    add_only(parser)
    options = parser.parse_args()
    missing = [program for program in ("ip", "nft") if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        print("cluster.sh needs root, ip(8) and nft(8): hosts are network namespaces"
              + (f"; missing: {', '.join(missing)}" if missing else ""), file=sys.stderr)
        return 1
    if not os.path.exists(DEVICE):
        print(f"cluster.sh needs {DEVICE}: a router delays packets by such an interface", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)   # also when told to stop, leave nothing
    return faults.main(options, ClusterRig)


if __name__ == "__main__":
    sys.exit(main())
