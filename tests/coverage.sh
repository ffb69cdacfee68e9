#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints by folder how many lines and branches of the C code ran, in a build with -Db_coverage=true.
#
#   sh tests/coverage.sh BUILD
set -eu
cd "$(dirname "$0")/.."
. tests/packages.sh
[ -n "${NO_INSTALL:-}" ] || install_packages gcovr
gcovr --root . --object-directory "$1" -j "${JOBS:-2}" --exclude tests --exclude "$1" \
        --exclude-unreachable-branches --gcov-ignore-parse-errors --json-summary "$1/coverage.json" "$1"
exec /usr/bin/python3 tests/runner/coverage.py "$1/coverage.json"
