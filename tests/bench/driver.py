# SPDX-License-Identifier: Apache-2.0
"""Arguments of bench.py, cluster_bench.py and strangers_bench.py, and how their rows are printed."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from contender import Failed
from report import progress


def parser_of(prog, description):
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--build", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print only the rows, one JSON object a line")
    parser.add_argument("--quick", action="store_true",
                        help="fewer rounds: to see whether it works, not for figures")
    return parser


def run(options, rows_of, text_of):
    """Prints the rows of rows_of(options, directory) as they come, or all of them as text_of(rows, load).
    Returns the exit status, the rows and the text."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)   # also when told to stop, leave nothing
    sys.stdout.reconfigure(encoding="utf-8")
    rows, load, directory = [], os.getloadavg()[0], tempfile.mkdtemp(prefix="gradsync-bench.")
    try:
        for row in rows_of(options, directory):
            rows.append(row)
            if options.json:
                print(json.dumps(row), flush=True)
    except (Failed, subprocess.CalledProcessError) as e:
        print(f"\nfailed: {e}", file=sys.stderr)
        return 1, rows, ""
    except KeyboardInterrupt:
        return 130, rows, ""
    finally:
        progress("")
        shutil.rmtree(directory, ignore_errors=True)
    text = text_of(rows, load)
    if not options.json:
        print(text, end="")
    return 0, rows, text
