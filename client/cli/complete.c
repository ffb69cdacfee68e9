// SPDX-License-Identifier: Apache-2.0
/*
 * Completes a line that is being typed: see complete.h. Commands, options and the kinds of their values come
 * from the table of commands and from the help as people read it; jobs, ranks and devices come from the
 * daemons that the line means.
 */
#include "client/cli/complete.h"

#include <ctype.h>
#include <signal.h>
#include <string.h>

#include "client/cli/ask/observe.h"
#include "client/cli/base/escape.h"
#include "client/cli/base/format.h"
#include "client/cli/base/user.h"
#include "client/cli/commands.h"

#define PATIENCE_MS 500u /* for each answer of a daemon */
#define PATIENCE_S 5u    /* for all daemons together, and the names of users */

struct piece {
        const char *at;
        int n;
};

/* A line of the help about an option. */
struct explained {
        char letter; /* '\0': it has none */
        struct piece name, text;
        struct piece wants; /* the name of its value; empty: it has none */
        bool optional;      /* the value may be missing */
};

/* The line that is being typed. */
struct typed {
        struct cli cli;                    /* which daemon is meant */
        const struct cli_command *command; /* NULL: there is none yet */
        char *help;                        /* of it, or of what is done without a command */
        const char *word;                  /* at the cursor */
        struct piece wants;   /* the kind of value, if it is one of an option; empty: it is none */
        int lead;             /* bytes of the word before the value */
        const char *argument; /* the first one of the command */
        int arguments;        /* before the cursor */
        int program;          /* where another program's name is; 0: nowhere */
        bool over;            /* no options are read any more */
};

static bool piece_is(struct piece piece, const char *text, size_t n) {
        return (size_t)piece.n == n && strncmp(piece.at, text, n) == 0;
}

static bool piece_reads(struct piece piece, const char *text) {
        return piece_is(piece, text, strlen(text));
}

/* "  -w, --watch[=SECS]    show it again" */
static bool explained_read(struct explained *ret, const char *line) {
        *ret = (struct explained){ 0 };
        if (strncmp(line, "  -", 3) == 0)
                ret->letter = line[3];
        else if (strncmp(line, "      --", 8) != 0)
                return false;
        line += strlen("  -w, --");
        ret->name = (struct piece){ line, (int)strspn(line, "abcdefghijklmnopqrstuvwxyz-") };
        line += ret->name.n;
        ret->optional = *line == '[';
        line += ret->optional ? strlen("[=") : *line == ' ';
        ret->wants = (struct piece){ line, (int)strcspn(line, " ]\n") };
        line += ret->wants.n + ret->optional;
        line += strspn(line, " ");
        ret->text = (struct piece){ line, (int)strcspn(line, "\n") };
        return true;
}

/* The next option that the help explains from `*at` on. */
static bool explained_next(struct explained *ret, const char **at) {
        while (**at) {
                const char *line = *at, *end = strchrnul(line, '\n');

                *at = end + (*end == '\n');
                if (explained_read(ret, line))
                        return true;
        }
        return false;
}

/* The option with this letter, or, where that is '\0', of this name. */
static bool typed_find(const struct typed *typed, char letter, const char *name, size_t n,
                       struct explained *ret) {
        for (const char *at = typed->help; explained_next(ret, &at);)
                if (letter ? ret->letter == letter : piece_is(ret->name, name, n))
                        return true;
        return false;
}

/* Whether the word is an option with a value, as in "--device=cpu", "--device", "-dcpu" or "-jd".
 * `*ret_value` NULL: the value is no part of the word. */
static bool typed_option(const struct typed *typed, const char *word, struct explained *ret,
                         const char **ret_value) {
        bool known;

        if (word[1] == '-') {
                size_t n = strcspn(word + 2, "=");
                known = typed_find(typed, '\0', word + 2, n, ret);
                *ret_value = word[2 + n] ? word + 2 + n + 1 : NULL;
        } else {
                do
                        known = typed_find(typed, *++word, NULL, 0, ret);
                while (known && ret->wants.n == 0 && word[1]);
                *ret_value = word[1] ? word + 1 : NULL;
        }
        return known && ret->wants.n > 0;
}

/* An option before the cursor. Returns whether the next word, maybe that at the cursor, is its value. */
static bool typed_take_option(struct typed *typed, const char *word, const char *next) {
        struct explained option;
        const char *value;

        if (!typed_option(typed, word, &option, &value))
                return false;
        bool follows = !value && (!option.optional || cli_is_period(next));
        if (follows && next == typed->word)
                typed->wants = option.wants;
        else if (option.letter == CLI_OPT_SOCKET)
                typed->cli.socket = follows ? next : value;
        else if (option.letter == CLI_OPT_DEVICE)
                typed->cli.device = follows ? next : value;
        return follows;
}

