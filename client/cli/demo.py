#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The story of `gradsyncctl demo`, which starts this program beside a private daemon.

Trains twice with `gradsyncctl run`, and disturbs the second training. All facts in the story come from
`gradsyncctl status --json` or from the trainers' own output; times are those between two observed events.
"""
import itertools
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time

EPOCHS = 100  # about 3,000 steps: the first quarter passes before the stop, half of them before the kill
LEAST_BATCH = 48  # rows of a step; each member takes as many
PATIENCE_S = 60  # for events that take less than two seconds on an idle machine
STOPPED, KILLED = 1, 2  # the ranks that are disturbed
HERE, THERE = "one", "two"
BOLD, DIM, GOOD, WARN = 1, 2, 32, 33


def complain(text):
    print(f"gradsyncctl: {text}", file=sys.stderr)


def visible(line):
    """A line of a trainer, made safe for a terminal."""
    text = line.decode("utf-8", "backslashreplace").rstrip("\n")
    return "".join(c if c.isprintable() else "".join(f"\\x{byte:02x}" for byte in c.encode()) for c in text)


class Cluster:
    """Two daemons that act as two hosts, and meet over a Unix socket.

    Their files are in the directory of the private daemon, which is removed at the end. They die with this
    program.
    """

    def __init__(self, program, helper):
        self.folder = pathlib.Path(os.environ["GRADSYNC_SOCKET"]).parent
        self.program, self.helper = program, helper
        link = f"unix:{self.folder}/link"
        self.daemons = [self.start(HERE, "--coordinator", "self", "--listen", link),
                        self.start(THERE, "--coordinator", link)]
        os.environ["GRADSYNC_SOCKET"] = self.socket(HERE)

    def socket(self, host):
        return str(self.folder / host)

    def start(self, host, *words):
        with open(self.folder / f"{host}.log", "wb") as log:
            made = subprocess.Popen(
                [self.program, "--device", "cpu", "--config", "/dev/null", "--socket", self.socket(host),
                 "--host-id", host, "--gloo-helper", self.helper, "--stall-notice", "1s",
                 "--rejoin-grace", "60s", *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "NOTIFY_SOCKET": ""})
        deadline = time.monotonic() + PATIENCE_S
        while b" serves device" not in (self.folder / f"{host}.log").read_bytes():
            if made.poll() is not None or time.monotonic() > deadline:
                complain(f"the daemon of host {host} does not start:")
                show_log(self.folder / f"{host}.log")
                raise SystemExit(1)
            time.sleep(0.01)
        return made

    def helpers(self):
        """The processes that hold the communicator: children of the daemons."""
        found = set()
        for each in self.daemons:
            children = pathlib.Path(f"/proc/{each.pid}/task/{each.pid}/children")
            found |= set(children.read_text("ascii").split())
        return found

    def end(self):
        for each in self.daemons:
            each.terminate()
        for each in self.daemons:
            each.wait()


def show_log(log):
    for line in log.read_bytes().splitlines()[-12:]:
        print("[gradsyncd]", visible(line), file=sys.stderr)


class Training:
    """One `gradsyncctl run`, with the output of its trainers and the daemon's view of its job."""

    def __init__(self, demo, name):
        self.demo, self.name, self.events = demo, name, queue.Queue()
        self.results, self.said = [], []
        self.epoch_steps, self.job, self.began = 0, None, time.monotonic()
        batch = -(-LEAST_BATCH // demo.members) * demo.members
        self.run = self.start(("out", "err"), "run", "-n", demo.members, "--restart", 1, "--job", name, "--",
                              *demo.where(), demo.trainer, "--json", "--epochs", EPOCHS, "--batch", batch)
        self.looks = self.start(("look",), "status", "--json", "--watch=0.01")
        self.open = 2
        self.pids = self.until(lambda: self.epoch_steps and self.ranked())
        if self.pids:
            *first, last = self.pids
            demo.tell(f"   Ranks 0 to {demo.members - 1} are pid {', '.join(map(str, first))} and {last}.")

    def start(self, names, *words):
        process = subprocess.Popen([self.demo.ctl, *map(str, words)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE if "err" in names else None)
        for name, stream in zip(names, (process.stdout, process.stderr)):
            threading.Thread(target=self.follow, args=(name, stream), daemon=True).start()
        return process

    def follow(self, name, stream):
        for line in itertools.chain(stream, [b""]):
            self.events.put((name, line, time.monotonic()))

    def take(self, name, line, at):
        if not line and name == "look":
            raise SystemExit(1)  # the daemon does not answer: the program has said why
        if not line:
            self.open -= 1
        elif name == "look":
            self.job = next((job for job in json.loads(line)["jobs"] if job["name"] == self.name), None)
        elif name == "err":
            self.hear(line, at)
        else:
            self.take_event(line.partition(b" ")[2])

    def take_event(self, line):
        try:
            said = json.loads(line)
        except ValueError:
            return
        if said["event"] == "start":
            self.epoch_steps = said["steps"]
        elif said["event"] == "end":
            self.results.append(said)

    def hear(self, line, at):
        if not line.startswith(b"["):
            if not line.endswith(b"started again (1 of 1)\n"):
                sys.stderr.write(visible(line) + "\n")
            return
        self.said.append((visible(line), at))
        if self.demo.json:  # it may be why nothing works
            print(visible(line), file=sys.stderr, flush=True)
        else:
            self.demo.tell("      " + self.demo.paint(DIM, visible(line)))

    def until(self, ready, missing=None, patience=PATIENCE_S):
        """Waits until ready() returns something, and returns that; None if the training ends before.

        `missing` is the complaint if that takes too long, which is a failure of the demo.
        """
        deadline = time.monotonic() + patience
        while self.open:
            self.take(*self.events.get())
            found = self.job and ready()
            if found:
                return found
            if missing and time.monotonic() > deadline:
                complain(f"{missing} within {PATIENCE_S} s; the daemon has logged:")
                self.demo.show_logs()
                raise SystemExit(1)
        return None

    def until_step(self, step):
        return self.until(lambda: self.job["step"] >= step)

    def ranked(self):
        """The pids by rank, once all have one."""
        pids = {member["rank"]: member["pid"] for member in self.job["members"]}
        return set(pids) == set(range(self.demo.members)) and [pids[rank] for rank in sorted(pids)]

    def steps(self):
        return self.epoch_steps * EPOCHS

    def signal(self, rank, number):
        """Sends a signal. Returns the process of that rank, and the time just before."""
        sent = time.monotonic()
        os.kill(self.pids[rank], number)
        return self.pids[rank], sent

    def rest(self):
        """Waits for the end of the training. Returns its results."""
        self.looks.kill()
        while self.open:
            event = self.events.get()
            if event[0] != "look":
                self.take(*event)
        if self.run.wait():
            raise SystemExit(self.run.returncode)
        hashes = {end["hash"] for end in self.results}
        self.equal = len(self.results) == self.demo.members and len(hashes) == 1
        self.hash = self.results[0]["hash"] if self.results else ""
        return {"steps": self.steps(), "seconds": time.monotonic() - self.began,
                "accuracy": self.results[-1]["accuracy"] if self.results else 0, "hash": self.hash}


class Demo:
    def __init__(self, ctl, trainer, members, pause_ms, json_wanted, color, daemon, helper):
        self.ctl, self.trainer, self.members, self.pause_s = ctl, trainer, int(members), int(pause_ms) / 1e3
        self.json, self.color = bool(json_wanted), bool(color)
        self.logs = [pathlib.Path(os.environ["GRADSYNC_SOCKET"]).with_name("daemon.log")]
        self.cluster = Cluster(daemon, helper) if helper else None
        if self.cluster:
            self.logs = [self.cluster.folder / f"{host}.log" for host in (HERE, THERE)]

    def where(self):
        """The beginning of a trainer's command line, which puts the disturbed ranks on the other host."""
        if not self.cluster:
            return []
        script = f'case $GRADSYNC_RANK in {STOPPED}|{KILLED}) GRADSYNC_SOCKET=$0 ;; esac; exec "$@"'
        return ["sh", "-c", script, self.cluster.socket(THERE)]

    def on_host(self):
        return f" on host {THERE}" if self.cluster else ""

    def show_logs(self):
        for log in self.logs:
            show_log(log)

    def tell(self, text):
        if not self.json:
            print(text, flush=True)

    def paint(self, color, text):
        return f"\x1b[{color}m{text}\x1b[0m" if self.color else text

    def tell_act(self, title):
        self.tell("\n" + self.paint(BOLD, title))

    def tell_trained(self, result):
        self.tell(f"   {result['steps']} steps in {result['seconds']:.1f} s. "
                  f"Accuracy {result['accuracy']:.4f}, parameters {result['hash']}.")

    def daemon(self):
        status = subprocess.run([self.ctl, "status", "--json"], stdout=subprocess.PIPE, check=True)
        return json.loads(status.stdout)["daemon"]

    def stop_in_step(self, training):
        """Stops a trainer, and waits until the daemon says that a step waits for it.

        Returns that wait, the time of the stop, and the text that names the trainer.
        """
        due = training.steps() // 4
        while training.until_step(due):
            pid, stopped = training.signal(STOPPED, signal.SIGSTOP)
            name = f"(pid {pid}, stopped)"
            training.said.clear()  # lines of an earlier attempt do not count
            wait = training.until(
                lambda: next((wait for wait in training.job["waiting_for"]
                              if wait["rank"] == STOPPED and wait["process_state"] == "stopped"), None),
                "the daemon has not named the stopped trainer")
            if wait and wait["what"] == "step":
                return wait, stopped, name
            if wait:  # it stopped while plans were compared; the demo shows a step
                due = training.job["step"] + 1
                os.kill(pid, signal.SIGCONT)
        return None, 0, ""

    def tell_named(self, wait, named_ms):
        since = f"{wait['since_ms'] // 1000}.{wait['since_ms'] % 1000 // 100}"
        parameter = f", parameter \"{wait['parameter']}\"" if wait["parameter"] else ""
        self.tell(f"   Rank {STOPPED} is stopped in step {wait['step']}: kill -STOP {wait['pid']}")
        self.tell(f"   After {named_ms:.0f} ms gradsyncctl status says:")
        whom = f"rank {STOPPED}{self.on_host()} (pid {wait['pid']}, stopped)"
        line = f"waiting {since} s for {whom}: bucket {wait['bucket']}"
        self.tell("      " + self.paint(WARN, line + parameter))
        if self.pause_s:
            self.tell(f"   It stays stopped for {self.pause_s:.0f} s and more: "
                      "see for yourself on another terminal.")
        self.tell("   The trainers that wait hear it too, and say it on their own terminals:")

    def stop(self, training):
        """Stops a trainer, shows that all others name it, and lets it go on."""
        wait, stopped, name = self.stop_in_step(training)
        if not wait:
            return None
        named = time.monotonic()
        self.tell_named(wait, (named - stopped) * 1e3)

        def heard():
            """The time at which the last trainer has named it; false before, and until the pause is over."""
            moments = [at for line, at in training.said
                       if name in line and not line.startswith(f"[{STOPPED}]")]
            waited = time.monotonic() >= named + self.pause_s
            return len(moments) + 1 >= self.members and waited and moments[-1]
        told = training.until(heard, "the other trainers have not said whom they wait for",
                              PATIENCE_S + self.pause_s)
        if not told:
            return None
        self.tell(f"   {told - stopped:.2f} s after the stop all of them have said so. "
                  f"It goes on: kill -CONT {wait['pid']}")
        resumed = training.signal(STOPPED, signal.SIGCONT)[1]
        training.until(lambda: training.job["step"] >= wait["step"], "no step has been committed")
        resumed_ms = (time.monotonic() - resumed) * 1e3
        self.tell(f"   Step {wait['step']} is committed within {resumed_ms:.0f} ms.")
        return {"rank": STOPPED, "host": wait["host"], "pid": wait["pid"], "step": wait["step"],
                "bucket": wait["bucket"], "parameter": wait["parameter"] or "",
                "named_ms": (named - stopped) * 1e3, "told_ms": (told - stopped) * 1e3,
                "resumed_ms": resumed_ms}

    def kill(self, training):
        """Kills a trainer; another process takes its place. The daemon measures times on the same clock."""
        self.tell_act("3  A trainer dies")
        if not training.until_step(max(training.job["step"] + training.epoch_steps, training.steps() // 2)):
            return None
        self.tell(f"   Rank {KILLED} is killed: kill -9 {training.pids[KILLED]}")
        communicator = self.cluster and self.cluster.helpers()
        pid, killed = training.signal(KILLED, signal.SIGKILL)

        def back():
            loss = training.job["last_loss"]
            return loss and loss["pid"] == pid and loss["committed_ms"] is not None and loss
        loss = training.until(back, "no step has been committed")
        if not loss:
            return None
        noticed = loss["noticed_us"] / 1e3 - killed * 1e3
        void = None if loss["void_ms"] is None else noticed + loss["void_ms"]
        successor = loss["successor_pid"]
        if self.cluster:  # the daemon that is asked has not seen the process
            successor = training.until(
                lambda: next((member["pid"] for member in training.job["members"]
                              if member["rank"] == KILLED and member["pid"] != pid), None),
                "the daemon does not show the new process")
            if self.cluster.helpers() != communicator:
                complain("the communicator between the hosts is another one than before")
                raise SystemExit(1)
        told = {"rank": KILLED, "host": THERE if self.cluster else None, "pid": pid,
                "successor_pid": successor, "step": loss["step"] + 1,
                "void_steps": loss["void_steps"], "noticed_ms": noticed, "void_ms": void,
                "committed_ms": noticed + loss["committed_ms"]}
        self.tell_back(told)
        return told

    def tell_back(self, kill):
        if kill["void_ms"] is not None:
            self.tell(f"   {kill['void_ms']:.1f} ms after the kill the others knew "
                      f"that step {kill['step']} is void.")
        else:
            self.tell("   It died between two steps; "
                      f"the daemon noticed {kill['noticed_ms']:.1f} ms after the kill.")
        self.tell(f"   Only its process was started again, as pid {kill['successor_pid']}. "
                  "The others waited inside gradsync and gave it their state.")
        void = f"{kill['void_steps']} step{'' if kill['void_steps'] == 1 else 's'} void"
        back = f"{void}, back in {kill['committed_ms'] / 1e3:.2f} s, same ranks."
        self.tell("   " + self.paint(GOOD, back) +
                  (" The communicator between the hosts is the same." if self.cluster else
                   " (On one host there is no communicator that could break.)"))

    def tell_story(self):
        self.tell(f"{self.members} processes train a model that reads handwritten digits; " +
                  (f"two daemons of their own, which stand for hosts {HERE} and {THERE}, average their "
                   f"gradients. Ranks {STOPPED} and {KILLED} are on host {THERE}." if self.cluster else
                   f"a gradsyncd of their own (pid {self.daemon()['pid']}) averages their gradients."))
        self.tell_act("1  Training, undisturbed")
        first = Training(self, "undisturbed")
        undisturbed = first.rest()
        self.tell_trained(undisturbed)
        time.sleep(self.pause_s)
        self.tell_act("2  The same training; a trainer stops")
        second = Training(self, "disturbed")
        stop = self.stop(second)
        kill = stop and self.kill(second)
        disturbed = second.rest()
        if not kill:
            complain("the training was over before everything had happened to it; "
                     "is the machine busy? try again")
            return 1
        self.tell_act("4  The end")
        self.tell_trained(disturbed)
        equal = first.equal and second.equal and first.hash == second.hash
        if self.json:
            print(json.dumps({"schema_version": 1, "members": self.members, "undisturbed": undisturbed,
                              "stop": stop, "kill": kill, "disturbed": disturbed, "equal": equal}, indent=2))
        if not equal:
            complain(f"the parameters differ: {first.hash} undisturbed, {second.hash} disturbed, "
                     f"and each should be the same on all {self.members} members")
            return 1
        same = f"Equal to the undisturbed run's, bit for bit, on all {self.members} members."
        self.tell("   " + self.paint(GOOD, same))
        return 0


def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the parent, `gradsyncctl run`, ends all of its processes
    try:
        demo = Demo(*sys.argv[1:])
        try:
            return demo.tell_story()
        finally:
            if demo.cluster:
                demo.cluster.end()
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
