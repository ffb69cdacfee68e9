#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Looks for tests that fail by chance: runs the unit and integration tests of the first tier again and again,
# beside busy loops and in random order.
#
#   sh tests/soak.sh [ROUNDS] [--busy N] [--seed S]         --help says the rest
set -eu
cd "$(dirname "$0")/.."
exec /usr/bin/python3 tests/runner/soak.py "$@"
