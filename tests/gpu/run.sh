#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2086  # parts are called by name; lists of words are split on purpose
# Asks a machine with a GPU everything that the project wants to know of it, in one call of at most ten
# minutes: a JSON row for each answer (part, fact, answer, detail, ms), written when it is known. The riskiest
# part comes last: what it does to the GPU cannot spoil the other answers.
#
#   sh tests/gpu/run.sh [--fake] [--only PART]... [--seconds N] [--list]
#
# --fake           on a fake GPU (tests/fakes/gpu), in small sizes: each row has "fake": true
# --only PART      only this part; may be repeated
# --seconds N      of the clock, for all parts together (570)
#
# GRADSYNC_BUILD   the build (default: the newest of build*/, which in a bundle is the only one)
# OUT              folder for rows.jsonl and a log of each part (default: gpu-results)
# GPU_TESTS        files of tests/integration that pytest runs, if there is a pytest
# GPU_NCCL         path of the NCCL to use (default: the first one that is found; with --fake the fake one)
# GPU_QUESTIONS    those of the part nccl to ask (default: all, see NCCL_QUESTIONS)
#
# Exit status: 0 nothing is wrong; 1 a part failed, or did not end in its time; 2 usage; 77 no GPU.
set -u

# NAME SECONDS: each part in its order, and its share of the time. part_NAME is given its limit in seconds.
# What a part leaves of its time is shared out among those after it.
PARTS='
conformance 30
reductions 115
integration 90
digits 25
members 35
torch 25
probe 100
nccl 105
risks 45
'
SECONDS_ALL=570
SECONDS_NCCL=170 # on hardware that part needs no more
SECONDS_LEAST=3  # with less a part is not begun
SECONDS_GRACE=15 # for processes that do not end even when they are killed
SKIPPED=75       # a part's status
TESTS='collectives void_plan cuda' # what they take leaves room for slow starts of a real driver

REDUCTIONS=tests/gpu/reductions
root=$(cd "$(dirname "$0")/../.." && pwd)
fake='' only='' list=''

usage() {
        echo "run.sh: $1; usage: run.sh [--fake] [--only PART]... [--seconds N] [--list]" >&2
        exit 2
}

while [ $# -gt 0 ]; do
        case $1 in
        --fake) fake=1 ;;
        --only)
                case "$PARTS" in
                *"
${2:-} "*) only="$only ${2:-}" ;;
                *) usage "--only '${2:-}': there is no such part" ;;
                esac
                shift
                ;;
        --seconds)
                case ${2:-} in
                '' | 0* | *[!0-9]*) usage "--seconds '${2:-}': not a number of seconds" ;;
                esac
                SECONDS_ALL=$2
                shift
                ;;
        --list) list=1 ;;
        *) usage "what is '$1'?" ;;
        esac
        shift
done

wanted() {
        case " $only " in
        '  ' | *" $1 "*) return 0 ;;
        esac
        return 1
}

# ---- rows ----

# emit ROW: an object, to the file and to standard output.
emit() {
        [ -z "$fake" ] || set -- "${1%\}}, \"fake\": true}"
        printf '%s\n' "$1" >>"$OUT/rows.jsonl"
        sync "$OUT/rows.jsonl" 2>/dev/null
        printf '%s\n' "$1"
}

# text WORDS: as the inside of a JSON string.
text() { printf '%s' "$1" | LC_ALL=C tr -c ' -~' ' ' | sed 's/[\\"]/\\&/g'; }

# note PART FACT ANSWER [DETAIL [MS]]
note() {
        emit "$(printf '{"part": "%s", "fact": "%s", "answer": "%s", "detail": "%s", "ms": %s}' \
                "$1" "$(text "$2")" "$(text "$3")" "$(text "${4:-}")" "${5:-0.0}")"
}

