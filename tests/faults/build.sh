#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What run.sh and cluster.sh begin with: the build to test, in GRADSYNC_BUILD.
cd "$(dirname "$0")/../.."
if [ -z "${GRADSYNC_BUILD:-}" ]; then
        sh tests/run.sh gcc >&2
        GRADSYNC_BUILD=$PWD/build-test/gcc
fi
export PYTHONDONTWRITEBYTECODE=1
