# SPDX-License-Identifier: Apache-2.0
# Completion of gradsyncctl for bash. Commands and options are read from gradsyncctl's own help, so that they
# are never older than it; jobs, ranks and devices come from the daemons that the line means.

# The words that begin with what has been typed, one a line on standard input. The shell replaces only what
# stands behind the last character that breaks words.
_gradsyncctl_offer() {
        local word
        while IFS= read -r word; do
                [[ -n $word && $word == "$current"* ]] || continue
                word=$lead$word
                COMPREPLY+=("$(printf '%q' "${word:${#kept}}")")
        done
}

# Files (-f) or commands (-c) that begin with what has been typed.
_gradsyncctl_generate() {
        local word
        while IFS= read -r word; do
                word=$lead$word
                COMPREPLY+=("${word:${#kept}}")
        done < <(compgen "$1" -- "$current")
}

# The words of the line up to the cursor. The shell breaks cuda:0, user@host and --option=value into several;
# what has no blank between is put together again. Then --option=value is three words: so it is written in
# the rest of this file. `kept` is what the shell keeps of the last word, `lead` what stands before its value.
_gradsyncctl_read_line() {
        local line=$COMP_LINE before piece last='' whole='' index
        local -a joined=()
        for ((index = 0; index <= COMP_CWORD; index++)); do
                piece=${COMP_WORDS[index]}
                if [[ -z $piece ]]; then
                        before=${line%%[![:space:]]*}
                else
                        before=${line%%"$piece"*}
                        line=${line#*"$piece"}
                fi
                if [[ -z $before && $index -gt 0 && ($piece == [:=@]* || $last == *[:=@]) ]]; then
                        whole+=$piece
                else
                        ((index > 0)) && joined+=("$whole")
                        whole=$piece
                fi
                last=$piece
        done
        joined+=("$whole")
        kept=
        [[ $whole == "$last" ]] || kept=${whole%"$last"}
        [[ $last == [:=@]* ]] && kept=$whole
        kept=${kept%@} # readline replaces it with what stands behind it
        words=()
        for whole in "${joined[@]}"; do
                lead=
                if [[ $whole =~ ^--[a-z][a-z-]*= ]]; then
                        lead=$BASH_REMATCH
                        words+=("${lead%=}" = "${whole:${#lead}}")
                else
                        words+=("$whole")
                fi
        done
        cursor=$((${#words[@]} - 1))
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
                _gradsyncctl_generate -f
                ;;
        -d | --device) _gradsyncctl_offer < <(_gradsyncctl_devices) ;;
        esac
}

# Finds the command, its help, how many arguments follow it, and which daemon is meant.
_gradsyncctl_look_back() {
        local index word
        help=$("$program" --help 2>/dev/null)
        for ((index = 1; index < cursor; index++)); do
                word=${words[index]}
                if [[ $word == -- ]]; then
                        behind=$index
                        return
                elif _gradsyncctl_takes_value "$word"; then
                        [[ ${words[index + 1]} == = ]] && ((index++))
                        ((++index < cursor)) || return
                        case $word in
                        -s | --socket | -d | --device) where=("$word" "${words[index]}") ;;
                        esac
                elif [[ $word == -w || $word == --watch ]]; then
                        if [[ ${words[index + 1]} == = ]]; then
                                ((index += 2))
                        elif [[ ${words[index + 1]} =~ ^[0-9.]+$ ]]; then
                                ((index++))
                        fi
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
        local program=${COMP_WORDS[0]} current previous cursor lead kept
        local command='' help='' job='' arguments=0 behind=0
        local -a words=() where=()

        COMPREPLY=()
        _gradsyncctl_read_line
        current=${words[cursor]} previous=${words[cursor - 1]}
        [[ $previous == = ]] && previous=${words[cursor - 2]}
        _gradsyncctl_look_back
        if ((behind > 0)); then
                if ((cursor == behind + 1)); then
                        _gradsyncctl_generate -c
                else
                        compopt -o filenames 2>/dev/null
                        _gradsyncctl_generate -f
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
