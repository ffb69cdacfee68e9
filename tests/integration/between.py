# SPDX-License-Identifier: Apache-2.0
"""A process between two hosts that writes to what Gloo sends."""
import pathlib
import shutil
import subprocess
import sys

import pytest

from harness import LONG, Program

CHANGER = pathlib.Path(__file__).with_name("changer.py")
PORT, UID = 9999, 12345
#: Ports that the kernel gives, as those of Gloo; the coordinator's is another one.
ASTRAY = f"""table ip astray {{
    chain those {{
        type nat hook output priority -100
        tcp dport 32768-60999 meta skuid != {UID} redirect to :{PORT}
    }}
}}
"""
able = pytest.mark.skipif(shutil.which("nft") is None, reason="connections are led astray by nft(8)")


class Between:
    """The process between the hosts runs on both of them."""

    def __init__(self, it, processes):
        self.made = []
        for host in range(2):
            subprocess.run([*it.inside(host), "nft", "-f", "-"], input=ASTRAY, text=True, check=True)
            self.made.append(Program(sys.executable, CHANGER, PORT, UID, prefix=it.inside(host)))
            processes.append(self.made[-1])
            assert self.made[-1].line(LONG) == "ready"

    def change(self, *words):
        """The first of these becomes the second from now on; nothing does without them. Whether what was said
        before has changed anything, in a process that has ended, or has been told."""
        lines = []
        for each in self.made:
            each.say(" ".join(word.hex() for word in words))
            lines.append(each.line(LONG))
            while lines[-1] == "changed":
                lines.append(each.line(LONG))
            assert lines[-1] == "taken"
        return "changed" in lines
