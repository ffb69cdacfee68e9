# SPDX-License-Identifier: Apache-2.0
# Completion of gradsyncctl for bash. Commands and options are read from gradsyncctl's own help, so that they
# are never older than it; jobs, ranks and devices come from the daemons that the line means.

# The words that begin with what has been typed, one a line on standard input.
_gradsyncctl_offer() {
        local word
        while IFS= read -r word; do
                [[ -n $word && $word == "$current"* ]] && COMPREPLY+=("$(printf '%q' "$word")")
        done
}

_gradsyncctl_commands() {
        "$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p'
}

_gradsyncctl_options() {
        sed -n 's/^  \(-[a-zA-Z], \|    \)\(--[a-z][a-z-]*\).*/\2/p' <<<"$help"
}

# Whether the word is an option whose value is the next word.
_gradsyncctl_takes_value() {
        case $1 in
        --*) [[ $help == *" $1 "[A-Z]* ]] ;;
        -?) [[ $help =~ (^|$'\n')"  $1, --"[a-z-]+" "[A-Z] ]] ;;
        *) false ;;
        esac
}

# What --plain writes, with its escapes undone.
_gradsyncctl_ask() {
        local line
        "$program" "${where[@]}" "$@" --plain 2>/dev/null |
                while IFS= read -r line; do printf '%b\n' "$line"; done
}

# Names of jobs; in front of one that several users have, and where a user is being typed, the user.
_gradsyncctl_jobs() {
        local name uid user rest
        local -A seen=()
        local -a rows=()
        while IFS=$'\t' read -r name uid user rest; do
                rows+=("$name"$'\t'"$uid"$'\t'"$user")
                seen[$name]=$((${seen[$name]:-0} + 1))
        done < <(_gradsyncctl_ask list jobs)
        for rest in "${rows[@]}"; do
                IFS=$'\t' read -r name uid user <<<"$rest"
                ((seen[$name] == 1)) && printf '%s\n' "$name"
                if ((seen[$name] > 1)) || [[ -n $current ]]; then
                        printf '%s/%s\n' "$user" "$name"
                        [[ $user != "$uid" && -n $current ]] && printf '%s/%s\n' "$uid" "$name"
                fi
        done
}

# The ranks of the job in front of the cursor, as the shell will read its name.
_gradsyncctl_ranks() {
        _gradsyncctl_ask status "$(xargs printf %s <<<"$job" 2>/dev/null)" |
                cut -f 1,4 | sed -n $'s/^member\t//p'
}

_gradsyncctl_devices() {
        { echo cpu; _gradsyncctl_ask status | cut -f 1,2 | sed -n $'s/^daemon\t//p'; } | sort -u
}

# The value of the option in front of the cursor.
_gradsyncctl_value() {
        case $1 in
        -s | --socket | -o | --output | --*-dir)
                compopt -o filenames 2>/dev/null
                mapfile -t COMPREPLY < <(compgen -f -- "$current")
                ;;
        -d | --device) _gradsyncctl_offer < <(_gradsyncctl_devices) ;;
        esac
}

# Finds the command, its help, how many arguments follow it, and which daemon is meant.
_gradsyncctl_look_back() {
        local index word
        help=$("$program" --help 2>/dev/null)
        for ((index = 1; index < COMP_CWORD; index++)); do
                word=${COMP_WORDS[index]}
                if [[ $word == -- ]]; then
                        behind=$index
                        return
                elif _gradsyncctl_takes_value "$word"; then
                        [[ ${COMP_WORDS[index + 1]} == = ]] && ((index++))
                        ((++index < COMP_CWORD)) || return
                        case $word in
                        -s | --socket | -d | --device) where=("$word" "${COMP_WORDS[index]}") ;;
                        esac
                elif [[ $word == -w || $word == --watch ]]; then
                        [[ ${COMP_WORDS[index + 1]} =~ ^[0-9.]+$ ]] && ((index++))
                elif [[ $word == -* || $word == = ]]; then
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
        local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]}
        local previous=${COMP_WORDS[COMP_CWORD - 1]}
        local command='' help='' job='' arguments=0 behind=0
        local -a where=()

        COMPREPLY=()
        # --socket=PATH comes in three words.
        if [[ $current == = ]]; then
                current=
        elif [[ $previous == = ]]; then
                previous=${COMP_WORDS[COMP_CWORD - 2]}
        fi
        _gradsyncctl_look_back
        if ((behind > 0)); then
                if ((COMP_CWORD == behind + 1)); then
                        mapfile -t COMPREPLY < <(compgen -c -- "$current")
                else
                        compopt -o filenames 2>/dev/null
                        mapfile -t COMPREPLY < <(compgen -f -- "$current")
                fi
        elif _gradsyncctl_takes_value "$previous"; then
                _gradsyncctl_value "$previous"
        elif [[ $current == -* ]]; then
                _gradsyncctl_offer < <(_gradsyncctl_options)
        elif [[ -z $command ]]; then
                _gradsyncctl_offer < <(_gradsyncctl_commands)
        elif ((arguments == 0)); then
                case $command in
                list) _gradsyncctl_offer < <(printf '%s\n' jobs clients links) ;;
                key) _gradsyncctl_offer <<<new ;;
                help) _gradsyncctl_offer < <(_gradsyncctl_commands) ;;
                status | top | trace | evict | pause | resume) _gradsyncctl_offer < <(_gradsyncctl_jobs) ;;
                esac
        elif [[ $command == evict ]] && ((arguments == 1)); then
                _gradsyncctl_offer < <(_gradsyncctl_ranks)
        fi
}

complete -F _gradsyncctl gradsyncctl
