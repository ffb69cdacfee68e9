# SPDX-License-Identifier: Apache-2.0
# Completion for bash: `gradsyncctl __complete` knows what may stand at the cursor. bash breaks words at ":",
# "=" and "@", and replaces the last piece alone: `kept` is what stays of the word.
_gradsyncctl() {
        local rest=${COMP_LINE:0:COMP_POINT} word='' kept='' lead='' flag='' piece line
        local -a words=() lines=()
        for piece in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
                [[ ! $word || $rest != [[:space:]]* ]] || { words+=("$word") && word=''; }
                rest=${rest#"${rest%%[![:space:]]*}"}
                kept=$word word+=$piece rest=${rest#"$piece"}
        done
        [[ $piece != [:=]* ]] || kept=$word
        kept=${kept%@} # the piece is "@host" then
        [[ $word != --*=* ]] || lead=${word%%=*}=
        mapfile -td '' words < <(printf '%s ' "${words[@]}" | xargs printf '%s\0' 2>/dev/null) # unquoted
        mapfile -t lines < <("${words[0]}" __complete -- "${words[@]:1}" "$word" 2>/dev/null)
        case ${lines[0]-} in
        *$'\t'*) ;;
        :directories) flag=-d ;;
        ":command ${#words[@]}") flag=-c ;;
        :*) flag=-f ;;
        esac
        COMPREPLY=()
        if [[ $flag ]]; then
                [[ $flag == -c ]] || compopt -o filenames 2>/dev/null
                mapfile -t lines < <(compgen -P "$lead" "$flag" -- "${word#"$lead"}")
                COMPREPLY=("${lines[@]#"$kept"}")
                return
        fi
        for line in "${lines[@]%%$'\t'*}"; do
                printf -v line %q "$line"
                [[ $line != "$word"* ]] || COMPREPLY+=("${line#"$kept"}")
        done
}
complete -o nosort -F _gradsyncctl gradsyncctl
