#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What torch.sh and recovery.sh begin with: the build under test, in BUILD.
#
#   . "$ROOT/tests/bench/build.sh"
#
# GRADSYNC_BUILD names one that is there already; else it goes to build-bench/.
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
        rm -f "$log"
        trap - EXIT
fi
