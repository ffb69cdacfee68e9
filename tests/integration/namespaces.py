# SPDX-License-Identifier: Apache-2.0
"""Network namespaces that stand for hosts: each has an interface of its own on a bridge that joins them."""
import os
import subprocess


def ip(*arguments):
    subprocess.run(["ip", *map(str, arguments)], check=True, capture_output=True)


class Hosts:
    """`n` namespaces; host i has the address 10.78.0.i+1 on its interface eth0."""

    def __init__(self, n):
        self.names = [f"gs{os.getpid()}h{i}" for i in range(n)]
        self.bridge = f"gs{os.getpid()}br"
        self.made = []
        try:
            self.build()
        except BaseException:
            self.close()
            raise

    def build(self):
        self.add(self.bridge)
        ip("-n", self.bridge, "link", "add", "br0", "type", "bridge")
        ip("-n", self.bridge, "link", "set", "br0", "up")
        for i, name in enumerate(self.names):
            self.add(name)
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"p{i}", "netns",
               self.bridge)
            ip("-n", self.bridge, "link", "set", f"p{i}", "master", "br0", "up")
            ip("-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")

    def add(self, name):
        ip("netns", "add", name)
        self.made.append(name)
        ip("-n", name, "link", "set", "lo", "up")

    def address(self, i):
        return f"10.78.0.{i + 1}"

    def inside(self, i):
        """What a command line begins with there."""
        return ("ip", "netns", "exec", self.names[i])

    def plug(self, i, up):
        """The cable of that host."""
        ip("-n", self.bridge, "link", "set", f"p{i}", "up" if up else "down")

    def close(self):
        for name in self.made:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
