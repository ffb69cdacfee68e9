#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Faults against a training job over several hosts, which are network namespaces; see cluster.py. Needs root
# and nftables.
#
#   sh tests/faults/cluster.sh [--seed S] [--faults N] [--each N] [--hosts H] [--members M] [--only KIND]
#                              [--json]
#
# GRADSYNC_BUILD   the build to test (default: build-test/gcc, made if missing)
# Exit status 1 if a sum was wrong, a step was applied twice or not at all, something hung or leaked.
set -eu
. "$(dirname "$0")/build.sh"
exec /usr/bin/python3 tests/faults/cluster.py --build "$GRADSYNC_BUILD" "$@"