# collect PART: makes rows of the lines that a part's programs print. What is no row goes to its log.
collect() {
        while IFS= read -r line; do
                case $line in
                '{"fact": '*'}') emit "{\"part\": \"$1\", ${line#\{}" ;;
                'holds '*) note "$1" "${line#holds }" yes ;;
                'FAILS '*) note "$1" "${line#FAILS }" no ;;
                tests/*::*' PASSED'*) note "$1" "${line%% PASSED*}" yes ;;
                tests/*::*' FAILED'*) note "$1" "${line%% FAILED*}" no ;;
                tests/*::*' ERROR'*) note "$1" "${line%% ERROR*}" error ;;
                tests/*::*' SKIPPED'*) note "$1" "${line%% SKIPPED*}" skipped "${line#* SKIPPED}" ;;
                *) printf '%s\n' "$line" >>"$OUT/$1.log" ;;
                esac
        done
}

# ---- parts ----

# skip WHY: for a part, which ends with it.
skip() {
        echo "$1" >"$scratch/why"
        return $SKIPPED
}

# has FILE: it is in the build.
has() { [ -e "$GRADSYNC_BUILD/$1" ] || skip "there is no $1 in $GRADSYNC_BUILD"; }

# limited SECONDS COMMAND...: no longer than that, and ended with this script.
limited() {
        timeout -k 5 "$@" &
        process=$! status=0
        : >"$scratch/process.$process"
        wait $process || status=$?
        rm -f "$scratch/process.$process"
        return $status
}

part_conformance() {
        has tests/fakes/gpu/conformance || return
        limited "$1" "$GRADSYNC_BUILD/tests/fakes/gpu/conformance"
}

part_reductions() {
        limited "$1" "$GRADSYNC_BUILD/$REDUCTIONS" ${fake:+--small} --seconds $(($1 * 9 / 10))
}

python() {
        for found in python3 /usr/bin/python3; do
                if "$found" -c 'import pytest, google.protobuf' 2>/dev/null && command -v protoc >/dev/null
                then
                        echo "$found"
                        return
                fi
        done
}

part_integration() {
        has tests/integration/member || return
        python=$(python)
        [ -n "$python" ] || skip "there is no pytest, or no protobuf for Python and protoc" || return
        cd "$root" || return
        # shellcheck disable=SC2046
        set -- "$1" $(printf 'tests/integration/test_%s.py ' ${GPU_TESTS:-$TESTS})
        limit=$1
        shift
        [ -n "$fake" ] || export GRADSYNC_TEST_GPU=hardware
        export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
        limited "$limit" "$python" -m pytest -v --tb=short --color=no --on-gpu "$@"
}

# Members train a model on the GPU: 1, 2 and 4 of them; and 2, of which one is killed; and 2 whose daemon is.
# All of 2 end with the same parameters.
part_digits() {
        for file in client/examples/digits_cuda client/cli/gradsyncctl daemon/core/gradsyncd; do
                has $file || return
        done
        export GRADSYNC_SOCKET="$scratch/socket"
        digits_daemon "$1"
        wrong='' epochs=100
        [ -z "$fake" ] || epochs=10
        for members in 1 2 4; do
                digits_run "$members" $(($1 / 4)) "$members" || wrong=1
        done
        digits_killed member "$1" || wrong=1
        digits_killed daemon "$1" || wrong=1
        [ -z "$wrong" ]
}

digits_daemon() {
        limited "$1" "$GRADSYNC_BUILD/daemon/core/gradsyncd" --device cuda:0 --socket "$GRADSYNC_SOCKET" >&2 &
        daemon=$!
        while ! "$GRADSYNC_BUILD/client/cli/gradsyncctl" status >/dev/null 2>&1 && kill -0 $daemon; do
                sleep 0.1
        done
}

# digits_run NAME SECONDS MEMBERS [OPTION...]
digits_run() {
        name=$1 limit=$2 members=$3 status=0
        shift 3
        said=$scratch/digits.$name
        limited "$limit" "$GRADSYNC_BUILD/client/cli/gradsyncctl" run -n "$members" --job "digits-$name" \
                "$@" -- "$GRADSYNC_BUILD/client/examples/digits_cuda" --epochs $epochs >"$said" 2>&1 ||
                status=$?
        cat "$said" >&2
        [ "$status" = 0 ] && digits_rows "$name" "$members" "$said"
}

# digits_killed WHOM SECONDS: in the middle of the training, a member or the daemon.
digits_killed() {
        digits_run "$1" $(($2 / 4)) 2 --restart 1 &
        training=$!
        until [ "$(digits_step "$1")" -ge 30 ]; do
                kill -0 $training 2>/dev/null || break
                sleep 0.05
        done
        case $1 in
        member) victim=$(digits_status "digits-$1" | awk '$1 == 1 && $2 ~ /^[0-9]+$/ { print $2; exit }') ;;
        daemon) victim=$(digits_status "digits-$1" | sed -n '1s/.* pid \([0-9]*\):.*/\1/p') ;;
        esac
        [ -n "$victim" ] && kill -9 "$victim"
        killed=$?
        [ "$1" = member ] || digits_daemon "$2"
        wait $training && [ $killed = 0 ]
}

