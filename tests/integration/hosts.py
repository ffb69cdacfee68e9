# SPDX-License-Identifier: Apache-2.0
"""Tests on hosts of their own, with a daemon on each; what stands for hosts is in namespaces.py."""
import os
import shutil

import pytest

from clusters import HELPER, PATIENT, cluster_text, write_key
from forwarder import DEVICE
from namespaces import Hosts, Routed

# For tests of what networks do.
on_network = pytest.mark.skipif(shutil.which("nft") is None or not os.path.exists(DEVICE),
                                reason="a router loses packets by nft(8) and delays them by a TUN interface")
needed = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None,
                            reason="network namespaces are root's to make, with ip(8)")


@pytest.fixture
def hosts(daemon, build, scratch):
    """hosts(n, kind=Hosts, times=PATIENT, settings={}) -> such hosts with .nodes, a daemon on each; the first
    coordinates, over TLS."""
    made = []

    def start(n, kind=Hosts, times=PATIENT, settings=None):
        it = kind(n)
        made.append(it)
        common = {"key_file": write_key(scratch / "key"), "gloo_helper": build / HELPER}
        it.nodes = []
        for i in range(n):
            how = {"coordinator": f"{it.address(0)}:{Routed.port}"}
            if i == 0:
                how = {"coordinator": "self", "listen": f"eth0:{Routed.port}"}
            it.nodes.append(daemon(config=cluster_text(host_id=f"host{i}", **how, **common, **times),
                                   settings={"rejoin_grace": "60s", **(settings or {})}, prefix=it.inside(i)))
        for node in it.nodes[1:]:
            node.wait_log("knows this gradsyncd as node")
        return it

    yield start
    for it in made:
        it.close()
