# SPDX-License-Identifier: Apache-2.0
"""One daemon of the cluster lies. The others live, and their jobs go on with right averages; all that the
liar had there is given back."""
import itertools
import os
import pathlib

import pytest

from clusters import SWIFT
from harness import SANITIZER, wait_until
from lies import Liar

pytestmark = pytest.mark.host

RATE = .25
LIES, ROUND = 160, 20
GONE = 240              # s until the last job of lies has ended: after `abandon`, `death`, its grace
GROWTH = 64 << 10       # KiB that a daemon may have more than before
SCRIPT = ["open reconnect=1000", "join name={name} world=2 rank={rank}", "param a f32 5", "param b f32 3 2",
          "plan", *["fill 1", "ready", "finish"] * 20]


def descriptors(daemon):
    return len(os.listdir(f"/proc/{daemon.pid}/fd"))


def resident(daemon):
    pages = int(pathlib.Path(f"/proc/{daemon.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 10


def train(member, daemons, name):
    """Members of a job that may get to any of its calls; they hear of none."""
    members = [member(daemon) for daemon in daemons]
    for rank, each in enumerate(members):
        for line in SCRIPT:
            each.say(line.format(name=name, rank=rank))
    return members


def is_through(trainer):
    """It has had all of its answers, and the other one may wait for it: perhaps nothing more is said."""
    assert not SANITIZER.search(trainer.err)    # which takes what there is of both
    return trainer.out.count("\n") >= len(SCRIPT)


@pytest.mark.parametrize("up, seed", [(True, 1), (False, 2)], ids=["a node", "a coordinator"])
def test_a_daemon_that_lies(target, member, scratch, up, seed):
    it = target(times={**SWIFT, "heartbeat": "20ms"})
    it.undisturbed = it.job.end
    liar = Liar(scratch / "lies", it.path, up, seed, 0)
    other = it.daemon(config=it.config(coordinator=f"unix:{liar.path}"))
    other.wait_log("knows this gradsyncd as node")
    honest = [it.coordinator, it.nodes[0], other]
    before = [(descriptors(each), resident(each)) for each in honest]
    liar.rate = RATE
    for number in itertools.count():
        if liar.lies >= LIES:
            break
        wanted, members = liar.lies + ROUND, train(member, [it.nodes[0], other], f"lied{number % 3}")
        wait_until(lambda wanted=wanted, members=members: liar.lies >= wanted or
                   any(is_through(each) for each in members), "lies, or all that a member has to do")
        for each in members:
            each.kill()
    it.job.on()
    liar.be_honest()
    for daemon, (count, size) in zip(honest, before):
        if up or daemon != other:       # which keeps a job for as long as its coordinator has told it to
            wait_until(lambda daemon=daemon, count=count: descriptors(daemon) <= count, "descriptors", GONE)
        assert resident(daemon) < size + GROWTH
        assert "Assertion" not in daemon.log and not SANITIZER.search(daemon.log), daemon.log
    liar.close()
    it.job.on()
