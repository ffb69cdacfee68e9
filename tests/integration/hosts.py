# SPDX-License-Identifier: Apache-2.0
"""Tests on hosts of their own, with a daemon on each; what stands for hosts is in namespaces.py."""
import os
import shutil

import pytest

from clusters import HELPER, PATIENT, cluster_text, write_key
from namespaces import Hosts

needed = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None,
                            reason="network namespaces are root's to make, with ip(8)")


@pytest.fixture
def hosts(daemon, build, scratch):
    """hosts(n) -> namespaces.Hosts with .nodes, a daemon on each; the first one coordinates, over TLS."""
    made = []

    def start(n):
        it = Hosts(n)
        made.append(it)
        common = {"key_file": write_key(scratch / "key"), "gloo_helper": build / HELPER}
        it.nodes = []
        for i in range(n):
            how = {"coordinator": f"{it.address(0)}:7700"}
            if i == 0:
                how = {"coordinator": "self", "listen": "eth0:7700"}
            it.nodes.append(daemon(config=cluster_text(host_id=f"host{i}", **how, **common, **PATIENT),
                                   settings={"rejoin_grace": "60s"}, prefix=it.inside(i)))
        for node in it.nodes[1:]:
            node.wait_log("knows this gradsyncd as node")
        return it

    yield start
    for it in made:
        it.close()
