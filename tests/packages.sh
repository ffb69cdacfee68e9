# SPDX-License-Identifier: Apache-2.0
# The Debian packages that building and testing need, in one place, and how missing ones get installed.
# Sourced by tests/run.sh, tests/bench/run.sh and client/examples/quickstart.sh; POSIX sh.

# shellcheck disable=SC2034
BUILD_PACKAGES="gcc libc6-dev meson ninja-build pkg-config protobuf-c-compiler libprotobuf-c-dev
        libevent-dev libinih-dev libssl-dev libsystemd-dev libjansson-dev libsmartcols-dev
        zlib1g-dev g++ libgloo-dev scdoc"
TEST_PACKAGES="g++ clang clang-format-14 llvm libclang-rt-14-dev libcmocka-dev mandoc python3
        python3-pip python3-venv python3-pytest python3-pytest-timeout python3-pytest-xdist
        python3-protobuf protobuf-compiler libnss-wrapper systemd systemd-container debootstrap util-linux
        procps iproute2 nftables openssl openmpi-bin git zsh fish"
BENCH_PACKAGES="g++ libgloo-dev libopenmpi-dev openmpi-bin python3"

# Installs what is missing of the given packages, as root or through sudo. Where there is no apt it names
# them and leaves the rest to the checks of meson.
install_packages() {
        missing=
        if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-query >/dev/null 2>&1; then
                echo "no apt-get here; what Debian calls $* must be there already" >&2
                return 0
        fi
        for package in "$@"; do
                case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) in
                *' installed') ;;
                *) missing="$missing $package" ;;
                esac
        done
        [ -n "$missing" ] || return 0
        as_root=
        if [ "$(id -u)" != 0 ]; then
                if ! command -v sudo >/dev/null 2>&1; then
                        echo "missing packages, and neither root nor sudo to install them:$missing" >&2
                        return 1
                fi
                as_root=sudo
        fi
        echo "installing:$missing"
        # An index that cannot be refreshed may still be good enough.
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update </dev/null >&2 || true
        # shellcheck disable=SC2086
        $as_root env DEBIAN_FRONTEND=noninteractive \
                apt-get -q -y --no-install-recommends install $missing </dev/null >&2
}
