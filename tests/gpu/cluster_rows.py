# SPDX-License-Identifier: Apache-2.0
"""Two daemons on one GPU, in one cluster, which exchange by NCCL: a JSON row for each answer, as reductions.c
prints them.

    cluster_rows.py [--small] [--nccl FILE]... QUESTION

NCCL does not mean two ranks to share a GPU. From 2.30.3 on a setting allows it; before, ranks that believe
themselves to be on different hosts get by, over sockets on loopback. Kernels of the two daemons run by turns,
in time slices, and each waits for the other: that shows whether things work, and nothing about their speed on
real hosts. GRADSYNC_BUILD is the build.

Exit status: 0 nothing is wrong; 1 an answer is "no", or something failed; 2 usage; 75 no NCCL, or no Gloo.
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

import harness  # noqa: E402
from clusters import HELPER, PATIENT, cluster_text  # noqa: E402
from teams import Team, Training, takes_state  # noqa: E402
from trainers import ask, bring, crew, fields, step, together  # noqa: E402

INPROCESS = "tests/gpu/inprocess"
MULTI_RANK = 23003      # the first release that lets ranks share a GPU
SKIPPED = 75            # exit status
MIB = 1 << 20
STAY = {"rejoin_grace": "60s", "drain_timeout": "2s"}
ONE_GPU = "both ranks are on one GPU, which they have by turns: no claim about real GPUs"


class Skipped(Exception):
    """The reason, in one sentence."""


def settings_of(version, node):
    """(nccl_settings of that daemon, what they are called)."""
    network = "NCCL_SOCKET_IFNAME==lo NCCL_NET=Socket NCCL_NET_PLUGIN=none NCCL_IB_DISABLE=1"
    if version >= MULTI_RANK:
        return f"NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=8 {network}", "NCCL_MULTI_RANK_GPU_ENABLE"
    return f"NCCL_HOSTID=gradsync-{node} {network}", "different NCCL_HOSTID"


def version_text(version):
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


class Machine:
    """Processes on the GPU, and their files."""

    def __init__(self, build, options):
        self.build, self.small, self.options = build, "--small" in options, []
        for name in [word for word, before in zip(options[1:], options) if before == "--nccl"]:
            self.options += ["--nccl", name]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))
        self.programs, self.daemons = [], []
        self.library = self.version = self.way = None

    def find(self):
        """Finds the NCCL to use. Raises Skipped if a part is not there."""
        found = subprocess.run([self.build / INPROCESS, *self.options, "find"], text=True,
                               capture_output=True, check=False, stdin=subprocess.DEVNULL)
        if found.returncode:
            raise Skipped(f"there is no NCCL: {found.stderr.strip()[-300:]}")
        if not (self.build / HELPER).exists():
            raise Skipped(f"there is no {HELPER}, by which daemons exchange what is not on a GPU")
        self.library, number = found.stdout.rsplit(None, 1)
        self.version = int(number)
        self.way = f"NCCL {version_text(self.version)}, {settings_of(self.version, 0)[1]}"

    def close(self):
        for each in [*self.programs, *self.daemons]:
            each.destroy()
        shutil.rmtree(self.folder, ignore_errors=True)

    def daemon(self, device, **config):
        made = harness.Daemon(self.build, self.folder / f"d{len(self.daemons)}", device=device,
                              config=cluster_text(**config), settings=STAY)
        self.daemons.append(made)
        return made.start()

    def member(self, daemon):
        made = harness.Member(self.build, daemon.socket, env={"MEMBER_CUDA": "1", "MEMBER_GPU": "0"})
        made.build_ctl = self.build / harness.CTL
        self.programs.append(made)
        return made

    def rank(self, number):
        """NCCL without a daemon."""
        made = harness.Program(self.build / INPROCESS, *self.options, "--settings",
                               settings_of(self.version, number)[0], "rank")
        self.programs.append(made)
        return made


class Pair:
    """A coordinator, and two daemons. Has the form of clusters.Cluster for those who look at its nodes."""

    def __init__(self, machine):
        self.machine, self.took = machine, []
        self.address = f"unix:{machine.folder}/link"
        self.coordinator = machine.daemon("none", listen=self.address, **PATIENT)
        self.nodes = [self.add(number) for number in range(2)]

    def add(self, number):
        made = self.machine.daemon("cuda:0", coordinator=self.address,
                                   gloo_helper=self.machine.build / HELPER, nccl_library=self.machine.library,
                                   nccl_settings=settings_of(self.machine.version, number)[0])
        made.wait_log("knows this gradsyncd as node")
        return made

    def start_member(self, *_arguments, **_options):
        """A member for crew and Team, on each of the two daemons in turn."""
        self.took.append(self.nodes[len(self.took) % 2])
        return self.machine.member(self.took[-1])

    def replace_on(self, node):
        """The next member is on that daemon."""
        if len(self.took) % 2 != node:
            self.took.append(None)

    def communicators(self, name):
        return [node.job(name)["communicators"] for node in self.nodes]

    def connected(self, name):
        """The daemons' own numbers about the communicator of a job."""
        told = []
        for node in self.nodes:
            job = node.job(name)
            ways = {peer["transport"] or "a way that is not known" for peer in job["peers"]}
            told.append(f"{job['communicator_us'] / 1e3:.0f} ms by {', '.join(sorted(ways))}")
        return f"the daemons connected in {' and '.join(told)}"


