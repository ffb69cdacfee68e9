# SPDX-License-Identifier: Apache-2.0
"""Stops one thread of another process, as no signal can."""
import ctypes
import os
import pathlib

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000


class Traced:
    """One thread, stopped by ptrace while the other threads of its process go on."""

    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long

    def __init__(self, tid):
        self.tid = tid
        self._ptrace(PTRACE_SEIZE)
        self._ptrace(PTRACE_INTERRUPT)
        assert os.waitpid(tid, WALL)[0] == tid

    def _ptrace(self, request):
        if self.libc.ptrace(request, self.tid, None, None) < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"ptrace {request:#x}: {os.strerror(code)}")

    def release(self):
        self._ptrace(PTRACE_DETACH)

    def killed(self):
        """Whether it has ended with its process; until this is asked for, the process lingers as a zombie."""
        return os.waitpid(self.tid, WALL | os.WNOHANG)[0] == self.tid


def thread(pid, name):
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int(task.name)
    raise AssertionError(f"no thread {name}")
