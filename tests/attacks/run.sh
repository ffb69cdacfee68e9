#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Attacks on a daemon, each beside a job of another user; attacks.py says what is measured. Needs root.
#
#   sh tests/attacks/run.sh                     a table for people, the worst attack first
#   sh tests/attacks/run.sh --json              one JSON object for each attack
#   sh tests/attacks/run.sh --list              which attacks there are
#   sh tests/attacks/run.sh --only NAME...      only these; --help says the rest
#
# GRADSYNC_BUILD   the build to attack, as --build (default: build-test/gcc, made if missing)
# Exit status 1 if a job did not survive, a sum was wrong, the daemon ended, an attack did not get to attack,
# or --limit was exceeded. Leave the machine alone meanwhile.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/build.sh"
exec /usr/bin/python3 "$HERE/attacks.py" "$@"
