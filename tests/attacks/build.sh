#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What run.sh and crowd.sh begin with: adds --build to the arguments, if it is not there and they need one.
case " $* " in
*" --build"* | *" --help "* | *" -h "* | *" --list "*) ;;
*)
        if [ -z "${GRADSYNC_BUILD:-}" ]; then
                sh "$HERE/../run.sh" gcc >&2
                GRADSYNC_BUILD=$HERE/../../build-test/gcc
        fi
        set -- --build "$GRADSYNC_BUILD" "$@"
        ;;
esac
export PYTHONDONTWRITEBYTECODE=1
