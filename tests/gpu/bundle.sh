#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts all that run.sh needs into a folder that can be copied to a machine with a GPU, which needs neither a
# compiler nor meson: there `sh FOLDER/run.sh`. The programs hold the kernels as machine code (fatbin), so no
# time is lost with compiling them there. They need a C library that is not older than this machine's; other
# libraries are in the bundle, and are used where the machine has none. NCCL and the driver are not in it,
# except for fake ones.
#
#   sh tests/gpu/bundle.sh FOLDER       FOLDER is made, and must not exist
#
# GRADSYNC_BUILD   take the programs of this build, as they are (default: build-bundle, which is made)
#
# Exit status: 0 the bundle is complete; 1 it is not, or is larger than 40 MiB; 2 usage.
set -u

KIB_MOST=40960
NEEDED='daemon/core/gradsyncd client/cli/gradsyncctl client/lib/libgradsync.so.0 tests/gpu/reductions
        tests/integration/member tests/fakes/gpu/conformance tests/fakes/gpu/libcuda.so.1
        tests/fakes/gpu/fake-gpu-context tests/fakes/fake-kernels.so tests/fakes/fake-mlp-kernels.so'
OPTIONAL='tests/gpu/probe tests/gpu/members tests/gpu/inprocess client/examples/digits_cuda
        client/examples/digits.csv.gz daemon/engine/gloo/gradsync-gloo tests/fakes/nccl/libnccl.so.2'
SYSTEM='ld-linux* libc.so* libm.so* libdl.so* libpthread.so* librt.so* libgradsync.so* libcuda.so* *nccl*'

fail() {
        echo "bundle.sh: $1" >&2
        exit 1
}

if [ $# != 1 ] || [ -z "$1" ]; then
        echo "usage: bundle.sh FOLDER" >&2
        exit 2
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir "$1" || exit 1
to=$(cd "$1" && pwd)
if [ -z "${GRADSYNC_BUILD:-}" ]; then
        GRADSYNC_BUILD=$root/build-bundle
        if ! [ -d "$GRADSYNC_BUILD" ]; then
                meson setup -Dtests=enabled -Dcli=enabled -Dfatbin=enabled "$GRADSYNC_BUILD" "$root" ||
                        fail "the build could not be set up"
        fi
        ninja -C "$GRADSYNC_BUILD" || fail "the build failed"
fi

# put FILE: from the build to the same place in the bundle's.
put() {
        mkdir -p "$to/build/$(dirname "$1")"
        cp -L "$GRADSYNC_BUILD/$1" "$to/build/$1" || fail "$1 could not be copied"
}

for file in $NEEDED; do
        [ -e "$GRADSYNC_BUILD/$file" ] || fail "there is no $file in $GRADSYNC_BUILD"
        put "$file"
done
for file in $OPTIONAL; do
        if [ -e "$GRADSYNC_BUILD/$file" ]; then
                put "$file"
        else
                echo "bundle.sh: left out, as it was not built: $file" >&2
        fi
done

# is_of_system NAME: one that every machine has, or that must be the machine's own.
is_of_system() {
        set -f
        for pattern in $SYSTEM; do
                # shellcheck disable=SC2254  # they are patterns
                case $1 in
                $pattern)
                        set +f
                        return 0
                        ;;
                esac
        done
        set +f
        return 1
}

mkdir "$to/lib"
# shellcheck disable=SC2086
(cd "$to/build" && ldd $NEEDED $OPTIONAL 2>/dev/null) |
        awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u |
        while read -r name path; do
                is_of_system "$name" || cp -L "$path" "$to/lib/$name" || exit 1
        done || fail "a library could not be copied"

mkdir -p "$to/tests/gpu" "$to/tests/integration" "$to/client" "$to/proto"
cp "$root"/tests/gpu/run.sh "$root"/tests/gpu/results.py "$to/tests/gpu/" &&
        cp "$root"/tests/gpu/torch_rows.py "$root"/tests/gpu/cluster_rows.py "$to/tests/gpu/" &&
        cp -R "$root"/client/python "$to/client/" &&
        find "$to/client" -name __pycache__ -prune -exec rm -rf {} + &&
        cp "$root"/tests/pytest.ini "$root"/tests/conftest.py "$to/tests/" &&
        cp "$root"/tests/integration/*.py "$to/tests/integration/" &&
        cp "$root"/proto/*.proto "$to/proto/" &&
        cp "$root"/LICENSE "$to/" || fail "a script could not be copied"
(cd "$root" && git describe --always --dirty 2>/dev/null || echo unknown) >"$to/version"
cat >"$to/run.sh" <<'END'
#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All questions to this machine's GPU; see tests/gpu/run.sh.
GRADSYNC_BUILD=$(cd "$(dirname "$0")" && pwd)/build
export GRADSYNC_BUILD
exec sh "${GRADSYNC_BUILD%/build}/tests/gpu/run.sh" "$@"
END

[ -z "$(find "$to" -iname '*nccl*.so*' ! -path "$to/build/tests/fakes/*")" ] || fail "there is an NCCL in it"
kib=$(du -sk "$to" | cut -f 1)
[ "$kib" -le "$KIB_MOST" ] || fail "it has $kib KiB; $KIB_MOST are the most"
echo "$to: $kib KiB"
