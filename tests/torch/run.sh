#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tests of the Python package, with torch, in a virtual environment below build-test/ that is kept.
#
#   sh tests/torch/run.sh [ARGUMENT of pytest]...
#   sh tests/torch/run.sh tests/torch -m "not heavy"        some of everything, in a minute or two
#
# GRADSYNC_BUILD   the build under test (default: build-test/gcc)
# PIP_FIND_LINKS   a folder of wheels, if there is one of torch for the CPU
# PYTEST_JOBS      parallel tests (default 2)
set -eu

cd "$(dirname "$0")/../.."
ROOT=$PWD
export GRADSYNC_BUILD="${GRADSYNC_BUILD:-$ROOT/build-test/gcc}" LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
VENV=$ROOT/build-test/torch-venv
WANTED=$ROOT/tests/torch/requirements.txt

# Torch comes from the requirements or not at all: nothing that is installed later may replace it.
if ! cmp -s "$WANTED" "$VENV/installed.txt"; then
        echo "installing $(grep -v '^#' "$WANTED" | tr '\n' ' ')into $VENV" >&2
        rm -rf "$VENV"
        /usr/bin/python3 -m venv "$VENV"
        "$VENV/bin/python" -m pip install -q --disable-pip-version-check -r "$WANTED" >&2
        cp "$WANTED" "$VENV/installed.txt"
fi
if [ $# = 0 ]; then set -- tests/torch; fi
exec "$VENV/bin/python" -m pytest -q -n "${PYTEST_JOBS:-2}" --dist loadgroup "$@"
