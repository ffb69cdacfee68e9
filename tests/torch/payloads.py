# SPDX-License-Identifier: Apache-2.0
"""Skeletons of states that an attacker would send, by seed: right ones that are changed, in their structure
and in their bytes. Each is a state, of the kinds that could have been sent and not much larger than what has
come, or is refused.

    payloads.py [--seed S] [--runs N]
"""
import argparse
import copy
import json
import mmap
import multiprocessing
import os
import random
import resource
import struct
import sys
import time
import warnings

import numpy
import torch

import gradsync
import gradsync.torch
from gradsync.torch import payload

CPU = torch.device("cpu")
MEMORY = 2 << 30            # bytes that a process may have beyond those at its start
BATCH = 20000               # inputs of one process
DEPTH = 6
LARGER = 16                 # times the bytes that have come, and some; numbers and escapes have other lengths
NAMES = [*payload._NAMED, "list", "dict", "tensor", "number", "array"]
ATOMS = [None, True, False, 0, 1, -1, 2, 7, 64, 1 << 31, 10 ** 12, (1 << 61) - 1, 1 << 62, -(1 << 63),
         1 << 200, 0.5, 1e308, float("nan"), float("inf"), "", "a", "1", "AAAAAA==", "cpu", "cuda:1",
         "float32", "bool", "qint8", "<f4", "|u1", "<c16", "|O", "V8", "<f4,<f4", "__reduce__", "\ud800",
         {}, {"list": 1}, []]


class Made:
    """One input: the rest of its life depends on the seed alone."""

    def __init__(self, seed, number, valid):
        self.random = random.Random(f"{seed}/{number}")
        self.valid = valid

    def bytes(self):
        known = self.random.random() < 0.5
        tree = copy.deepcopy(self.random.choice(self.valid)) if known else self.tree(DEPTH)
        for _ in range(self.random.choice([0, 1, 1, 2, 5])):
            tree = self.changed(tree)
        text = json.dumps(tree).encode()
        return self.spoiled(bytearray(text)) if self.random.random() < 0.2 else text

    def tree(self, depth):
        if depth == 0 or self.random.random() < 0.3:
            return self.random.choice(ATOMS)
        name, several = self.random.choice(NAMES), range(self.random.randrange(4))
        if name == "dict":
            return [name, *([self.tree(depth - 1), self.tree(depth - 1)] for _ in several)]
        if name == "tensor":
            return [name, self.random.choice(["float32", "int8", "nothing"]), self.shape(), True]
        if name in ("number", "array"):
            return [name, self.random.choice(["<f4", "<i8", "|b1", "|O"]), self.shape(), self.tree(1)]
        inner = ["list", *(self.tree(depth - 1) for _ in several)]
        if name == "list" or self.random.random() < 0.1:
            return [name, *inner[1:]]
        return [name, inner if self.random.random() < 0.7 else self.tree(depth - 1)]

    def shape(self):
        return [self.random.choice([0, 1, 2, 3, -1, 1 << 40]) for _ in range(self.random.randrange(3))]

    def changed(self, tree):
        """Somewhere."""
        if type(tree) is not list or not tree or self.random.random() < 0.2:
            return self.random.choice([self.tree(2), ["list", tree], [self.random.choice(NAMES), tree], tree])
        at = self.random.randrange(len(tree))
        how = self.random.randrange(8)
        if how == 0:
            del tree[at]
        elif how == 1:
            tree.insert(at, copy.deepcopy(self.random.choice(tree)))
        elif how == 2:
            tree[at] = self.random.choice(NAMES)
        elif how == 3:
            tree[at] = self.random.choice(ATOMS)
        else:
            tree[at] = self.changed(tree[at])
        return tree

    def spoiled(self, data):
        for _ in range(self.random.choice([1, 1, 2, 8])):
            at = self.random.randrange(len(data) + 1)
            how = self.random.randrange(4)
            if how == 0:
                data[at:at] = self.random.choice([b"[", b"]", b"\"", b",", b"\0", b"\xff", b"9", b"[" * 3000])
            elif how == 1:
                del data[at:at + self.random.choice([1, 1, 4, 1000])]
            elif at < len(data):
                data[at] ^= 1 << self.random.randrange(8) if how == 2 else 0x80
        return bytes(data)


def check(skeleton):
    """Whether a skeleton was a state. ProtocolError is the one refusal; other exceptions are passed on."""
    try:
        state, tensors = payload.put_together(skeleton, CPU)
    except gradsync.ProtocolError:
        return False
    try:
        again, named = payload.take_apart(state)
    except ValueError as problem:       # take_apart() needs more of the stack
        assert "nested too deeply" in str(problem), problem
        return True
    assert len(again) <= LARGER * len(skeleton) + 200, f"{len(again)} bytes of {len(skeleton)}"
    assert len(named) <= len(tensors)
    return True


def batch(seed, numbers, valid, at):
    """Checks inputs in a process that may die: `at` holds the number of the present input, and how many
    inputs were states."""
    size = int(open("/proc/self/statm", encoding="ascii").read().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    states = 0
    for number in numbers:
        at[:8] = struct.pack("<q", number)
        states += check(Made(seed, number, valid).bytes())
    at[8:] = struct.pack("<q", struct.unpack("<q", at[8:])[0] + states)


def search(seed, first, runs, valid):
    """(inputs that were states, None or what was wrong)."""
    at = mmap.mmap(-1, 16)
    for start in range(first, first + runs, BATCH):
        numbers = range(start, min(start + BATCH, first + runs))
        process = multiprocessing.get_context("fork").Process(target=batch, args=(seed, numbers, valid, at))
        process.start()
        process.join()
        number, states = struct.unpack("<qq", at[:])
        if process.exitcode != 0:
            return states, (f"seed {seed}, input {number}: exit status {process.exitcode}: "
                            f"{Made(seed, number, valid).bytes()[:500]!r}")
    return states, None


def valid_ones(states):
    return [json.loads(payload.take_apart(state)[0]) for state in states]


def main():
    parser = argparse.ArgumentParser(prog="payloads.py", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seed", type=int, default=int(os.environ.get("GRADSYNC_TEST_SEED", "1")))
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--runs", type=int, default=100000)
    options = parser.parse_args()
    began = time.monotonic()
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
    valid = valid_ones([model.state_dict(), {"step": 3, (1, 2): {4}},
                        [numpy.arange(3), numpy.float32(1), b"xy", 1j]])
    states, problem = search(options.seed, options.first, options.runs, valid)
    print(problem or f"{options.runs} inputs, of which {states} were states, "
                     f"in {time.monotonic() - began:.0f} s")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
