# SPDX-License-Identifier: Apache-2.0
"""A process between two hosts writes to the state that a new process takes: it is refused by name, nothing of
it is loaded, and the next process takes the state as it is."""
import struct
import sys
import textwrap

import pytest

from between import Between, able
from conftest import ENVIRONMENT
from harness import LONG, Program
from hosts import hosts, needed  # noqa: F401

pytestmark = [needed, able, pytest.mark.heavy, pytest.mark.xdist_group("hosts")]
TEXT, NUMBER = "how the others went on", 0x5A17C0DE12345678
CHANGES = {"skeleton": (TEXT.encode(), TEXT.upper().encode()),
           "tensors": (struct.pack("<q", NUMBER), struct.pack("<q", NUMBER + 1))}

TRAINER = f"""
    import torch
    import gradsync
    import gradsync.torch

    class Part:
        def __init__(self):
            self.state = {{"texts": [{TEXT!r}] * 64, "numbers": torch.full((4096,), {NUMBER})}}

        def state_dict(self):
            return self.state

        def load_state_dict(self, state):
            same = (state["texts"] == self.state["texts"] and
                    torch.equal(state["numbers"], self.state["numbers"]))
            print("loaded", "as it was" if same else "something else", flush=True)

    model = gradsync.torch.DistributedDataParallel(torch.nn.Linear(8, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    state = gradsync.State(part=Part(), model=model, opt=opt)
    began = state.count
    while True:
        for attempt in state.step():
            with attempt:
                opt.zero_grad()
                model(torch.ones(4, 8)).sum().backward()
                opt.step()
        if state.count == began + 10:
            print("steps", flush=True)
"""


@pytest.fixture
def train(hosts, processes):  # noqa: F811
    """The hosts, a process between them, and start(rank): a process of that rank."""
    it = hosts(2, settings={"drain_timeout": "50ms"})
    between = Between(it, processes)

    def start(rank):
        env = {**ENVIRONMENT, "OMP_NUM_THREADS": "1", "GRADSYNC_JOB": "job", "GRADSYNC_WORLD_SIZE": "2",
               "GRADSYNC_RANK": str(rank), "GRADSYNC_REJOIN_GRACE": "3600"}
        made = Program(sys.executable, "-c", textwrap.dedent(TRAINER), env=env, socket=it.nodes[rank].socket,
                       prefix=it.inside(rank))
        processes.append(made)
        return made
    return between, start


def takes_the_state(process):
    lines = [process.line(LONG), process.line(LONG)]
    return lines == ["loaded as it was", "steps"] or pytest.fail(f"{lines}\n{process.told()}")


@pytest.mark.parametrize("what", CHANGES)
def test_a_state_that_was_changed_is_refused(train, what):
    between, start = train
    ranks = [start(0), start(1)]
    for each in ranks:
        assert each.line(LONG) == "steps", each.told()
    between.change(*CHANGES[what])
    ranks[1].kill()
    ranks[1] = start(1)
    assert ranks[1].line(LONG) is None, ranks[1].told()     # nothing was loaded
    assert ranks[1].wait(LONG) == 1 and between.change()
    assert "gradsync.errors.ProtocolError: job 'job': the data that rank 0 sent in operation " in ranks[1].err
    assert "(sealed broadcast) was changed on its way between hosts" in ranks[1].err
    takes_the_state(start(1))


def test_what_only_passes_is_taken(train):
    _between, start = train
    ranks = [start(0), start(1)]
    for each in ranks:
        assert each.line(LONG) == "steps", each.told()
    ranks[1].kill()
    takes_the_state(start(1))
