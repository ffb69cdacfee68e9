#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What it costs a PyTorch training that a rank is killed: gradsync, torchrun with checkpoints, and torchft.
#
#   sh tests/bench/recovery.sh                   a table for people
#   sh tests/bench/recovery.sh --json            only the rows, one JSON object a line
#   sh tests/bench/recovery.sh --quick           one kill, a small model: whether it works, not for figures
#   sh tests/bench/recovery.sh --only torchrun   only these contenders
#   sh tests/bench/recovery.sh --install         first installs torchft, in an environment of its own
#   sh tests/bench/recovery.sh --help            the rest
#
# PYTHON          an interpreter that has torch (python3)
# GRADSYNC_BUILD  a build directory that is there already; else it goes to build-bench/
#
# torchft goes to build-bench/torchft and uses the torch of PYTHON, which nothing replaces. Without it the
# rows of torchft say that it is missing. Leave the machine alone meanwhile.
set -eu

ROOT=$(cd "$(dirname "$0")/../.." && pwd)
PYTHON=${PYTHON:-python3}
TORCHFT=${GRADSYNC_BENCH_BUILD:-$ROOT/build-bench}/torchft

peers=false
. "$ROOT/tests/bench/build.sh"
export PYTHONDONTWRITEBYTECODE=1

if $install && [ ! -x "$TORCHFT/bin/torchft_lighthouse" ]; then
        rm -rf "$TORCHFT"
        "$PYTHON" -m venv "$TORCHFT"
        packages=$("$TORCHFT/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        "$PYTHON" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])' \
                >"$packages/torch.pth"
        "$PYTHON" -c 'import torch; print(f"torch=={torch.__version__}")' >"$TORCHFT/torch.txt"
        "$TORCHFT/bin/python" -m pip install -q --disable-pip-version-check \
                -c "$TORCHFT/torch.txt" torchft==0.2.0 >&2
fi

exec "$PYTHON" "$ROOT/tests/bench/recovery_bench.py" --build "$BUILD" --torchft "$TORCHFT" "$@"
