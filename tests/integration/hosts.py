# SPDX-License-Identifier: Apache-2.0
"""Tests on hosts of their own; what stands for hosts is in namespaces.py."""
import os
import shutil

import pytest

from namespaces import Hosts  # noqa: F401

needed = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None,
                            reason="network namespaces are root's to make, with ip(8)")