digits_status() { "$GRADSYNC_BUILD/client/cli/gradsyncctl" status "$1" 2>/dev/null; }
digits_step() { digits_status "digits-$1" | sed -n 's/.*, step \([0-9]*\).*/\1/p' | grep . || echo 0; }

# What N members say at their ends. False: they have not the same parameters, or others than two that nobody
# has killed, or have learned nothing.
digits_rows() {
        hash=$(cat "$scratch/hash" 2>/dev/null)
        awk -v name="$1" -v members="$2" -v undisturbed="$hash" -v keep="$scratch/hash" '
        function row(fact, answer, detail) {
                printf "{\"fact\": \"digits.%s.%s\", \"answer\": \"%s\", ", name, fact, answer
                printf "\"detail\": \"%s\", \"ms\": 0.0}\n", detail
        }
        / images\/s / {
                for (i = 2; i <= NF; i++)
                        if ($i == "images/s")
                                speed = $(i - 1)
        }
        match($0, /accuracy [0-9.]+/) {
                accuracy = substr($0, RSTART + 9, RLENGTH - 9)
                ended++
                hash = $NF
                different += !(hash in seen) && ended > 1
                seen[hash] = 1
        }
        END {
                equal = ended == members && !different
                equal = equal && (name ~ /^[14]$/ || !undisturbed || hash == undisturbed)
                row("speed", speed " images/s", "of all members together in the last epoch")
                row("accuracy", accuracy, "of the rows that are held out")
                row("equal", equal ? "yes" : "no", "parameters of " ended " members, " hash)
                if (name == "2")
                        print hash >keep
                exit !(equal && accuracy >= 0.9)
        }' "$3"
}

# members_of N SECONDS COMMAND...: so many processes, with a daemon of their own; what rank 0 prints. Its
# lines come with the rank before them.
members_of() {
        n=$1 limit=$2
        shift 2
        {
                limited "$limit" "$GRADSYNC_BUILD/client/cli/gradsyncctl" run --private --device cuda:0 \
                        -n "$n" -- "$@"
                echo $? >"$scratch/members"
        } | sed -u 's/^\[0\] //'
        return "$(cat "$scratch/members")"
}

# What gradsync costs members of a job, by their number.
part_members() {
        for file in tests/gpu/members client/cli/gradsyncctl daemon/core/gradsyncd; do
                has $file || return
        done
        for members in 1 2 4; do
                members_of $members $(($1 / 3)) "$GRADSYNC_BUILD/tests/gpu/members" ${fake:+--small} || return
        done
}

