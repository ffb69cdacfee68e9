#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a step costs over several hosts, beside plain Gloo and what TCP allows: network namespaces are the
# hosts, with a daemon, its members and the peers in each. Needs root. cluster_bench.py says what is measured.
#
#   sh tests/bench/cluster.sh             a table for people
#   sh tests/bench/cluster.sh --json      only the rows, one JSON object a line
#   sh tests/bench/cluster.sh --quick     fewer rounds: whether it works, not for figures
#   sh tests/bench/cluster.sh --install   first installs the Debian packages that it needs
#   sh tests/bench/cluster.sh --help      the rest
#
# Exit status 1 if it cannot be built or a contender fails. The build goes to build-bench/. Leave the machine
# alone meanwhile.
set -eu

ROOT=$(cd "$(dirname "$0")/../.." && pwd)
peers=true
. "$ROOT/tests/bench/build.sh"

PYTHONDONTWRITEBYTECODE=1 exec /usr/bin/env python3 "$ROOT/tests/bench/cluster_bench.py" --build "$BUILD" "$@"
