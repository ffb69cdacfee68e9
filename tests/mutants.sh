#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plants bugs in the GPU path, in a copy of the tree, and checks that the tests find each of them: see
# mutants.py. Some minutes. The last line is "N passed, N failed, 0 skipped".
#
#   sh tests/mutants.sh [NAME...]
set -eu

cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z | xargs -0 cp --parents -t "$copy"
cd "$copy"
meson setup -Dtests=enabled -Dcli=enabled -Dman=disabled build >build.log 2>&1 || { cat build.log; exit 1; }
/usr/bin/python3 tests/mutants.py build "$@"
