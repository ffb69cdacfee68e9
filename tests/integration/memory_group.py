# SPDX-License-Identifier: Apache-2.0
"""A memory cgroup of our own, whose account says what the processes in it, above all a daemon, were the first
to touch."""
import errno
import pathlib
import tempfile

from harness import wait_until


class MemoryGroup:
    """A memory cgroup (v1 or v2) of our own, if this machine lets us make one."""

    def __init__(self):
        self.path, self.usage, self.most = None, None, None
        for root, usage, most in self.places():
            try:
                path = pathlib.Path(tempfile.mkdtemp(prefix="gradsync-test-", dir=root))
            except OSError:
                continue
            if (path / usage).exists() and (path / "cgroup.procs").exists():
                self.path, self.usage, self.most = path, path / usage, path / most
                return
            path.rmdir()

    @staticmethod
    def places():
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
            left, right = line.split(" - ")
            point, kind, options = left.split()[4], right.split()[0], right.split()[-1]
            if kind == "cgroup" and "memory" in options.split(","):
                yield point, "memory.usage_in_bytes", "memory.limit_in_bytes"
            elif kind == "cgroup2":
                yield point, "memory.current", "memory.max"

    def used(self):
        """Bytes of all memory charged to this group."""
        return int(self.usage.read_text())

    def limit(self, more):
        """The group may have so many bytes more than now; a process that needs more is killed."""
        self.most.write_text(str(self.used() + more))

    def close(self):
        if self.path:
            wait_until(self._removed, "an empty group")

    def _removed(self):
        try:
            self.path.rmdir()
        except OSError as problem:      # its last process is still on its way out
            if problem.errno != errno.EBUSY:
                raise
            return False
        return True
