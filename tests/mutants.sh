#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plants bugs ("slips") in copies of the tree, one at a time, and checks that the tests find each of them.
# They are listed by area in tests/mutants/; see "Planted slips" in tests/README.md.
#
#   sh tests/mutants.sh [--list] [--area AREA]... [--slice I/N | --quarter] [NAME...]
#
# JOBS   copies of the tree that work at the same time (default: the number of CPUs)
#
# The last line is "N passed, N failed, 0 skipped": slips that were found, and those that were not.
exec /usr/bin/python3 "$(dirname "$0")/mutants.py" "$@"
