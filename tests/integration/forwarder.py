# SPDX-License-Identifier: Apache-2.0
"""A way that takes its time: whatever is routed into the TUN interface that this program makes comes out of
it again after a while, in order, or gets lost.

    forwarder.py INTERFACE DELAY_MS LOST SEED

LOST is the share of packets that get lost, from 0 to 1. It says "ready" when the interface is there. When its
standard input ends it passes on what it still has, and ends.
"""
import collections
import fcntl
import os
import random
import select
import struct
import sys
import time

DEVICE = "/dev/net/tun"
TUNSETIFF = 0x400454ca
IFF_TUN, IFF_NO_PI = 0x1, 0x1000
LARGEST = 65536


def open_tun(name):
    tun = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return tun


def take(tun):
    """The packets that are there."""
    while True:
        try:
            yield os.read(tun, LARGEST)
        except BlockingIOError:
            return


def pass_on(tun, delay, lost, chance):
    """Until standard input ends and nothing is left."""
    queue, inputs = collections.deque(), [tun, sys.stdin.fileno()]
    while queue or len(inputs) > 1:
        wait = max(queue[0][0] - time.monotonic(), 0) if queue else None
        ready, _, _ = select.select(inputs, [], [], wait)
        if sys.stdin.fileno() in ready and not os.read(sys.stdin.fileno(), 100):
            inputs.remove(sys.stdin.fileno())
        due = time.monotonic() + delay
        queue.extend((due, packet) for packet in take(tun) if chance.random() >= lost)
        while queue and queue[0][0] <= time.monotonic():
            os.write(tun, queue.popleft()[1])


def main(name, delay_ms, lost, seed):
    tun = open_tun(name)
    print("ready", flush=True)
    pass_on(tun, float(delay_ms) / 1000, float(lost), random.Random(int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
