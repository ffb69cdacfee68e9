#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2086,SC2048  # words in SAFE, SUITES and the package lists are split on purpose
# Installs what the tests need, builds, and runs all of them. The last line is the total of all suites:
# "N passed, N failed, N skipped". Ends with 0 if nothing failed and every suite ran.
#
#   sh tests/run.sh                 everything
#   sh tests/run.sh SUITE...        only these (see SUITES below); builds that they need are made
#
# FUZZ_SECONDS   how long each fuzz target looks for new inputs (60 if CI is set, else 5; 0: only the corpus)
# SCHEDULES      of the simulation (1,000,000 if CI is set, else 100,000)
# JOBS           parallel compilations and tests (default: the number of CPUs)
# NO_INSTALL     set: install no packages
#
# Builds and logs go to build-test/, one folder per kind of build; so does the file system of the machine that
# the suite systemd boots.
set -u

SUITES="gcc clang lint unit simulation integration metrics versions torch nccl gpu systemd fuzz asan tsan"

cd "$(dirname "$0")/.." || exit 1
ROOT=$PWD
OUT=$ROOT/build-test
CI=${CI:-}
JOBS=${JOBS:-$(nproc)}
FUZZ_SECONDS=${FUZZ_SECONDS:-$([ -n "$CI" ] && echo 60 || echo 5)}
SCHEDULES=${SCHEDULES:-$([ -n "$CI" ] && echo 1000000 || echo 100000)}
PYTHON=/usr/bin/python3
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
unset GRADSYNC_SOCKET GRADSYNC_JOB GRADSYNC_JOB_TOKEN GRADSYNC_RANK GRADSYNC_WORLD_SIZE GRADSYNC_DEVICE
unset GRADSYNC_INSTANCE GRADSYNC_SPARE GRADSYNC_CHECK_PARAMETERS GRADSYNC_CHECK_EVERY
passed=0 failed=0 skipped=0

. tests/packages.sh

# tally NAME PASSED FAILED SKIPPED
tally() {
        passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
        printf '%-24s %5d passed %4d failed %4d skipped\n' "$1" "$2" "$3" "$4"
}

# verdict NAME STATUS LOG: one test, whose end of log is shown if it failed
verdict() {
        if [ "$2" = 0 ]; then
                tally "$1" 1 0 0
        else
                tally "$1" 0 1 0
                echo "--- $1 ended with $2; the end of $3:"
                tail -n 60 "$3"
                echo "---"
        fi
}

# verdicts NAME STATUS LOG JUNIT...: many tests, counted from JUnit files. A runner that failed without a
# failed test counts as one.
verdicts() {
        name=$1 status=$2 log=$3
        shift 3
        # shellcheck disable=SC2046
        set -- $($PYTHON tests/count.py "$@")
        if [ "$status" != 0 ] && [ "$2" = 0 ]; then
                set -- "$1" 1 "$3"
        fi
        tally "$name" "$1" "$2" "$3"
        if [ "$2" != 0 ]; then
                echo "--- $name; the end of $log:"
                tail -n 120 "$log"
                echo "---"
        fi
}

# build KIND TARGET COMPILER OPTION...: configures build-test/KIND, and compiles TARGET there. Counts as one
# test, once per run.
build() {
        kind=$1 target=$2 compiler=$3
        shift 3
        case " $built " in *" $kind "*) return 0 ;; *" !$kind "*) return 1 ;; esac
        log=$OUT/$kind.build.log
        status=0
        {
                if [ ! -f "$OUT/$kind/build.ninja" ]; then
                        rm -rf "${OUT:?}/$kind"
                        CC=$compiler meson setup -Dwerror=true "$@" "$OUT/$kind"
                else
                        meson configure -Dwerror=true "$@" "$OUT/$kind"
                fi && ninja -k 0 -j "$JOBS" -C "$OUT/$kind" "$target"
        } </dev/null >"$log" 2>&1 || status=$?
        verdict "build $kind" "$status" "$log"
        if [ "$status" = 0 ]; then built="$built $kind"; else built="$built !$kind"; fi
        return "$status"
}
built=

ALL="-Dtests=enabled -Dcli=enabled -Dsystemd=enabled"
build_gcc() { build gcc all gcc $ALL -Dman=enabled; }
build_clang() { build clang all clang $ALL -Dman=disabled; }
build_fuzz() {
        build fuzz fuzz clang -Dfuzz=true -Dtests=enabled -Dcli=disabled -Dexamples=false -Dman=disabled \
                -Dsystemd=disabled -Dbuildtype=debugoptimized -Db_lundef=false
}
build_asan() {
        build asan all gcc $ALL -Dman=disabled -Dbuildtype=debugoptimized -Db_sanitize=address,undefined
}
build_tsan() {
        build tsan all gcc $ALL -Dman=disabled -Dcuda=disabled -Dbuildtype=debugoptimized -Db_sanitize=thread
}