# PyTorch, where it has CUDA: nothing of it comes with the bundle.
part_torch() {
        has client/cli/gradsyncctl || return
        for python in python3 /usr/bin/python3; do
                "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null && break
                python=
        done
        [ -n "$python" ] || skip "there is no PyTorch that sees a GPU" || return
        export PYTHONPATH="$root/client/python" PYTHONDONTWRITEBYTECODE=1
        export GRADSYNC_LIBRARY="$GRADSYNC_BUILD/client/lib/libgradsync.so.0"
        for members in 1 2; do
                members_of $members $(($1 / 2)) "$python" -u "$root/tests/gpu/torch_rows.py" || return
        done
}

# NCCL in one process, and between two daemons on the one GPU. Each question has its share of the part's time.
NCCL_QUESTIONS='
version 2 nccl version
one-gpu 5 cluster one gpu
member-killed 4 cluster member killed
daemon-killed 5 cluster daemon killed
added 6 added per bucket
'

part_nccl() {
        has tests/gpu/inprocess || return
        [ -z "$fake" ] || has tests/fakes/nccl/libnccl.so.2 || return
        limited "$1" "$GRADSYNC_BUILD/tests/gpu/inprocess" ${GPU_NCCL:+--nccl "$GPU_NCCL"} find \
                >/dev/null 2>"$scratch/said"
        [ $? != $SKIPPED ] || skip "there is no NCCL: $(tail -n 1 "$scratch/said")" || return
        export PYTHONDONTWRITEBYTECODE=1
        [ -n "$fake" ] || [ "$1" -lt $SECONDS_NCCL ] || set -- $SECONDS_NCCL
        over=$(($(now) + $1 - 2)) wrong='' weights=0
        nccl_questions >"$scratch/questions"
        while read -r question weight fact; do
                weights=$((weights + weight))
        done <"$scratch/questions"
        while read -r question weight fact; do
                limit=$(((over - $(now)) * weight / weights))
                weights=$((weights - weight))
                nccl_ask "$question" "$limit" "$fact" </dev/null || wrong=1
        done <"$scratch/questions"
        [ -z "$wrong" ]
}

# Those that are wanted, one a line.
nccl_questions() {
        printf '%s' "$NCCL_QUESTIONS" | while read -r question rest; do
                case " ${GPU_QUESTIONS:-$question} " in
                '  ') ;;
                *" $question "*) echo "$question $rest" ;;
                esac
        done
}

# nccl_ask QUESTION SECONDS FACT: with the program that knows it.
nccl_ask() {
        question=$1 limit=$2 fact=$3
        set -- ${GPU_NCCL:+--nccl "$GPU_NCCL"} "$question"
        case $question in
        version) set -- "$GRADSYNC_BUILD/tests/gpu/inprocess" "$@" ;;
        *) set -- "$(python_for_cluster)" "$root/tests/gpu/cluster_rows.py" ${fake:+--small} "$@" ;;
        esac
        if [ -z "$1" ]; then
                nccl_row "$fact" skipped 'there is no Python from 3.9 on'
        elif [ "$limit" -lt "$SECONDS_LEAST" ]; then
                nccl_row "$fact" skipped 'no time is left'
                return 1
        else
                nccl_answer "$@"
        fi
}

# nccl_answer COMMAND...: its rows. What it does not say itself becomes one.
nccl_answer() {
        {
                GRADSYNC_TEST_DEADLINE=$limit limited "$limit" "$@" 2>"$scratch/said"
                echo $? >"$scratch/answered"
        } | tee "$scratch/rows"
        cat "$scratch/said" >&2
        status=$(cat "$scratch/answered")
        why=$(tail -n 1 "$scratch/said")
        case $status in
        0) ;;
        "$SKIPPED") nccl_row "$fact" skipped "$why" && return ;;
        *)
                if grep -q '"answer": "\(no\|error\)"' "$scratch/rows"; then
                        :
                elif [ "$status" = 124 ] || [ "$status" = 137 ]; then
                        nccl_row "$fact" hang "its limit was $limit s"
                else
                        nccl_row "$fact" error "status $status: $why"
                fi
                ;;
        esac
        return "$status"
}

