#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Daemons and libraries of this tree and of an earlier commit in one cluster, under load: upgraded and
# downgraded one by one, and left mixed.
#
#   sh tests/versions/run.sh [COMMIT [ARGUMENT of pytest]...]
#
# COMMIT           the other release (default: each of tests/versions/commits, by turns)
# GRADSYNC_BUILD   this tree's build (default: build-test/gcc, made if missing)
# JUNIT            where the outcome goes, as JUnit-COMMIT.xml; default: nowhere
# PYTEST_JOBS      parallel tests (default 2)
#
# What was built of a commit is kept below build-test/versions. Exit status 77 if the history that it is in is
# not here (a tarball, a shallow clone).
set -eu
. "$(dirname "$0")/../faults/build.sh"
ROOT=$PWD
export GRADSYNC_BUILD LC_ALL=C.UTF-8
TARGETS="daemon/core/gradsyncd daemon/engine/gloo/gradsync-gloo client/cli/gradsyncctl
        tests/integration/member"

if [ $# = 0 ]; then
        sed '/^#/d; s/ .*//' tests/versions/commits | while read -r commit; do
                sh tests/versions/run.sh "$commit" </dev/null || exit
        done
        exit
fi

history() { git -c "safe.directory=$ROOT" -C "$ROOT" "$@"; }

if ! commit=$(history rev-parse --verify --quiet "$1^{commit}"); then
        echo "commit $1 is not in the history here: in a shallow clone, git fetch --unshallow gets it" >&2
        exit 77
fi
shift
folder=$ROOT/build-test/versions/$commit
if [ ! -f "$folder/built" ]; then
        rm -rf "$folder"
        mkdir -p "$folder/tree"
        history archive "$commit" | tar -x -C "$folder/tree"
        meson setup -Dtests=enabled -Dcli=enabled -Dgloo=enabled -Dsystemd=enabled -Dman=disabled \
                "$folder/build" "$folder/tree" >&2
        # shellcheck disable=SC2086  # one word a target
        ninja -C "$folder/build" $TARGETS >&2
        touch "$folder/built"
fi
export GRADSYNC_PREVIOUS="$folder/build"
exec /usr/bin/python3 -m pytest -q -n "${PYTEST_JOBS:-2}" ${JUNIT:+--junitxml "$JUNIT-$commit.xml"} \
        tests/versions "$@"