# unit NAME KIND: the unit tests of build-test/KIND
unit() {
        log=$OUT/$2.unit.log
        status=0
        rm -f "$OUT/$2/meson-logs/testlog.junit.xml"
        timeout -k 10 1800 $SAFE meson test -C "$OUT/$2" --no-rebuild --print-errorlogs \
                --num-processes "$JOBS" --timeout-multiplier 4 </dev/null >"$log" 2>&1 || status=$?
        verdicts "$1" "$status" "$log" "$OUT/$2/meson-logs/testlog.junit.xml"
}

# run_python TAG KIND ARGUMENT...: pytest against build-test/KIND; leaves TAG.log, TAG.xml and TAG.status
run_python() {
        tag=$1 kind=$2
        shift 2
        status=0
        rm -f "$OUT/$tag.xml" "$OUT/$tag.status"
        $AS_ROOT env GRADSYNC_BUILD="$OUT/$kind" timeout -k 10 2400 $SAFE \
                $PYTHON -m pytest -q -n $((JOBS * 2)) --junitxml "$OUT/$tag.xml" "$@" \
                </dev/null >"$OUT/$tag.log" 2>&1 || status=$?
        echo "$status" >"$OUT/$tag.status"
}

# python NAME KIND ARGUMENT...: the same, and counts
python() {
        name=$1 tag=$(echo "$1" | tr ' ' -)
        shift
        run_python "$tag" "$@"
        verdicts "$name" "$status" "$OUT/$tag.log" "$OUT/$tag.xml"
}

# beside FUNCTION ARGUMENT...: in the background, as soon as one of the CPUs is free of those begun before
free_cpus() {
        rm -f "$OUT/cpus"
        mkfifo "$OUT/cpus"
        exec 3<>"$OUT/cpus"
        for _ in $(seq "$JOBS"); do echo >&3; done
}
beside() {
        read -r _ <&3
        { "$@" 3>&-; echo >&3; } &
}

# Several users and memory cgroups take part in the integration tests, so they run as root.
root_prefix() {
        AS_ROOT=
        if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then
                AS_ROOT="sudo -n -E"
        elif [ "$(id -u)" != 0 ]; then
                echo "neither root nor sudo without a password: tests that need several users will fail" >&2
        fi
}

# The sanitizers' shadow memory needs a modest randomisation of addresses; take it away where the kernel's is
# larger.
address_prefix() {
        SAFE=
        bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)
        [ "$bits" -gt 28 ] || return 0
        if setarch -R true 2>/dev/null; then
                SAFE="setarch -R"
        else
                echo "vm.mmap_rnd_bits is $bits and setarch -R not allowed: sanitizers may fail to start" >&2
        fi
}

suite_gcc() { build_gcc; }
suite_clang() { build_clang && unit "unit clang" clang; }
suite_unit() { build_gcc && unit unit gcc; }
suite_lint() { build_gcc && python lint gcc tests/lint; }
# What members do is the same wherever their gradients are: so some of it is tried again on a fake GPU.
ON_GPU="client_again collectives completion replace restart spares void_plan"
suite_integration() {
        build_gcc || return 1
        python integration gcc tests/integration
        # shellcheck disable=SC2046
        python "integration on a GPU" gcc --on-gpu $(printf 'tests/integration/test_%s.py ' $ON_GPU)
}

# Prometheus' own programs, as Debian has them, read what the daemon writes: see tests/prometheus/debian.py.
suite_metrics() { build_gcc && python metrics gcc -n 0 tests/prometheus; }

# Another release in the same cluster: see tests/versions/run.sh, which builds it from the history. A tarball
# and a shallow clone have none.
suite_versions() {
        build_gcc || return 1
        log=$OUT/versions.log
        status=0
        rm -f "$OUT"/versions-*.xml
        $AS_ROOT env GRADSYNC_BUILD="$OUT/gcc" JUNIT="$OUT/versions" PYTEST_JOBS="$JOBS" timeout -k 10 2400 \
                sh tests/versions/run.sh </dev/null >"$log" 2>&1 || status=$?
        if [ "$status" = 77 ] && ! ls "$OUT"/versions-*.xml >/dev/null 2>&1; then
                tail -n 1 "$log"
                tally versions 0 0 1
                return
        fi
        verdicts versions "$status" "$log" "$OUT"/versions-*.xml
}

# The Python package, with torch, in an environment of its own: see tests/torch/run.sh.
suite_torch() {
        build_gcc || return 1
        log=$OUT/torch.log junit=$OUT/torch.xml
        status=0
        rm -f "$junit"
        $AS_ROOT env GRADSYNC_BUILD="$OUT/gcc" PYTEST_JOBS="$JOBS" JOBS="$JOBS" timeout -k 10 2400 \
                sh tests/torch/run.sh --junitxml "$junit" tests/torch </dev/null >"$log" 2>&1 || status=$?
        verdicts torch "$status" "$log" "$junit"
}

# NCCL as NVIDIA ships it, which pip gets once: see tests/nccl/wheels.py.
suite_nccl() { build_gcc && python nccl gcc -n 0 tests/nccl; }

# What is tested of the GPU path without a GPU; most of it waits for what hangs.
suite_gpu() { build_gcc && python gpu gcc -n $((JOBS * 4)) tests/gpu; }

