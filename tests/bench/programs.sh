#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What run.sh and cluster.sh begin with: installs packages if `install` (arguments.sh) says so, and builds
# gradsync and all peers, in BUILD.
#
#   . "$ROOT/tests/bench/programs.sh"
BUILD=${GRADSYNC_BENCH_BUILD:-$ROOT/build-bench}

if $install; then
        . "$ROOT/tests/packages.sh"
        # shellcheck disable=SC2086
        install_packages $BUILD_PACKAGES $BENCH_PACKAGES >&2
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! {
        { [ -f "$BUILD/build.ninja" ] ||
                meson setup "$BUILD" "$ROOT" -Dbench=enabled -Dtests=disabled -Dman=disabled; } &&
        meson configure "$BUILD" -Dcli=enabled &&
        ninja -C "$BUILD"
} >"$log" 2>&1; then
        cat "$log" >&2
        echo "the benchmark cannot be built; --install installs the packages that it needs" >&2
        exit 1
fi
rm -f "$log"
trap - EXIT