# nccl_row FACT ANSWER DETAIL
nccl_row() {
        printf '{"fact": "%s", "answer": "%s", "detail": "%s", "ms": 0.0}\n' "$1" "$2" "$(text "$3")"
}

python_for_cluster() {
        for found in python3 /usr/bin/python3; do
                if "$found" -c 'import os; os.pidfd_open' 2>/dev/null; then
                        echo "$found"
                        return
                fi
        done
}

# Questions of the probe that end no process in the middle of its work, and leave no GPU in a fault.
SAFE='mps.* driver.* vmm.[!t]* ipc.[!ne]* wait.* slices.*'
RISKY='kill.* nccl.* ipc.neighbour ipc.exporter_frees_first vmm.touch_beyond fault.*'

# ask_probe SECONDS OF-ALL PATTERN...: the probe shares out its time among all its questions; those asked here
# have so many 340ths of it.
ask_probe() {
        has tests/gpu/probe || return
        limit=$1 seconds=$(($1 * 9 / 10 * 340 / $2))
        shift 2
        for pattern in "$@"; do
                set -- "$@" --only "$pattern" --only "hardened:$pattern"
                shift
        done
        [ -z "${GPU_NCCL:-}" ] || export LD_LIBRARY_PATH="$(dirname "$GPU_NCCL"):${LD_LIBRARY_PATH:-}"
        limited "$limit" "$GRADSYNC_BUILD/tests/gpu/probe" --seconds "$seconds" "$@"
}

part_probe() (
        set -f
        ask_probe "$1" 175 $SAFE
)

part_risks() (
        set -f
        ask_probe "$1" 340 $RISKY
)

# ---- the run ----

now() { date +%s; }

# has_ended PROCESS SECONDS: it has, within so many.
has_ended() {
        until=$(($(now) + $2))
        while kill -0 "$1" 2>/dev/null; do
                [ "$(now)" -lt "$until" ] || return 1
                sleep 0.1
        done
}

# Whether it is worth a failure of the whole run: answer and detail of the part's own row.
verdict() {
        case $1 in
        0) answer='done' detail='' ;;
        "$SKIPPED") answer=skipped detail=$(cat "$scratch/why") ;;
        124 | 137) answer='out of time' detail="its limit was $2 s" ;;
        '') answer='out of time' detail="its processes do not end; its limit was $2 s" ;;
        *) answer=failed detail="status $1" ;;
        esac
        case $answer in
        failed | 'out of time') failed=$((failed + 1)) ;;
        esac
}

# run_part NAME LIMIT
run_part() {
        begin=$(now)
        rm -f "$scratch/status"
        {
                {
                        part_$1 "$2"
                        echo $? >"$scratch/status.new"
                        end_processes
                        wait
                        mv "$scratch/status.new" "$scratch/status"
                } 2>>"$OUT/$1.log" | collect "$1"
        } &
        part=$!
        has_ended $part $(($2 + SECONDS_GRACE))
        verdict "$(cat "$scratch/status" 2>/dev/null)" "$2"
        note run "$1" "$answer" "$detail" $((($(now) - begin) * 1000)).0
}

end_processes() {
        for process in "$scratch"/process.*; do
                [ ! -e "$process" ] || kill "${process##*.}" 2>/dev/null
        done
}

