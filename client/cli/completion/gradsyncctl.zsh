#compdef gradsyncctl
# SPDX-License-Identifier: Apache-2.0
# Completion for zsh: `gradsyncctl __complete` knows what may stand at the cursor.
local line value
local -a lines offered
lines=("${(@f)$("$words[1]" __complete -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
case $lines[1] in
*$'\t'*)
        for line in $lines; do
                value=${line%%$'\t'*}
                offered+=("${value//(#m)[\\:]/\\$MATCH}:${line#*$'\t'}")
        done
        _describe -V gradsyncctl offered
        ;;
":command "*)
        ((CURRENT -= ${lines[1]#* }))
        shift ${lines[1]#* } words
        _normal
        ;;
:*)
        [[ $PREFIX != --*=* ]] || compset -P 1 '*='
        _files ${${lines[1]:#:files}:+-/}
        ;;
esac
