#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One fuzz target: replays its corpus, then searches on from a copy of it. Leaves the logs and exit statuses
# of both, WORK/NAME/{replay,search}.{log,status}, and what it found beside them. Called by tests/run.sh.
#
#   sh tests/fuzz.sh TARGET CORPUS WORK SECONDS
set -u
target=$1 seconds=$4
name=$(basename "$target")
corpus=$2/${name#fuzz_}
work=$3/$name
mkdir -p "$work/inputs"

if [ -z "$(ls -A "$corpus" 2>/dev/null)" ]; then
        echo "no corpus in $corpus" >"$work/replay.log"
        echo 1 >"$work/replay.status"
        exit 0
fi
"$target" -artifact_prefix="$work/" -rss_limit_mb=2048 -runs=0 "$corpus" </dev/null >"$work/replay.log" 2>&1
echo $? >"$work/replay.status"
[ "$seconds" != 0 ] || exit 0
"$target" -artifact_prefix="$work/" -rss_limit_mb=2048 -timeout=20 -max_total_time="$seconds" \
        "$work/inputs" "$corpus" </dev/null >"$work/search.log" 2>&1
echo $? >"$work/search.status"
