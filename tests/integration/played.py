# SPDX-License-Identifier: Apache-2.0
"""A daemon that a test plays for the real library, frame by frame: right, or wrong where the test says so."""
import os
import socket

import harness
import wire

SECRET = bytes(range(32))


class PlayedDaemon:
    """Serves one member of a job of one as a daemon would, with `suffix` after every message."""

    def __init__(self, path, minor=wire.MINOR, suffix=b"", major=wire.MAJOR):
        self.minor, self.suffix, self.major = minor, suffix, major
        self.heard = []
        self.plans = {}
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self.listener.settimeout(harness.DEADLINE)
        self.listener.bind(str(path))
        self.listener.listen(1)

    def send(self, kind, request, /, fds=(), **fields):
        payload = wire.message(kind, **fields).SerializeToString() + self.suffix
        data = wire.frame(kind, payload, request, len(fds), major=self.major)
        if fds:
            socket.send_fds(self.link, [data], fds)
        else:
            self.link.send(data)

    def serve(self):
        """Until the client closes."""
        self.link, _ = self.listener.accept()
        self.link.settimeout(harness.DEADLINE)
        with self.link:
            while True:
                try:
                    data, fds, _, _ = socket.recv_fds(self.link, wire.FRAME_MAX, 4)
                except ConnectionResetError:
                    return
                except TimeoutError:
                    raise AssertionError(f"nothing more after {self.heard}") from None
                for fd in fds:
                    os.close(fd)
                if not data:
                    return
                head, message = wire.parse(data)
                kind = wire.name(head.type)
                self.heard.append(kind)
                getattr(self, "on_" + kind.lower())(head.request, message)

    def close(self):
        self.listener.close()
        for fds, _, _ in self.plans.values():
            for fd in fds:
                os.close(fd)

    def on_hello(self, request, hello):
        self.welcome(request, 7)

    def welcome(self, request, instance):
        self.send("WELCOME", request, minor=self.minor, instance=instance, device="cpu", version="0.2.0",
                  staging_bytes=1 << 20)

    def on_join(self, request, join):
        assert (join.job, join.min_world, join.max_world) == ("played", 1, 1)
        self.joined(request, 0)

    def joined(self, request, rank):
        self.send("JOINED", request, job=9, generation=4, rank=rank, local_rank=0, world=1, member=77,
                  secret=SECRET)

    def on_plan_begin(self, request, begin):
        assert (begin.job, begin.generation) == (9, 4)
        self.plans[begin.plan] = ([], begin, [])

    def on_plan_params(self, request, chunk):
        assert chunk.job == 9 and chunk.plan in self.plans

    def on_plan_buckets(self, request, chunk):
        self.plans[chunk.plan][2].extend(chunk.bucket)

    def on_plan_commit(self, request, commit):
        _, begin, buckets = self.plans[commit.plan]
        assert len(buckets) == begin.buckets
        fds = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("arena", "control")]
        for fd, size in zip(fds, (begin.arena_bytes, begin.control_bytes)):
            os.ftruncate(fd, size)
        self.plans[commit.plan] = (fds, begin, buckets)
        self.send("PLAN_ARENA", request, fds=fds, job=9, plan=commit.plan, bytes=begin.arena_bytes)

    def on_plan_mapped(self, request, mapped):
        self.send("PLAN_AGREED", request, job=9, generation=4, plan=mapped.plan, step=0)

    def on_ready(self, request, ready):
        """A result that no real daemon would give, so that it is seen where it comes from."""
        (fd, *_), _, buckets = self.plans[ready.plan]
        bucket = buckets[ready.bucket]
        os.pwrite(fd, b"\x00\x00\x28\x42" * (bucket.bytes // 4), bucket.offset)         # 42.0
        step = {"job": 9, "plan": ready.plan, "step": ready.step}
        self.send("STALL", 0, **step, generation=4, rank=0, pid=os.getpid(), process_state="running",
                  bucket=ready.bucket, since_ms=1000, text="a notice that changes nothing")
        last = ready.bucket == len(buckets) - 1
        self.send("STEP", 0, **step, generation=3, outcome=wire.pb.VOID, text="of another generation")
        self.send("STEP", 0, **step, generation=4,
                  result=[wire.pb.BucketResult(bucket=ready.bucket, sum_squares=1.0, rank_sum_squares=[1.0])],
                  **({"outcome": wire.pb.COMMITTED} if last else {}))

    def on_plan_drop(self, request, drop):
        self.send("PLAN_DROPPED", request, job=9, plan=drop.plan)

    def on_leave(self, request, leave):
        self.send("LEFT", request, job=leave.job)