# Libraries that this machine lacks, if they lie in the bundle.
lend_libraries() {
        [ -d "$root/lib" ] || return 0
        mkdir "$scratch/lib"
        LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$scratch/lib
        export LD_LIBRARY_PATH
        set -- daemon/core/gradsyncd daemon/engine/gloo/gradsync-gloo client/cli/gradsyncctl \
                client/examples/digits_cuda tests/gpu/reductions tests/gpu/members tests/gpu/inprocess \
                tests/integration/member
        again=1
        while [ -n "$again" ]; do
                again=
                missing=$(cd "$GRADSYNC_BUILD" && ldd "$@" 2>/dev/null | awk '/not found/ { print $1 }')
                for missing in $missing; do
                        if [ -e "$root/lib/$missing" ] && ! [ -e "$scratch/lib/$missing" ]; then
                                ln -s "$root/lib/$missing" "$scratch/lib/"
                                again=1
                        fi
                done
        done
}

fake_machine() {
        mkdir "$scratch/gpu"
        fakes=$GRADSYNC_BUILD/tests/fakes
        export FAKE_GPU="$scratch/gpu"
        export FAKE_GPU_KERNELS="${FAKE_GPU_KERNELS:-$fakes/fake-kernels.so:$fakes/fake-mlp-kernels.so}"
        export LD_LIBRARY_PATH="$fakes/gpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
        export GPU_NCCL="${GPU_NCCL:-$fakes/nccl/libnccl.so.2}"
}

find_build() {
        if [ -z "${GRADSYNC_BUILD:-}" ]; then
                # shellcheck disable=SC2012  # the names are ours
                newest=$(cd "$root" && ls -t build*/$REDUCTIONS build*/*/$REDUCTIONS 2>/dev/null | head -n 1)
                GRADSYNC_BUILD=$root/${newest%/"$REDUCTIONS"}
        fi
        if ! [ -x "$GRADSYNC_BUILD/$REDUCTIONS" ]; then
                echo "run.sh: no $REDUCTIONS in '$GRADSYNC_BUILD': meson setup build && ninja -C build" >&2
                exit 1
        fi
        GRADSYNC_BUILD=$(cd "$GRADSYNC_BUILD" && pwd)
        export GRADSYNC_BUILD
}

give_up() {
        end_processes
        [ -z "$part" ] || has_ended "$part" "$SECONDS_GRACE"
        note run end stopped "by a signal, in part $name" $((($(now) - start) * 1000)).0
        exit 1
}

# The limit of a part is its share of the time that is left.
run_parts() {
        end=$((start + SECONDS_ALL)) shares=0
        for word in $PARTS; do
                case $word in
                *[!0-9]*) name=$word ;;
                *) ! wanted "$name" || shares=$((shares + word)) ;;
                esac
        done
        for word in $PARTS; do
                case $word in
                *[!0-9]*) name=$word ;;
                *)
                        wanted "$name" || continue
                        limit=$(((end - $(now)) * word / shares))
                        shares=$((shares - word))
                        if [ "$limit" -lt "$SECONDS_LEAST" ]; then
                                note run "$name" skipped 'no time is left'
                                failed=$((failed + 1))
                        else
                                run_part "$name" "$limit"
                        fi
                        ;;
                esac
        done
}

if [ -n "$list" ]; then
        for word in $PARTS; do
                case $word in
                *[!0-9]*) ! wanted "$word" || echo "$word" ;;
                esac
        done
        exit 0
fi
start=$(now) failed=0 name='' part='' OUT=${OUT:-gpu-results}
find_build
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
lend_libraries
[ -z "$fake" ] || fake_machine
"$GRADSYNC_BUILD/$REDUCTIONS" --present
present=$?
[ "$present" = 0 ] || exit "$present"
mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd) && : >"$OUT/rows.jsonl" || exit 1
trap give_up TERM INT HUP
version=$(cat "$root/version" 2>/dev/null || git -C "$root" describe --always --dirty 2>/dev/null)
driver=$(head -n 1 /proc/driver/nvidia/version 2>/dev/null || echo 'no version of a driver in /proc')
note run begin "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "gradsync ${version:-unknown}; $(uname -srm); $driver"
run_parts
note run end done "$failed parts failed or were out of time" $((($(now) - start) * 1000)).0
[ "$failed" = 0 ]
