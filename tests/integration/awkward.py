# SPDX-License-Identifier: Apache-2.0
"""Descriptors whose close() waits as long as a test likes: a socket that lingers for a peer that does not read, and a file of a file
system that does not answer."""
import contextlib
import ctypes
import errno
import os
import socket
import struct
import tempfile
import threading

libc = ctypes.CDLL(None, use_errno=True)
HOURS = 36000                           # seconds
MNT_DETACH = 2


class Lingering:
    """A TCP socket with unsent data and a long SO_LINGER. The process that closes it last waits until
    release()."""

    def __init__(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            self.sock = socket.create_connection(listener.getsockname())
            self.other, _ = listener.accept()
        self.sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.sock.send(bytes(65536))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, HOURS))
        self.fd = self.sock.fileno()

    def sent(self):
        """It is on its way: this process does not hold it any more."""
        self.sock.close()

    def release(self):
        self.other.close()              # with unread data: a reset
        self.sent()


class Unanswering:
    """A file of a file system of our own (FUSE), which from sent() on does not answer when others than this process close it, until
    release()."""

    INIT, LOOKUP, GETATTR, OPEN, FLUSH, RELEASE = 26, 1, 3, 14, 25, 18
    SILENT = (2, 36, 42)                # FORGET, INTERRUPT, BATCH_FORGET: have no answer
    HEAD = struct.Struct("<IIQQIIII")   # length, opcode, unique, node, uid, gid, pid, padding

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="gs-fuse-", dir="/tmp")
        self.device = self.fd = self.thread = None
        try:
            self.device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
            options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
            if libc.mount(b"awkward", self.directory.encode(), b"fuse", 6, options) < 0:        # NOSUID, NODEV
                raise OSError(ctypes.get_errno(), "mount")
        except OSError:
            self.release()
            raise
        self.silent = False
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        self.fd = os.open(f"{self.directory}/file", os.O_RDWR | os.O_CLOEXEC)

    @staticmethod
    def _attributes(node):
        mode = 0o40755 if node == 1 else 0o100666
        return struct.pack("<QQQQQQIIIIIIIIII", node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _answer(self, request):
        """(error, data), or None."""
        _, opcode, _, node, _, _, pid, _ = self.HEAD.unpack_from(request)
        if opcode in self.SILENT:
            return None
        if opcode == self.INIT:
            return 0, struct.pack("<IIIIHHIIHHI28x", 7, 23, 0, 0, 12, 10, 4096, 1, 0, 0, 0)[:24]
        if opcode == self.LOOKUP:
            return 0, struct.pack("<QQQQII", 2, 0, 60, 60, 0, 0) + self._attributes(2)
        if opcode == self.GETATTR:
            return 0, struct.pack("<QII", 60, 0, 0) + self._attributes(node)
        if opcode == self.OPEN:
            return 0, struct.pack("<QII", 1, 0, 0)
        if opcode == self.FLUSH and self.silent and pid != os.getpid():
            return None
        return (0 if opcode in (self.FLUSH, self.RELEASE) else -errno.ENOSYS), b""

    def _serve(self):
        while True:
            try:
                request = os.read(self.device, 1 << 17)
            except OSError as problem:
                if problem.errno in (errno.ENOENT, errno.EINTR):
                    continue
                return                  # it is not mounted any more
            answer = self._answer(request)
            if answer is not None:
                error, data = answer
                unique = self.HEAD.unpack_from(request)[2]
                with contextlib.suppress(FileNotFoundError):    # the caller waits no more
                    os.write(self.device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)

    def sent(self):
        """As above."""
        self.silent = True
        if self.fd is not None:
            os.close(self.fd)
        self.fd = None

    def release(self):
        """Processes that wait get an error."""
        self.sent()
        libc.umount2(self.directory.encode(), 1 | MNT_DETACH)   # FORCE: ends what waits
        if self.thread is not None:
            self.thread.join()          # or it might read from what gets the number of its descriptor next
        if self.device is not None:
            os.close(self.device)
        self.device = None
        with contextlib.suppress(OSError):
            os.rmdir(self.directory)


def kinds():
    """The kinds that are possible here: not every user may mount."""
    try:
        Unanswering().release()
    except OSError:
        return [Lingering]
    return [Lingering, Unanswering]
