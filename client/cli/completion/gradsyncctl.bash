# SPDX-License-Identifier: Apache-2.0
# Completion of gradsyncctl for bash; zsh takes it too, after `autoload bashcompinit && bashcompinit`.
# Commands and options are read from gradsyncctl's own help, so that they are never older than it; the names
# of jobs come from the daemon that the line names.

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
        "$program" help $command 2>/dev/null |
                sed -n 's/^  \(-[a-zA-Z], \|    \)\(--[a-z][a-z-]*\).*/\2/p'
}

# Columns are two blanks apart; the name of a job may hold one.
_gradsyncctl_jobs() {
        "$program" "${where[@]}" list jobs 2>/dev/null | sed '1d; s/  .*//'
}

# What an option in front of the cursor wants; false if it wants nothing.
_gradsyncctl_value() {
        case $1 in
        -s | --socket | -o | --output | --log-dir)
                compopt -o filenames 2>/dev/null
                mapfile -t COMPREPLY < <(compgen -f -- "$current")
                ;;
        -d | --device) _gradsyncctl_offer <<<cpu ;;
        -n | --members | --count | -i | --interval | --job | --daemon-arg | --restart | --grace | --pause | \
                --token | --name | --uids) ;;
        *) return 1 ;;
        esac
}

# Finds the command, how many arguments follow it, and which daemon is meant.
_gradsyncctl_look_back() {
        local index word
        for ((index = 1; index < COMP_CWORD; index++)); do
                word=${COMP_WORDS[index]}
                case $word in
                -s | --socket | -d | --device)
                        [[ ${COMP_WORDS[index + 1]} == = ]] && ((index++))
                        ((++index < COMP_CWORD)) && where=("$word" "${COMP_WORDS[index]}")
                        ;;
                -o | --output | --log-dir | -n | --count | --members | -i | --interval | --job | \
                        --daemon-arg | --restart | --grace | --pause | --token | --name | --uids)
                        [[ ${COMP_WORDS[index + 1]} == = ]] && ((index++))
                        ((index++))
                        ;;
                --) behind=$index; return ;;
                -* | =) ;;
                *) if [[ -z $command ]]; then command=$word; else ((arguments++)); fi ;;
                esac
        done
}

_gradsyncctl() {
        local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]}
        local previous=${COMP_WORDS[COMP_CWORD - 1]}
        local command='' arguments=0 behind=0
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
        elif _gradsyncctl_value "$previous"; then
                return
        elif [[ $current == -* ]]; then
                _gradsyncctl_offer < <(_gradsyncctl_options)
        elif [[ -z $command ]]; then
                _gradsyncctl_offer < <(_gradsyncctl_commands)
        elif ((arguments == 0)); then
                case $command in
                list) _gradsyncctl_offer < <(printf '%s\n' jobs clients links) ;;
                help) _gradsyncctl_offer < <(_gradsyncctl_commands) ;;
                status | top | trace | evict | pause | resume) _gradsyncctl_offer < <(_gradsyncctl_jobs) ;;
                esac
        fi
}

complete -F _gradsyncctl gradsyncctl
