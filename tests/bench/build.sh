#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the scripts of this folder begin with: it takes --install out of the arguments of the script that reads
# it, sets `install` to true or false, and builds gradsync, in BUILD. The other arguments are the driver's.
#
#   peers=true; . "$ROOT/tests/bench/build.sh"    and all peers; --install first installs Debian packages
#   peers=false; . "$ROOT/tests/bench/build.sh"   no peers; GRADSYNC_BUILD names a build that is there already
install=false
for argument in "$@"; do
        shift
        if [ "$argument" = --install ]; then
                install=true
        else
                set -- "$@" "$argument"
        fi
done

BUILD=${GRADSYNC_BENCH_BUILD:-$ROOT/build-bench}
options=
if $peers; then
        options="-Dbench=enabled -Dtests=disabled"
        if $install; then
                . "$ROOT/tests/packages.sh"
                # shellcheck disable=SC2086
                install_packages $BUILD_PACKAGES $BENCH_PACKAGES >&2
        fi
elif [ -n "${GRADSYNC_BUILD:-}" ]; then
        BUILD=$GRADSYNC_BUILD
fi

if $peers || [ -z "${GRADSYNC_BUILD:-}" ]; then
        log=$(mktemp)
        trap 'rm -f "$log"' EXIT
        # shellcheck disable=SC2086
        if ! {
                { [ -f "$BUILD/build.ninja" ] || meson setup "$BUILD" "$ROOT" -Dman=disabled $options; } &&
                meson configure "$BUILD" -Dcli=enabled &&
                ninja -C "$BUILD"
        } >"$log" 2>&1; then
                cat "$log" >&2
                if $peers; then echo "not built; --install installs the packages that it needs" >&2; fi
                exit 1
        fi
        rm -f "$log"
        trap - EXIT
fi
