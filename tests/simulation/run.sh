#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The membership protocol in a bad world, one seed a schedule; see main.c and sim.h.
#
#   sh tests/simulation/run.sh [--schedules N] [--seed S] [--jobs J]
#   sh tests/simulation/run.sh --seed S --trace      one schedule, with every message
#
# GRADSYNC_BUILD   the build to test (default: build-test/gcc, made if missing)
# Exit status 1 if a rule was violated, 2 if a pair of phase and fault was struck too seldom.
set -eu
cd "$(dirname "$0")/../.."
if [ -z "${GRADSYNC_BUILD:-}" ]; then
        sh tests/run.sh gcc >&2
        GRADSYNC_BUILD=$PWD/build-test/gcc
fi
case " $* " in *" --trace "*) ;; *) set -- --coverage "$@" ;; esac
exec "$GRADSYNC_BUILD/tests/simulation/simulation" "$@"
