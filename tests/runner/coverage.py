# SPDX-License-Identifier: Apache-2.0
"""A table of lines and branches by folder, of a JSON summary of gcovr."""
import collections
import json
import pathlib
import sys


def main(path):
    folders = collections.defaultdict(collections.Counter)
    for file in json.loads(pathlib.Path(path).read_text())["files"]:
        for folder in (str(pathlib.PurePath(file["filename"]).parent), "total"):
            folders[folder] += collections.Counter({
                key: file[key] for key in ("line_total", "line_covered", "branch_total", "branch_covered")})
    print(f"{'folder':32} {'lines':>7} {'run':>6} {'branches':>9} {'run':>6}")
    for folder, n in sorted(folders.items(), key=lambda entry: (entry[0] == "total", entry[0])):
        print(f"{folder:32} {n['line_total']:7} {n['line_covered'] / max(1, n['line_total']):6.1%}"
              f" {n['branch_total']:9} {n['branch_covered'] / max(1, n['branch_total']):6.1%}")


if __name__ == "__main__":
    main(sys.argv[1])
