#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What run.sh and recovery.sh begin with: takes --install out of the arguments of the script that reads this,
# and sets `install` to true or false. The others are the driver's.
install=false
for argument in "$@"; do
        shift
        if [ "$argument" = --install ]; then
                install=true
        else
                set -- "$@" "$argument"
        fi
done
