#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A crowd of users that hold all connections and descriptors that a daemon admits, beside a running job;
# crowd.py says what is measured. Needs root.
#
#   sh tests/attacks/crowd.sh             what was measured, for people
#   sh tests/attacks/crowd.sh --json      one JSON object
#   sh tests/attacks/crowd.sh --help      the rest
#
# GRADSYNC_BUILD   the build, as --build (default: build-test/gcc, made if missing)
# Exit status 1 if the job did not survive, a sum was wrong, the daemon ended, root's status failed, or a new
# client of the job's uid was turned away. Times are for people to judge. Leave the machine alone meanwhile.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/build.sh"
exec /usr/bin/python3 "$HERE/crowd.py" "$@"
