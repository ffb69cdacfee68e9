# SPDX-License-Identifier: Apache-2.0
"""Daemons of one release or another, with the helpers and gradsyncctl of the same."""
import os
import re

import harness
from clusters import HELPER


def config_of(release, text):
    """A configuration file whose helpers are that release's."""
    return re.sub(r"(?m)^gloo_helper = .*$", f"gloo_helper = {release / HELPER}", text)


def replace(served, release):
    """Stopped in good order, and started again from another build, with its helpers and gradsyncctl."""
    harness.stop(served)
    served.build = release
    served.config.write_text(config_of(release, served.config.read_text()))
    served.start()
    assert os.readlink(f"/proc/{served.pid}/exe") == str(release / harness.DAEMON)
