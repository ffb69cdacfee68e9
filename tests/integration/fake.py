# SPDX-License-Identifier: Apache-2.0
"""A daemon that says what a test wants: other versions, hostile names, states that are hard to bring about, or nothing."""
import contextlib
import socket
import threading

import wire


class FakeDaemon:
    """Listens at `path` until closed, in a thread of the test. `answer` is a list of (kind, message) sent for each STATUS, `trace`
    for each TRACE but the question for nodes, which is answered with none."""

    def __init__(self, path, answer=(), version="0.1.0", device="cpu", major=wire.MAJOR, refuse=None, trace=(), minor=wire.MINOR):
        self.path = str(path)
        self.answer, self.version, self.device, self.major, self.refuse = list(answer), version, device, major, refuse
        self.trace, self.minor = list(trace), minor
        self.asked = []                 # jobs asked for
        self.refused = 0                # clients
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self.listener.bind(self.path)
        self.listener.listen(8)
        self.ends = [self.listener]     # and the client that it talks with
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def close(self):
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def _serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.ends[1:] = [client]
            with client:
                try:
                    self._talk(client)
                except (ConnectionResetError, BrokenPipeError):
                    pass                # it has heard enough

    def _talk(self, client):
        while data := client.recv(wire.FRAME_MAX):
            head, message = wire.parse(data)
            if self.refuse:
                self.refused += 1
                self._send(client, head, "REFUSED", wire.pb.Refused(code=wire.pb.Code.Value(self.refuse[0]), text=self.refuse[1]))
                return
            if head.type == wire.pb.HELLO:
                self._send(client, head, "WELCOME", wire.pb.Welcome(minor=self.minor, instance=1, device=self.device, version=self.version))
            elif head.type == wire.pb.STATUS:
                self.asked.append(message.job)
                for kind, answer in [("STATUS_DAEMON", wire.pb.StatusDaemon(device=self.device, version=self.version, pid=1)),
                                     *self.answer, ("STATUS_END", wire.pb.StatusEnd(found=True))]:
                    self._send(client, head, kind, answer)
            elif head.type == wire.pb.TRACE:
                nodes = [("TRACE_END", wire.pb.TraceEnd(found=True))]
                for kind, answer in nodes if message.nodes else self.trace:
                    self._send(client, head, kind, answer)

    def _send(self, client, head, kind, message):
        client.send(wire.frame(kind, message, request=head.request, major=self.major))
