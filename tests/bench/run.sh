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
BUILD=${GRADSYNC_BENCH_BUILD:-$ROOT/build-bench}

. "$ROOT/tests/bench/arguments.sh"

if $install; then
        . "$ROOT/tests/packages.sh"
        # shellcheck disable=SC2086
        install_packages $BUILD_PACKAGES $BENCH_PACKAGES >&2
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! {
        { [ -f "$BUILD/build.ninja" ] || meson setup "$BUILD" "$ROOT" -Dbench=enabled -Dtests=disabled -Dman=disabled; } &&
        meson configure "$BUILD" -Dcli=enabled &&
        ninja -C "$BUILD"
} >"$log" 2>&1; then
        cat "$log" >&2
        echo "the benchmark cannot be built; --install installs the packages that it needs" >&2
        exit 1
fi

PYTHONDONTWRITEBYTECODE=1 /usr/bin/env python3 "$ROOT/tests/bench/bench.py" --build "$BUILD" "$@"
