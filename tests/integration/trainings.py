# SPDX-License-Identifier: Apache-2.0
"""Trainings by client/examples/digits.c: by one process, and by members, which must be the same one."""
import pathlib

import pytest

import harness
from harness import events

DATA = pathlib.Path(__file__).resolve().parents[2] / "client/examples/data/digits.csv.gz"
EPOCHS = 30
TOLERANCE = 1e-4                        # relative, of each epoch's loss; rounding alone makes some 1e-6
TRAIN_ROWS = 1797 - 360
BATCH = 48

# Pinned here, so that other defaults of the program do not change what is compared.
SETTING = ["--json", "--epochs", EPOCHS, "--batch", BATCH, "--lr", 0.05, "--momentum", 0.9, "--seed", 1]


def kind(found, name, rank=0):
    return [event for event in found if event["event"] == name and event["rank"] == rank]


def curve(found, rank=0):
    return [event["loss"] for event in kind(found, "epoch", rank)]


def difference(reference, other):
    assert len(reference) == len(other)
    return max(abs(a - b) / a for a, b in zip(reference, other))


@pytest.fixture(scope="module")
def single(build):
    """The events of one process alone, without a daemon."""
    program = harness.Program(build / harness.DIGITS, *SETTING)
    try:
        assert program.wait(harness.LONG) == 0, program.err
        return events(program.out)
    finally:
        program.destroy()


def digits(nodes, program, members, *arguments):
    """All members of one training, on these daemons in turn; their events by rank."""
    started = [program(harness.DIGITS, *SETTING, *arguments, socket=nodes[rank % len(nodes)].socket,
                       env={"GRADSYNC_JOB": "digits", "GRADSYNC_WORLD_SIZE": members, "GRADSYNC_RANK": rank})
               for rank in range(members)]
    statuses = [each.wait(harness.LONG) for each in started]
    said = [each.told()[-700:] for each in started] + [each.log for each in nodes]
    assert not any(statuses), "\n".join(said)
    return [events(each.out) for each in started]


def same_training(told, single):
    """The members of digits() have the losses of a single process, for as many epochs, and all end with the
    same bits."""
    for rank, each in enumerate(told):
        losses = curve(each, rank)
        assert losses and difference(curve(single)[:len(losses)], losses) < TOLERANCE
        assert kind(each, "start", rank)[0]["world"] == len(told)
    ends = [kind(each, "end", rank)[0]["hash"] for rank, each in enumerate(told)]
    assert len(set(ends)) == 1, ends
