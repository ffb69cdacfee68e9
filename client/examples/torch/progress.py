# SPDX-License-Identifier: Apache-2.0
"""A line that says how far a training is: loss, and how long steps take."""
import statistics
import sys
import time


class Progress:
    """Of rank 0; the other ranks are silent."""

    def __init__(self, steps, shown):
        self.steps, self.shown = steps, shown
        self.times, self.last = [], time.perf_counter()

    def step(self, count, loss):
        now = time.perf_counter()
        self.times.append(now - self.last)
        self.last = now
        if self.shown and (count % 20 == 0 or count == self.steps):
            recent = 1e3 * statistics.median(self.times[-100:])
            end = "\n" if count == self.steps or not sys.stdout.isatty() else "\r"
            print(f"step {count}/{self.steps}  loss {loss:.3f}  {recent:.1f} ms a step", end=end, flush=True)