/* False if there is no such command. */
static bool typed_take_command(struct typed *typed, const char *name) {
        const struct cli_command *command = commands_find(name);
        size_t size;

        free(typed->help);
        typed->help = NULL;
        FILE *to = command ? open_memstream(&typed->help, &size) : NULL;
        if (!to)
                return false;
        cli_command_help(command, to);
        return fclose(to) == 0 && typed->help;
}

/* Whether the command runs another program. */
static bool typed_runs(const struct typed *typed) {
        return typed->command && strstr(typed->command->arguments, "-- CMD");
}

/* Reads the words before the cursor. False if they make no sense. */
static bool typed_read(struct typed *typed, int n, char **words) {
        typed->word = words[n - 1];
        if (!typed_take_command(typed, "status"))
                return false;
        for (int i = 0; i < n - 1 && !typed->program; i++) {
                const char *word = words[i];

                if (!typed->over && strcmp(word, "--") == 0) {
                        typed->over = true;
                        typed->program = typed_runs(typed) ? i + 2 : 0;
                } else if (!typed->over && word[0] == '-' && word[1]) {
                        i += typed_take_option(typed, word, words[i + 1]);
                } else if (!typed->command) {
                        if (!typed_take_command(typed, word))
                                return false;
                        typed->command = commands_find(word);
                } else if (typed_runs(typed)) {
                        typed->program = i + 1;
                } else if (typed->arguments++ == 0) {
                        typed->argument = word;
                }
        }
        return true;
}

/* A value that a terminal must not show as it is could break the line, or deceive its reader: it is not
 * offered. */
static void complete_offer(const struct typed *typed, const char *value, const char *about) {
        _cleanup_(freep) char *shown = escape_text(value), *text = escape_text(about);

        if (shown && text && *value && strcmp(shown, value) == 0)
                printf("%.*s%s\t%s\n", typed->lead, typed->word, value, text);
}

static void complete_commands(const struct typed *typed) {
        const struct cli_command *command;

        for (size_t i = 0; (command = commands_at(i)); i++)
                complete_offer(typed, command->name, command->summary);
}

static void complete_options(const struct typed *typed) {
        struct explained option;

        for (const char *at = typed->help; explained_next(&option, &at);)
                printf("--%.*s\t%.*s\n", option.name.n, option.name.at, option.text.n, option.text.at);
}

struct complete_job {
        const Wire__StatusJob *job;
        const char *device;
};

static int complete_compare(const void *left, const void *right) {
        const Wire__StatusJob *a = ((const struct complete_job *)left)->job,
                              *b = ((const struct complete_job *)right)->job;
        int names = strcmp(a->name, b->name);

        return names ? names : (a->uid > b->uid) - (a->uid < b->uid);
}

/* Collects the jobs, each name and user once, although several daemons may have a part of a job. Returns the
 * number. */
static size_t complete_collect(const struct observation *seen, struct complete_job **ret) {
        size_t n = 0, kept = 0;

        for (size_t i = 0; i < seen->n; i++)
                n += seen->snapshot[i].n_jobs;
        struct complete_job *jobs = *ret = calloc(n + 1, sizeof *jobs);
        if (!jobs)
                return 0;
        n = 0;
        for (size_t i = 0; i < seen->n; i++)
                for (size_t k = 0; k < seen->snapshot[i].n_jobs; k++) {
                        const Wire__StatusJob *job = seen->snapshot[i].job[k].job;
                        if (job->name)
                                jobs[n++] = (struct complete_job){ job, seen->snapshot[i].daemon->device };
                }
        qsort(jobs, n, sizeof *jobs, complete_compare);
        for (size_t i = 0; i < n; i++)
                if (kept == 0 || complete_compare(&jobs[kept - 1], &jobs[i]) != 0)
                        jobs[kept++] = jobs[i];
        return kept;
}

/* Offers the name of the job, if that alone says which job is meant; otherwise, or if something has been
 * typed, also with the user in front of it. */
static void complete_job(const struct typed *typed, const struct complete_job *of, bool alone) {
        const Wire__StatusJob *job = of->job;
        char user[USER_SIZE];

        user_show(user, job->uid);
        _cleanup_(freep) char *about = format_new("%s on %s, of %s", job->state ? job->state : "?",
                                                  of->device ? of->device : "?", user),
                              *named = format_new("%s/%s", user, job->name),
                              *numbered = format_new("%u/%s", job->uid, job->name);

        if (!about || !named || !numbered)
                return;
        if (alone)
                complete_offer(typed, job->name, about);
        if (!alone || *typed->word)
                complete_offer(typed, named, about);
        if (*typed->word && strcmp(named, numbered) != 0)
                complete_offer(typed, numbered, about);
}

static void complete_jobs(const struct typed *typed) {
        struct observation seen;

        observe(&typed->cli, NULL, &seen);
        _cleanup_(freep) struct complete_job *jobs = NULL;
        size_t n = complete_collect(&seen, &jobs);
        for (size_t i = 0; i < n; i++) {
                const char *name = jobs[i].job->name;
                bool namesake = (i > 0 && strcmp(jobs[i - 1].job->name, name) == 0) ||
                                (i + 1 < n && strcmp(jobs[i + 1].job->name, name) == 0);
                complete_job(typed, &jobs[i], !namesake && *name != '-');
        }
        observe_deinit(&seen);
}

