#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Faults against a training job, with a checker of every sum; see faults.py.
#
#   sh tests/faults/run.sh [--seed S] [--faults N] [--each N] [--members M] [--hang SECS] [--json]
#
# GRADSYNC_BUILD   the build to test (default: build-test/gcc, made if missing)
# Exit status 1 if a sum was wrong, a step was applied twice or not at all, something hung or leaked.
set -eu
. "$(dirname "$0")/build.sh"
exec /usr/bin/python3 tests/faults/faults.py --build "$GRADSYNC_BUILD" "$@"
