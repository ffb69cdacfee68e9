#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Faults against two jobs that share GPUs, which are fake, as is the NCCL between their daemons: nccl.py.
#
#   sh tests/faults/nccl.sh [--seed S] [--faults N] [--each N] [--hosts H] [--members M] [--only KIND]
#                           [--json]
#
# GRADSYNC_BUILD   the build to test (default: build-test/gcc, made if missing)
# Exit status 1 if a sum was wrong, a step was applied twice or not at all, something hung or leaked, or a
# rule of the GPU or of NCCL was broken.
set -eu
. "$(dirname "$0")/build.sh"
exec /usr/bin/python3 tests/faults/nccl.py --build "$GRADSYNC_BUILD" "$@"