# No rule is violated; faults strike in every phase; and each rule can be violated, by bugs planted for it.
suite_simulation() {
        build_gcc || return 1
        simulation=$OUT/gcc/tests/simulation/simulation
        log=$OUT/simulation.log
        status=0
        timeout -k 10 1800 "$simulation" --schedules "$SCHEDULES" --jobs "$JOBS" --coverage >"$log" 2>&1 || status=$?
        cat "$log"
        verdict simulation $((status == 2 ? 0 : status)) "$log"
        verdict "simulation coverage" "$status" "$log"
        for bug in $("$simulation-planted" --list); do
                log=$OUT/simulation-$bug.log
                status=0
                timeout -k 10 600 "$simulation-planted" --plant "$bug" --schedules 1000000 --jobs "$JOBS" \
                        >"$log" 2>&1 || status=$?
                verdict "planted $bug" "$status" "$log"
        done
}

# A machine of its own is booted, one for all tests, so they go one after the other. Only root can do that;
# whoever tests at home without root goes without it, and is told so. Continuous integration may not. It keeps
# one CPU busy, so if fuzz is to come it runs beside that.
systemd_waits=
suite_systemd() {
        build_gcc || return 1
        if [ -z "$CI" ] && [ -z "$AS_ROOT" ] && [ "$(id -u)" != 0 ]; then
                echo "systemd                  left out: only root, or sudo without a password, boots a machine"
                return 0
        fi
        case " $to_come " in *" fuzz "*) systemd_waits=yes; return 0 ;; esac
        python systemd gcc -n 0 tests/systemd
}

# Each target replays its corpus, and then looks for more on its own copy of it.
fuzz() {
        $SAFE sh tests/fuzz.sh "$1" "$ROOT/tests/fuzz/corpus" "$OUT/fuzz/work" "$FUZZ_SECONDS" </dev/null
}

suite_fuzz() {
        targets=
        build_fuzz &&
                targets=$(find "$OUT/fuzz/tests/fuzz" -maxdepth 1 -type f -name 'fuzz_*' -perm -u+x | sort)
        rm -rf "$OUT/fuzz/work"
        free_cpus
        [ -z "$systemd_waits" ] || beside run_python systemd gcc -n 0 tests/systemd
        for target in $targets; do
                beside fuzz "$target"
        done
        wait
        exec 3>&-
        if [ -n "$systemd_waits" ]; then
                status=$(cat "$OUT/systemd.status" || echo 1)
                verdicts systemd "$status" "$OUT/systemd.log" "$OUT/systemd.xml"
        fi
        if [ -z "$targets" ]; then
                tally "fuzz (no targets)" 0 1 0
                return 1
        fi
        for target in $targets; do
                name=$(basename "$target")
                for part in replay search; do
                        [ "$part" = replay ] || [ "$FUZZ_SECONDS" != 0 ] || continue
                        status=$(cat "$OUT/fuzz/work/$name/$part.status" 2>/dev/null || echo 1)
                        verdict "$name $part" "$status" "$OUT/fuzz/work/$name/$part.log"
                done
        done
}

suite_asan() {
        build_asan || return 1
        export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1:exitcode=99
        export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:exitcode=98
        unit "unit asan" asan
        python "integration asan" asan -m "not heavy" tests/integration
        python "gpu asan" asan -n $((JOBS * 4)) -m "not heavy" tests/gpu
        unset ASAN_OPTIONS UBSAN_OPTIONS
}

suite_tsan() {
        build_tsan || return 1
        export TSAN_OPTIONS="halt_on_error=0:second_deadlock_stack=1:exitcode=66"
        TSAN_OPTIONS=$TSAN_OPTIONS:suppressions=$PWD/tests/tsan.supp
        unit "unit tsan" tsan
        # The arithmetic of the training example takes minutes here.
        python "integration tsan" tsan -m "not heavy" --ignore tests/integration/test_digits.py \
                --ignore tests/integration/test_digits_cuda.py tests/integration
        unset TSAN_OPTIONS
}

main() {
        case ${1:-} in -h | --help) sed -n '4,17s/^# \{0,1\}//p' tests/run.sh; return 0 ;; esac
        for suite in "$@"; do
                case " $SUITES " in
                *" $suite "*) ;;
                *) echo "no suite $suite; there are: $SUITES" >&2; return 2 ;;
                esac
        done
        [ -n "${NO_INSTALL:-}" ] || install_packages $BUILD_PACKAGES $TEST_PACKAGES || return 1
        mkdir -p "$OUT"
        address_prefix
        root_prefix
        begin=$(date +%s)
        to_come=" ${*:-$SUITES} "
        for suite in ${*:-$SUITES}; do
                to_come=" ${to_come#* "$suite" }"
                "suite_$suite" || true
        done
        echo "$(($(date +%s) - begin)) s; logs in $OUT"
        if [ $((passed + failed)) = 0 ]; then failed=1; fi
        echo "$passed passed, $failed failed, $skipped skipped"
        [ "$failed" = 0 ]
}

main "$@"