def ms_since(begin):
    return (time.monotonic() - begin) * 1e3


def tell(fact, answer, detail, begin):
    """Prints a row. Returns whether nothing is wrong."""
    print(json.dumps({"fact": fact, "answer": answer, "detail": detail, "ms": round(ms_since(begin), 1)}),
          flush=True)
    return answer != "no"


def timed(members, command, n=1):
    """Milliseconds of each of so many commands to all of them."""
    took = []
    for _ in range(n):
        begin = time.monotonic()
        together(members, command)
        took.append(ms_since(begin))
    return took


# ---- questions ----

def is_right(members):
    """A step: whether all have the average of what they bring."""
    bring(members)
    together(members, "finish")
    return all(ask(each, f"check {(len(members) + 1) / 2}") == "right" for each in members)


def ask_one_gpu(machine):
    """Sums of two daemons on one GPU."""
    begin = time.monotonic()
    it = Pair(machine)
    floats = 70000 if machine.small else 4 * MIB
    members = crew(it.start_member, None, 2, params=("a f32 5", "b f32 300 20", f"c bf16 {floats}"))
    planned = ms_since(begin)
    since = time.monotonic()
    right = is_right(members)
    first = ms_since(since)
    steps = timed(members, "steps 1", 5 if machine.small else 20)
    wrong = [right, *(is_right(members) for _ in range(4))].count(False)
    return tell("cluster one gpu", "no" if wrong else "yes",
                f"{machine.way}: averages are wrong in {wrong} of 5 steps; {it.connected('job')}; daemons, "
                f"members and a plan are there in {planned:.0f} ms, the first step takes {first:.0f} ms with "
                f"its data, one of {floats * 2 / MIB:.1f} MiB in 3 buckets {statistics.median(steps):.2f} "
                f"ms, median of {len(steps)}; {ONE_GPU}", begin)


def ask_member_killed(machine):
    """A trainer is killed in the middle of a step; another one takes its place."""
    begin = time.monotonic()
    it = Pair(machine)
    team = Team(it.start_member, None, world=2)
    for _ in range(2):
        team.step()
    before = it.communicators("team")
    stays, = team.members[:1]
    team.bring([stays])
    stays.say("finish")
    since = time.monotonic()
    team.kill(1)
    it.replace_on(1)
    new = team.replace(1)
    replaced = ms_since(since)
    name, _, rest = stays.line().partition(" ")
    void = ms_since(since)
    takes_state(new, [stays], 2)
    number = team.step()
    again = ms_since(since)
    after = it.communicators("team")
    right = name in ("VOID_RETRY", "VOID_BEHIND") and number == [3, 3] and before == after
    return tell("cluster member killed", "yes" if right else "no",
                f"{machine.way}: the other member's step is {name}, the next one {number[0]}; communicators "
                f"{before} before, {after} after; after the kill another member has a plan in {replaced:.0f} "
                f"ms, the other one is told by {void:.0f} ms, a step is committed by {again:.0f} ms", begin)


def communicator_thread(daemon):
    """The thread of its communicator, which is there until nothing of that is left; None: there is none.
    Those that NCCL starts have the same name, and are younger."""
    found = []
    for path in pathlib.Path(f"/proc/{daemon.pid}/task").glob("*/comm"):
        with contextlib.suppress(OSError):
            if path.read_text().strip() == "gs-nccl-comm":
                found.append(int(path.parent.name))
    if harness.process_state(daemon.pid) in "ZX-":
        raise RuntimeError(f"gradsyncd has ended: {daemon.log.splitlines()[-1]}")
    return min(found, default=None)


def ask_daemon_killed(machine):
    """A daemon is killed in the middle of steps, and started again at once; its members come back to it."""
    begin = time.monotonic()
    it = Pair(machine)
    training = Training(it, Team(it.start_member, None, world=2).members, machine.folder / "stop")
    training.go_on(more=5)
    stays, killed = it.nodes
    before, said, thread = it.communicators("team"), len(stays.log), communicator_thread(stays)
    assert thread
    since = time.monotonic()
    harness.kill(killed)
    killed.start()
    harness.wait_until(lambda: "\n" in stays.log[said:], "a word of the other daemon")
    noticed = ms_since(since)
    harness.wait_until(lambda: communicator_thread(stays) != thread, "the communicator's end")
    aborted = ms_since(since)
    first = stays.log[said:].splitlines()[0].split(": ", 1)[1]
    killed.wait_log(r"(?s)(knows this gradsyncd as node.*){2}")
    back = ms_since(since)
    training.go_on(more=1)
    again = ms_since(since)
    training.go_on(more=5)
    after = it.communicators("team")
    told = training.end()
    return tell("cluster daemon killed", "yes" if after[0] > before[0] else "no",
                f"{machine.way}: after the kill the other daemon knows it in {noticed:.0f} ms and has ended "
                f"its communicator in {aborted:.0f} ms, a new daemon is in the cluster in {back:.0f} ms, and "
                f"a step is committed in {again:.0f} ms; members were without a commit for "
                f"{max(each['gap_ms'] for each in told)} ms, {max(each['void'] for each in told)} steps were "
                f"void, all averages are right; {it.connected('team')}; the other one said: {first[:200]}",
                begin)


