#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what the tests need, builds, and runs them: by default those that every change must pass. The last
# line is the total: "N passed, N failed, N skipped". Ends with 0 if nothing failed and every suite ran.
#
#   sh tests/run.sh                 the first tier
#   sh tests/run.sh --merge         the second: other builds, and what takes long
#   sh tests/run.sh --all           everything else
#   sh tests/run.sh SUITE...        only these; the builds that they need are made
#   sh tests/run.sh --help          which suites there are, and how long they take
#
# NO_INSTALL   set: install no packages
set -u
cd "$(dirname "$0")/.." || exit
. tests/packages.sh
case " $* " in
*" -h "* | *" --help "*) ;;
*)
        # shellcheck disable=SC2086  # lists of words
        [ -n "${NO_INSTALL:-}" ] || install_packages $BUILD_PACKAGES $TEST_PACKAGES || exit
        ;;
esac
exec /usr/bin/python3 tests/runner/suites.py "$@"
