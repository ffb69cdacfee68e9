#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What synchronising costs a PyTorch training: PyTorch's DistributedDataParallel over Gloo, gradsync's, and
# none at all.
#
#   sh tests/bench/torch.sh            a table for people
#   sh tests/bench/torch.sh --json     only the rows, one JSON object a line
#   sh tests/bench/torch.sh --quick    fewer rounds: whether it works, not for figures
#   sh tests/bench/torch.sh --help     the rest
#
# PYTHON          an interpreter that has torch (python3)
# GRADSYNC_BUILD  a build directory that is there already; else it goes to build-bench/
#
# Leave the machine alone meanwhile.
set -eu

ROOT=$(cd "$(dirname "$0")/../.." && pwd)
peers=false
. "$ROOT/tests/bench/build.sh"

export PYTHONDONTWRITEBYTECODE=1
exec "${PYTHON:-python3}" "$ROOT/tests/bench/torch_bench.py" --build "$BUILD" "$@"
