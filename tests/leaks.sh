#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The leak tests with large counts, 200 seeds of clients that say anything, and a hostile user: attaches and
# detaches whole jobs, runs small steps, and checks that the daemon and the library hold and weigh what they
# did before. Takes some minutes.
#
#   sh tests/leaks.sh [CYCLES [STEPS]]       default: 10000 1000000
#
# GRADSYNC_BUILD   the build to test (default: build-test/gcc, made if missing)
set -eu

case ${1:-} in -h | --help) sed -n '3,9s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cycles=${1:-10000} steps=${2:-1000000}
cd "$(dirname "$0")/.."
if [ -z "${GRADSYNC_BUILD:-}" ]; then
        sh tests/run.sh gcc
        GRADSYNC_BUILD=$PWD/build-test/gcc
fi
export GRADSYNC_BUILD GRADSYNC_TEST_CYCLES="$cycles" GRADSYNC_TEST_STEPS="$steps"
export GRADSYNC_TEST_SEEDS=200 GRADSYNC_TEST_HOSTILE=10
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
echo "$cycles cycles, $steps steps on $GRADSYNC_BUILD"
exec /usr/bin/python3 -m pytest -v --durations=0 tests/integration/test_leaks.py \
        tests/integration/test_walk.py tests/integration/test_hostile.py </dev/null
