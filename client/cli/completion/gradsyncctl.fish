# SPDX-License-Identifier: Apache-2.0
# Completion for fish: `gradsyncctl __complete` knows what may stand at the cursor.
function __gradsyncctl_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l lead (string replace -r '^(--[^=]*=)?.*' '$1' -- "$word")
    set -l path (string replace -r '^--[^=]*=' '' -- "$word")
    set -l lines ($words[1] __complete -- $words[2..] "$word" 2>/dev/null)
    switch "$lines[1]"
        case '*'\t'*'
            printf '%s\n' $lines
        case ':command *'
            set -e words[1..(string replace ':command ' '' $lines[1])]
            complete -C (string join ' ' -- (string escape -- $words) "$word")
        case :files
            printf '%s\n' $lead(__fish_complete_path "$path")
        case :directories
            printf '%s\n' $lead(__fish_complete_directories "$path")
    end
end
complete -c gradsyncctl -fk -a '(__gradsyncctl_complete)'