# ---- what daemons add ----

class Ranks:
    """Two processes that use NCCL by themselves."""

    def __init__(self, machine):
        self.ranks = [machine.rank(number) for number in range(2)]
        name, _, ident = self.ranks[0].ask("id").partition(" ")
        assert name == "id", name
        for number, rank in enumerate(self.ranks):
            rank.say(f"init 2 {number} {ident}")
        for rank in self.ranks:
            line = rank.line()
            assert line and line.startswith("ready "), f"{line}: {rank.err}"

    def step(self, size, buckets):
        """Milliseconds."""
        begin = time.monotonic()
        for rank in self.ranks:
            rank.say(f"step {size} {buckets}")
        for rank in self.ranks:
            line = rank.line()
            assert line == "done", f"{line}: {rank.err}"
        return ms_since(begin)


def compare(members, ranks, slot, size, buckets, seconds):
    """(milliseconds of steps by daemons, likewise by NCCL alone), by turns."""
    for each in members:
        ask(each, f"slot {slot}")
        for number in range(buckets):
            ask(each, f"param s{slot}b{number} f32 {size // 4}")
    told = together(members, f"plan first={size} bucket={size}")
    assert {fields(rest)["buckets"] for rest in told} == {str(buckets)}, told
    for _ in range(2):
        step(members)
        ranks.step(size, buckets)
    once = timed(members, "steps 1")[0] + ranks.step(size, buckets)
    rounds = max(3, min(20, int(seconds * 1e3 / once)))
    both = [(timed(members, "steps 1")[0], ranks.step(size, buckets)) for _ in range(rounds)]
    return [ours for ours, _ in both], [theirs for _, theirs in both]


def microseconds(steps, buckets):
    """The median, the least and the most time of a bucket."""
    return [measure(steps) / buckets * 1e3 for measure in (statistics.median, min, max)]


def ask_added(machine):
    """A bucket between two daemons with one member each, and the same allreduce without daemons."""
    sizes = [(4096, 4), (65536, 4)] if machine.small else [(MIB, 32), (4 * MIB, 16), (25 * MIB, 4)]
    ranks = Ranks(machine)
    members = crew(Pair(machine).start_member, None, 2)
    for slot, (size, buckets) in enumerate(sizes, 1):
        begin = time.monotonic()
        ours, theirs = compare(members, ranks, slot, size, buckets, 6)
        each, least, most = microseconds(ours, buckets)
        alone, least_alone, most_alone = microseconds(theirs, buckets)
        name = f"{size // MIB} MiB" if size >= MIB else f"{size // 1024} KiB"
        tell(f"added per bucket of {name}", f"{each - alone:+.1f} us, {each / alone:.2f} times",
             f"{machine.way}: {buckets} buckets in a step, medians of {len(ours)} steps by turns: gradsync "
             f"{each:.1f} us a bucket ({least:.1f} to {most:.1f}), NCCL in process {alone:.1f} us "
             f"({least_alone:.1f} to {most_alone:.1f}); {ONE_GPU}", begin)
    return True


QUESTIONS = {"one-gpu": ("cluster one gpu", ask_one_gpu),
             "member-killed": ("cluster member killed", ask_member_killed),
             "daemon-killed": ("cluster daemon killed", ask_daemon_killed),
             "added": ("added per bucket", ask_added)}


def answer(name, machine):
    """Asks a question. Returns the exit status. A question that fails has a row, too."""
    fact, ask_it = QUESTIONS[name]
    begin = time.monotonic()
    try:
        return 0 if ask_it(machine) else 1
    except BaseException as problem:
        for each in machine.daemons:
            print(f"---- {each.directory.name}:\n{each.log}", file=sys.stderr)
        if not isinstance(problem, Exception):
            raise
        tell(fact, "error", f"{machine.way}: {type(problem).__name__}: {problem}", begin)
        traceback.print_exc()
        return 1


def stop(number, _frame):
    """Out of time: everything is cleared away, however often that is said."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(1)


def main(arguments):
    build = pathlib.Path(os.environ["GRADSYNC_BUILD"]).resolve()
    if not arguments or arguments[-1] not in QUESTIONS:
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, stop)
    machine = Machine(build, arguments[:-1])
    try:
        machine.find()
        return answer(arguments[-1], machine)
    except Skipped as why:
        print(why, file=sys.stderr)
        return SKIPPED
    finally:
        machine.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
