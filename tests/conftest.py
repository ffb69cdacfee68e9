# SPDX-License-Identifier: Apache-2.0
"""What holds for all Python tests: a skipped test is a failed one, unless it needs a GPU."""
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("gpu") is None:
        report.outcome = "failed"
        report.longrepr = f"skipped, though only tests that need a GPU may be: {report.longrepr}"
