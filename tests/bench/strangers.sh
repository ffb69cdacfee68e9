#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What strangers at the coordinator's port cost a job over two hosts: its step time beside a flood of
# connections without a key, against that beside a process that is as busy as the flood's. Hosts are network
# namespaces; needs root. strangers_bench.py says what is measured.
#
#   sh tests/bench/strangers.sh             a table for people
#   sh tests/bench/strangers.sh --json      only the rows, one JSON object a line
#   sh tests/bench/strangers.sh --quick     fewer rounds: whether it works, not for figures
#   sh tests/bench/strangers.sh --install   first installs the Debian packages that it needs
#   sh tests/bench/strangers.sh --help      the rest
#
# Exit status 1 if it cannot be built, a contender fails, or --limit is exceeded. The build goes to
# build-bench/. Leave the machine alone meanwhile.
set -eu

ROOT=$(cd "$(dirname "$0")/../.." && pwd)
peers=true
. "$ROOT/tests/bench/build.sh"

export PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/env python3 "$ROOT/tests/bench/strangers_bench.py" --build "$BUILD" "$@"
