#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the benchmark and runs it; see bench.py for what it measures.
#
#   sh tests/bench/run.sh             tables for people
#   sh tests/bench/run.sh --json      only the rows, one JSON object a line
#   sh tests/bench/run.sh --quick     fewer rounds: whether it works, not for figures
#   sh tests/bench/run.sh --install   first installs the Debian packages that it needs (else it names what is missing)
#   sh tests/bench/run.sh --help      the rest
#
# Exit status 1 if it cannot be built or a contender fails. The build goes to build-bench/. Leave the machine alone meanwhile.
set -eu

ROOT=$(cd "$(dirname "$0")/../.." && pwd)
peers=true
. "$ROOT/tests/bench/build.sh"

PYTHONDONTWRITEBYTECODE=1 /usr/bin/env python3 "$ROOT/tests/bench/bench.py" --build "$BUILD" "$@"
