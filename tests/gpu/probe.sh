#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Asks this machine's GPU, driver and libraries the questions of probe.c, in at most six minutes, and prints a JSON row for each
# (fact, answer, detail, ms) as it is found, the riskiest last. Needs no GPU tools, no compiler and no other file than the program, which
# may have been built elsewhere.
#
#   sh tests/gpu/probe.sh [PROGRAM] [OPTION...]     options: see PROGRAM --help
#
# PROGRAM          the probe (default: that of GRADSYNC_BUILD, else the newest one of build*/)
# OUT              set: a folder; rows are also written to probe.jsonl there, each synced before the next question
#
# Exit status: 0 all rows are printed, whatever they say; 1 they could not be; 2 usage; 77 no GPU.
set -u

SECONDS_LIMIT=340 # of the probe's own clock, which shares it out among the questions
SECONDS_GRACE=15  # until it is stopped from here

here=$(cd "$(dirname "$0")" && pwd)
case ${1:-} in
"" | -*)
        if [ -n "${GRADSYNC_BUILD:-}" ]; then
                program=$GRADSYNC_BUILD/tests/gpu/probe
        else
                # shellcheck disable=SC2012  # the names are ours
                program=$(ls -t "$here"/../../build*/tests/gpu/probe "$here"/../../build*/*/tests/gpu/probe 2>/dev/null | head -n 1)
        fi
        ;;
*)
        program=$1
        shift
        ;;
esac
if [ -z "$program" ] || [ ! -x "$program" ]; then
        echo "probe.sh: no probe at '${program:-build*/tests/gpu/probe}'. It is built where CUDA's headers are:" \
                "meson setup build && ninja -C build tests/gpu/probe" >&2
        exit 1
fi
if [ -n "${OUT:-}" ]; then
        set -- --out "$OUT/probe.jsonl" "$@"
fi
status=0
timeout --foreground -k 5 $((SECONDS_LIMIT + SECONDS_GRACE)) "$program" --seconds "$SECONDS_LIMIT" "$@" || status=$?
case $status in
124 | 137)
        echo "probe.sh: stopped after $((SECONDS_LIMIT + SECONDS_GRACE)) s" >&2
        exit 1
        ;;
esac
exit "$status"
