# SPDX-License-Identifier: Apache-2.0
"""What holds for all Python tests: a skipped test is a failed one, unless it needs a GPU, or CUDA to build with."""
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    allowed = any(item.get_closest_marker(name) for name in ("gpu", "cuda"))
    if report.skipped and not hasattr(report, "wasxfail") and not allowed:
        report.outcome = "failed"
        report.longrepr = f"skipped, though only tests that need a GPU or CUDA may be: {report.longrepr}"
