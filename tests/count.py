#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints "PASSED FAILED SKIPPED" of JUnit files, as written by pytest and meson. A file without any test counts as one failure."""
import sys
import xml.etree.ElementTree


def count(path):
    passed = failed = skipped = 0
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    if passed + failed + skipped == 0:
        failed = 1
    return passed, failed, skipped


def main(paths):
    totals = [0, 0, 0]
    for path in paths:
        try:
            counts = count(path)
        except (OSError, xml.etree.ElementTree.ParseError) as problem:
            print(f"{path}: {problem}", file=sys.stderr)
            counts = (0, 1, 0)
        totals = [total + more for total, more in zip(totals, counts)]
    print(*totals)


if __name__ == "__main__":
    main(sys.argv[1:])
