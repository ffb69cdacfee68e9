#compdef gradsyncctl
# SPDX-License-Identifier: Apache-2.0
# Completion of gradsyncctl for zsh. Commands and options are read from gradsyncctl's own help, so that they
# are never older than it; jobs, ranks and devices come from the daemons that the line means.

# What --plain writes, in lines whose columns have a tab between them.
_gradsyncctl_ask() {
        "$program" "${where[@]}" "$@" --plain 2>/dev/null
}

# Undoes the escapes of --plain.
_gradsyncctl_unescape() {
        print -rn -- "${(g::)1}"
}

# name:explanation for _describe, where a colon in the name is escaped.
_gradsyncctl_explained() {
        print -r -- "${1//:/\\:}:$2"
}

_gradsyncctl_commands() {
        local -a commands
        commands=(${(f)"$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\)  *\(.*\)/\1:\2/p')"})
        _describe -t commands command commands
}

_gradsyncctl_options() {
        local -a options
        options=(${(f)"$(sed -En 's/^  (-[a-zA-Z], |    )(--[a-z-]+)[^ ]*( [A-Z]+)? +(.*)/\2:\4/p' <<<"$help")"})
        _describe -o -t options option options
}

# Whether the word is an option whose value is the next word.
_gradsyncctl_takes_value() {
        case $1 in
        --*) [[ $help == *" $1 "[A-Z]* ]] ;;
        -?) [[ $help == *$'\n'"  $1, --"[a-z-]##" "[A-Z]* ]] ;;
        *) false ;;
        esac
}

# Names of jobs; in front of one that several users have, and where a user is being typed, the user.
_gradsyncctl_jobs() {
        local line name state
        local -a rows cells jobs
        local -A seen
        rows=(${(f)"$(_gradsyncctl_ask list jobs)"})
        for line in $rows; do
                name=${line%%$'\t'*}
                seen[$name]=$((${seen[$name]:-0} + 1))
        done
        for line in $rows; do
                cells=("${(@ps:\t:)line}")
                name=$(_gradsyncctl_unescape "$cells[1]")
                state="$cells[5] on $cells[4], of $cells[3]"
                ((seen[$cells[1]] == 1)) && jobs+=("$(_gradsyncctl_explained "$name" "$state")")
                if ((seen[$cells[1]] > 1)) || [[ -n $PREFIX ]]; then
                        jobs+=("$(_gradsyncctl_explained "$cells[3]/$name" "$state")")
                        [[ $cells[3] != $cells[2] && -n $PREFIX ]] &&
                                jobs+=("$(_gradsyncctl_explained "$cells[2]/$name" "$state")")
                fi
        done
        _describe -t jobs job jobs
}

_gradsyncctl_ranks() {
        local line
        local -a cells ranks
        for line in ${(f)"$(_gradsyncctl_ask status "${(Q)job}")"}; do
                cells=("${(@ps:\t:)line}")
                [[ $cells[1] == member && -n $cells[4] ]] && ranks+=("$cells[4]:pid $cells[6], $cells[8]")
        done
        _describe -V -t ranks rank ranks
}

_gradsyncctl_devices() {
        local line
        local -a cells devices
        devices=(cpu)
        for line in ${(f)"$(_gradsyncctl_ask status)"}; do
                cells=("${(@ps:\t:)line}")
                [[ $cells[1] == daemon ]] && devices+=("${cells[2]//:/\\:}")
        done
        devices=(${(u)devices})
        _describe -t devices device devices
}

# The value of the option in front of the cursor.
_gradsyncctl_value() {
        case $1 in
        -s | --socket | -o | --output | --*-dir) _files ;;
        -d | --device) _gradsyncctl_devices ;;
        *) _message value ;;
        esac
}

# Finds the command, its help, how many arguments follow it, and which daemon is meant.
_gradsyncctl_look_back() {
        local word
        integer index
        help=$("$program" --help 2>/dev/null)
        for ((index = 2; index < CURRENT; index++)); do
                word=$words[index]
                if [[ $word == -- ]]; then
                        behind=$index
                        return
                elif _gradsyncctl_takes_value "$word"; then
                        ((++index < CURRENT)) || return
                        case $word in
                        -s | --socket | -d | --device) where=("$word" "${(Q)words[index]}") ;;
                        esac
                elif [[ $word == --(socket|device)=* ]]; then
                        where=("${word%%=*}" "${(Q)word#*=}")
                elif [[ $word == -w || $word == --watch ]]; then
                        [[ $words[index+1] == [0-9.]## ]] && ((index++))
                elif [[ $word == -* ]]; then
                        :
                elif [[ -z $command ]]; then
                        command=$word
                        help=$("$program" help "$command" 2>/dev/null)
                else
                        ((arguments++))
                        job=$word
                fi
        done
}

_gradsyncctl() {
        emulate -L zsh
        setopt extended_glob
        local program=$words[1] current=$words[CURRENT] previous=$words[CURRENT-1] command= help= job=
        integer arguments=0 behind=0
        local -a where

        _gradsyncctl_look_back
        if ((behind > 0)); then
                shift behind words
                ((CURRENT -= behind))
                _normal
        elif ((CURRENT > 2)) && _gradsyncctl_takes_value "$previous"; then
                _gradsyncctl_value "$previous"
        elif [[ $current == --*=* ]]; then
                compset -P '*='
                _gradsyncctl_value "${current%%=*}"
        elif [[ $current == -* ]]; then
                _gradsyncctl_options
        elif [[ -z $command ]]; then
                _gradsyncctl_commands
        elif ((arguments == 0)); then
                case $command in
                list) compadd jobs clients links ;;
                key) compadd new ;;
                help) _gradsyncctl_commands ;;
                status | top | trace | evict | pause | resume) _gradsyncctl_jobs ;;
                esac
        elif [[ $command == evict ]] && ((arguments == 1)); then
                _gradsyncctl_ranks
        fi
}

_gradsyncctl "$@"
