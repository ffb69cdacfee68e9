#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a fresh Debian 12 to a finished training job: installs what building needs, builds, trains two processes on real data,
# shows their status while they train, and sums up. Where PyTorch is present, two more train with it. Needs no
# systemd; leaves nothing running. May be repeated.
#
#   sh client/examples/quickstart.sh
#
# BUILD        the build directory (build)
# PYTHON       the Python that may have PyTorch (python3)
# NO_INSTALL   set: install no packages
set -eu

cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build}
PYTHON=${PYTHON:-python3}
TORCH_EXAMPLE=client/examples/torch/digits.py
MEMBERS=2
LEAST_ACCURACY=0.95

# shellcheck source=tests/packages.sh
. tests/packages.sh

tmp=$(mktemp -d "${TMPDIR:-/tmp}/quickstart.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() {
        printf '\n==> %s\n' "$*"
}

# quietly COMMAND...: its output is of interest only if it fails
quietly() {
        if ! "$@" >"$tmp/quiet" 2>&1 </dev/null; then
                tail -n 40 "$tmp/quiet" >&2
                echo "quickstart: '$*' failed" >&2
                exit 1
        fi
}

install() {
        say "Packages"
        # shellcheck disable=SC2086
        if ! install_packages $BUILD_PACKAGES 2>"$tmp/quiet"; then
                tail -n 20 "$tmp/quiet" >&2
                exit 1
        fi
        echo "all there"
}

build() {
        say "Build in $BUILD/"
        [ -f "$BUILD/build.ninja" ] || quietly meson setup "$BUILD"
        quietly meson configure "$BUILD" -Dexamples=true -Dcli=enabled
        quietly ninja -C "$BUILD" daemon/core/gradsyncd client/cli/gradsyncctl \
                client/examples/hello client/examples/digits
        echo "gradsyncd, gradsyncctl and the example are ready"
}

# Once rank 0 has written the status file, shows it; a second call shows nothing.
show_status() {
        [ -f "$tmp/status" ] || return 0
        say "gradsyncctl status, while they train"
        cat "$tmp/status"
        mv "$tmp/status" "$tmp/status.shown"
        echo
}

# Rank 0 asks for the status after some epochs, beside its training: so it is that of a live job on any machine, however fast.
train() {
        say "gradsyncctl run -n $MEMBERS -- digits"
        built=$(cd "$BUILD" && pwd)
        ctl=$built/client/cli/gradsyncctl
        ask="'$ctl' status >'$tmp/status.part' && mv '$tmp/status.part' '$tmp/status'"
        {
                status=0
                "$ctl" run -n "$MEMBERS" --job digits -- "$built/client/examples/digits" --exec "$ask" --exec-epoch 10 2>&1 ||
                        status=$?
                echo "$status" >"$tmp/exit"
        } | while IFS= read -r line; do
                printf '%s\n' "$line"
                printf '%s\n' "$line" >>"$tmp/log"
                show_status
        done
        [ "$(cat "$tmp/exit")" = 0 ] || { echo "quickstart: training ended with $(cat "$tmp/exit")" >&2; exit 1; }
        [ -f "$tmp/status.shown" ] || { echo "quickstart: no status was shown" >&2; exit 1; }
}

# From the lines that every rank prints at its end and rank 0 after each epoch.
sum_up() {
        say "Summary"
        awk -v members="$MEMBERS" -v least="$LEAST_ACCURACY" '
                function after(word,   i) {
                        for (i = 1; i < NF; i++)
                                if ($i == word)
                                        return $(i + 1)
                        return ""
                }
                / images\/s / {
                        for (i = 2; i <= NF; i++)
                                if ($i == "images/s")
                                        images += $(i - 1)
                        exposed += after("ms,")
                        loss = after("loss")
                        epochs++
                }
                / accuracy / {
                        accuracy = after("accuracy")
                        hash[after("parameters")] = 1
                        ended++
                }
                END {
                        for (h in hash)
                                different++
                        equal = ended == members && different == 1
                        printf "  accuracy         %s of the held-out rows (at least %s wanted)\n", accuracy, least
                        printf "  parameters       %s\n", equal ? "equal on all members, bit by bit: " h : "NOT EQUAL"
                        printf "  loss             %s after %d epochs\n", loss, epochs
                        printf "  speed            %.0f images/s by %d members together\n", images / epochs, members
                        printf "  exposed          %.1f %% of the time was spent waiting for gradients\n", exposed / epochs
                        exit !(equal && epochs && accuracy >= least)
                }' "$tmp/log"
}

# The same data with PyTorch, which this script does not install.
train_with_torch() {
        library=$(cd "$BUILD" && pwd)/client/lib/libgradsync.so.0
        if ! "$PYTHON" -c "import torch" >"$tmp/quiet" 2>&1; then
                say "PyTorch"
                echo "$PYTHON has none. With it:" \
                        "GRADSYNC_LIBRARY=$library PYTHONPATH=client/python" \
                        "$BUILD/client/cli/gradsyncctl run -n $MEMBERS -- $PYTHON $TORCH_EXAMPLE"
                return
        fi
        say "gradsyncctl run -n $MEMBERS -- $PYTHON $TORCH_EXAMPLE"
        GRADSYNC_LIBRARY=$library PYTHONPATH=client/python${PYTHONPATH:+:$PYTHONPATH} \
                PYTHONDONTWRITEBYTECODE=1 \
                "$BUILD/client/cli/gradsyncctl" run -n "$MEMBERS" -- "$PYTHON" "$TORCH_EXAMPLE"
}

install_if_wanted() {
        [ -n "${NO_INSTALL:-}" ] || install
}

install_if_wanted
build
train
sum_up
train_with_torch
cat <<END

Where to go from here: "meson devenv -C $BUILD" opens a shell that finds these programs. There,
"gradsyncctl demo" shows what happens when a trainer stops, or dies, and "gradsyncctl run -n 3 -- hello"
starts the smallest program that takes part, client/examples/hello.c. README.md is the way around.
END
