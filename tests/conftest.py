# SPDX-License-Identifier: Apache-2.0
"""Rules for all Python tests: a skipped test counts as failed, unless it has a marker for something that the
machine may lack.

A GPU, or CUDA to build with, may be missing anywhere; a service manager, and the right to make a memory
cgroup, may not be missing in continuous integration.
"""
import os
import random

import pytest

MAY_BE_SKIPPED = ("gpu", "cuda") if os.environ.get("CI") else ("gpu", "cuda", "manager", "cgroup")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    allowed = any(item.get_closest_marker(name) for name in MAY_BE_SKIPPED)
    if report.skipped and not hasattr(report, "wasxfail") and not allowed:
        report.outcome = "failed"
        report.longrepr = f"skipped, though only tests of {', '.join(MAY_BE_SKIPPED)} may be: {report.longrepr}"


def pytest_addoption(parser):
    parser.addoption("--shuffle", metavar="SEED", help="run the tests in random order")


def pytest_collection_modifyitems(config, items):
    seed = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)