/* Offers the ranks of the job before the cursor, as the daemon that an order would go to has them. */
static void complete_ranks(struct typed *typed) {
        struct observation seen;
        const char *job;

        if (!*typed->argument || cli_job(&typed->cli, typed->argument, &job))
                return;
        observe(&typed->cli, job, &seen);
        for (size_t i = 0; seen.n > 0 && i < seen.snapshot[0].n_jobs; i++) {
                const struct snapshot_job *of = &seen.snapshot[0].job[i];
                for (size_t k = 0; k < of->n_members; k++) {
                        const Wire__StatusMember *m = of->member[k];
                        _cleanup_(freep) char *rank = format_new("%u", m->rank),
                                              *about = format_new("pid %d, %s", m->pid,
                                                                  m->state ? m->state : "?");
                        if (!m->unranked && rank)
                                complete_offer(typed, rank, about);
                }
        }
        observe_deinit(&seen);
        cli_deinit(&typed->cli);
}

static void complete_devices(const struct typed *typed) {
        struct observation seen;

        complete_offer(typed, "cpu", "");
        fflush(stdout); /* it needs no daemon */
        observe(&typed->cli, NULL, &seen);
        for (size_t i = 0; i < seen.n; i++) {
                const char *device = seen.snapshot[i].daemon->device;
                bool again = !device || strcmp(device, "cpu") == 0;
                for (size_t k = 0; k < i && !again; k++)
                        again = seen.snapshot[k].daemon->device &&
                                strcmp(device, seen.snapshot[k].daemon->device) == 0;
                if (!again)
                        complete_offer(typed, device, seen.snapshot[i].path);
        }
        observe_deinit(&seen);
}

/* Offers values of an option; the help gives their kind in capital letters. */
static void complete_value(const struct typed *typed) {
        struct piece wants = typed->wants;

        if (piece_reads(wants, "FILE") || piece_reads(wants, "PATH"))
                puts(":files");
        else if (piece_reads(wants, "DIR"))
                puts(":directories");
        else if (piece_reads(wants, "DEVICE"))
                complete_devices(typed);
}

/* Offers arguments of the command: capital letters in its usage are a kind of word, others the words
 * themselves. */
static void complete_argument(struct typed *typed) {
        const char *at = typed->command->arguments;

        for (int i = 0; i < typed->arguments; i++) {
                at += strcspn(at, " ");
                at += strspn(at, " ");
        }
        at += *at == '[';
        struct piece kind = { at, (int)strcspn(at, " ]") };
        if (piece_reads(kind, "JOB"))
                complete_jobs(typed);
        else if (piece_reads(kind, "RANK"))
                complete_ranks(typed);
        else if (piece_reads(kind, "COMMAND"))
                complete_commands(typed);
        else
                for (int n; islower((unsigned char)*at); at += n + (at[n] == '|')) {
                        n = (int)strcspn(at, "| ");
                        printf("%.*s\t\n", n, at);
                }
}

static void complete_word(struct typed *typed, int n) {
        const char *word = typed->word, *value;
        bool dash = !typed->over && *word == '-';
        struct explained option;

        if (typed->program) {
                printf(":command %d\n", typed->program);
        } else if (typed->wants.n > 0) {
                complete_value(typed);
        } else if (dash && word[1] == '-' && typed_option(typed, word, &option, &value) && value) {
                typed->wants = option.wants;
                typed->lead = (int)(value - word);
                complete_value(typed);
        } else if (dash) {
                complete_options(typed);
        } else if (!typed->command) {
                complete_commands(typed);
        } else if (!typed_runs(typed)) {
                complete_argument(typed);
        } else if (*word) {
                printf(":command %d\n", n);
        }
}

static void complete_give_up(int number) {
        _exit(CLI_OK);
}

int complete_line(int argc, char **argv) {
        struct typed typed = { .cli = { .patience_ms = PATIENCE_MS } };
        int skip = argc > 0 && strcmp(argv[0], "--") == 0;

        /* Complaints would stand in the middle of the line that is being typed. */
        if (argc - skip < 1 || !freopen("/dev/null", "we", stderr))
                return CLI_USAGE;
        signal(SIGALRM, complete_give_up);
        sigset_t alarms;
        sigemptyset(&alarms);
        sigaddset(&alarms, SIGALRM);
        sigprocmask(SIG_UNBLOCK, &alarms, NULL); /* a shell may pass it on blocked */
        if (typed_read(&typed, argc - skip, argv + skip)) {
                alarm(PATIENCE_S);
                complete_word(&typed, argc - skip);
        }
        free(typed.help);
        return CLI_OK;
}
