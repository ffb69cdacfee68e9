#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What synchronising costs a PyTorch training: PyTorch's DistributedDataParallel over Gloo, gradsync's, and
# none at all.
#
#   sh tests/bench/torch.sh            a table for people
#   sh tests/bench/torch.sh --json     only the rows, one JSON object a line
#   sh tests/bench/torch.sh --quick    fewer rounds: whether it works, not for figures
#   sh tests/bench/torch.sh --help     the rest
#
# PYTHON          an interpreter that has torch (python3)
# GRADSYNC_BUILD  a build directory that is there already; else it goes to build-bench/
#
# Leave the machine alone meanwhile.
set -eu

ROOT=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=${GRADSYNC_BUILD:-${GRADSYNC_BENCH_BUILD:-$ROOT/build-bench}}

if [ -z "${GRADSYNC_BUILD:-}" ]; then
        log=$(mktemp)
        trap 'rm -f "$log"' EXIT
        if ! {
                { [ -f "$BUILD/build.ninja" ] || meson setup "$BUILD" "$ROOT" -Dman=disabled; } &&
                meson configure "$BUILD" -Dcli=enabled &&
                ninja -C "$BUILD"
        } >"$log" 2>&1; then
                cat "$log" >&2
                exit 1
        fi
fi

export PYTHONDONTWRITEBYTECODE=1
exec "${PYTHON:-python3}" "$ROOT/tests/bench/torch_bench.py" --build "$BUILD" "$@"
