# SPDX-License-Identifier: Apache-2.0
# Completion of gradsyncctl for fish. Commands and options are read from gradsyncctl's own help, so that they
# are never older than it; jobs, ranks and devices come from the daemons that the line means.

# Looks at the line up to the cursor. Prints, one a line: the number of the words up to a "--", or 0; the
# command; how many arguments follow it; the last of them; the option whose value is wanted; and the options
# that say which daemon is meant.
function __gradsyncctl_line
    set -l words (commandline -opc)
    set -l program $words[1]
    set -l help ($program --help 2>/dev/null)
    set -l command ''
    set -l arguments 0
    set -l job ''
    set -l option ''
    set -l daemon
    set -l index 2
    while test $index -le (count $words)
        set -l word $words[$index]
        if test "$word" = --
            printf '%s\n' $index "$command" $arguments "$job" '' $daemon
            return
        else if __gradsyncctl_takes_value "$word" $help
            set index (math $index + 1)
            if test $index -gt (count $words)
                set option $word
            else if contains -- $word -s --socket -d --device
                set daemon $word $words[$index]
            end
        else if string match -qr -- '^--(socket|device)=' "$word"
            set daemon (string split -m 1 = -- "$word")
        else if contains -- "$word" -w --watch
            set -l next (math $index + 1)
            if test $next -le (count $words); and string match -qr '^[0-9.]+$' -- $words[$next]
                set index $next
            end
        else if string match -q -- '-*' "$word"
        else if test -z "$command"
            set command $word
            set help ($program help $word 2>/dev/null)
        else
            set arguments (math $arguments + 1)
            set job $word
        end
        set index (math $index + 1)
    end
    printf '%s\n' 0 "$command" $arguments "$job" "$option" $daemon
end

# Whether the word is an option whose value is the next word; the lines of help follow it.
function __gradsyncctl_takes_value
    if string match -qr -- '^--.' "$argv[1]"
        string match -qr -- '^  .* '$argv[1]' [A-Z]' $argv[2..]
    else if string match -qr -- '^-.$' "$argv[1]"
        string match -qr -- '^  '$argv[1]', --[a-z-]+ [A-Z]' $argv[2..]
    else
        false
    end
end

# What --plain writes.
function __gradsyncctl_ask
    set -l words (commandline -opc)
    set -l line (__gradsyncctl_line)
    $words[1] $line[6..] $argv --plain 2>/dev/null
end

function __gradsyncctl_commands
    set -l words (commandline -opc)
    $words[1] --help 2>/dev/null | string replace -rf '^  ([a-z]+) +(.*)' '$1\t$2'
end

function __gradsyncctl_options
    set -l words (commandline -opc)
    set -l command (__gradsyncctl_line)[2]
    test -n "$command"; or set -e command
    $words[1] help $command 2>/dev/null |
        string replace -rf '^  (?:-[a-zA-Z], |    )(--[a-z][a-z-]*)\S*(?: [A-Z]+)? +(.*)' '$1\t$2'
end

# Names of jobs; in front of one that several users have, and where a user is being typed, the user.
function __gradsyncctl_jobs
    set -l rows (__gradsyncctl_ask list jobs)
    set -l names
    for row in $rows
        set -a names (string split \t -- $row)[1]
    end
    set -l current (commandline -ct)
    for row in $rows
        set -l cells (string split \t -- $row)
        set -l name (string unescape -- $cells[1])
        set -l state "$cells[5] on $cells[4], of $cells[3]"
        set -l namesakes (count (string match -- $cells[1] $names))
        test $namesakes -eq 1; and printf '%s\t%s\n' $name $state
        if test $namesakes -gt 1; or test -n "$current"
            printf '%s/%s\t%s\n' $cells[3] $name $state
            test $cells[3] != $cells[2]; and test -n "$current"
            and printf '%s/%s\t%s\n' $cells[2] $name $state
        end
    end
end

function __gradsyncctl_ranks
    set -l line (__gradsyncctl_line)
    for row in (__gradsyncctl_ask status $line[4])
        set -l cells (string split \t -- $row)
        if test $cells[1] = member; and test -n "$cells[4]"
            printf '%s\tpid %s, %s\n' $cells[4] $cells[6] $cells[8]
        end
    end
end

function __gradsyncctl_devices
    echo cpu
    for row in (__gradsyncctl_ask status)
        set -l cells (string split \t -- $row)
        test $cells[1] = daemon; and echo $cells[2]
    end
end

# What may stand at the cursor.
function __gradsyncctl_offer
    set -l line (__gradsyncctl_line)
    set -l current (commandline -ct)
    if test $line[1] -gt 0
        set -l words (commandline -opc)
        set -e words[1..$line[1]]
        complete -C (string join ' ' -- (string escape -- $words) "$current")
    else if test -n "$line[5]"
        switch $line[5]
            case -s --socket -o --output '--*-dir'
                __fish_complete_path $current
            case -d --device
                __gradsyncctl_devices
        end
    else if string match -q -- '-*' $current
        __gradsyncctl_options
    else if test -z "$line[2]"
        __gradsyncctl_commands
    else if test $line[3] -eq 0
        switch $line[2]
            case list
                printf '%s\n' jobs clients links
            case key
                echo new
            case help
                __gradsyncctl_commands
            case status top trace evict pause resume
                __gradsyncctl_jobs
        end
    else if test $line[2] = evict; and test $line[3] -eq 1
        __gradsyncctl_ranks
    end
end

complete -c gradsyncctl -f -a '(__gradsyncctl_offer)'
