/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, runs and rewrites scripts. */
#include "script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LINES 2000u
#define MOST_CASES 200u
#define MOST_WORDS 40u
#define LINE 4096u
#define ARROW "->"
#define COLUMN 40u /* where rewritten expectations begin */
#define WIDTH 110u /* where their lines end */

struct line {
        char *text;     /* as it is in the file */
        char *command;  /* NULL: the line is none */
        char *expected; /* items, with "; " between them; NULL: none */
        char *said;     /* the same, as it came */
        bool continues; /* more expectations of the command before */
};

struct script {
        const char *path;
        struct line line[MOST_LINES];
        unsigned n_lines, at; /* at: the one that runs */
        char *word[MOST_WORDS];
        unsigned n_words;
        char number[32]; /* the rest of a range */
        char said[LINE];
        bool rewrites;
};

struct section {
        struct script *script;
        unsigned first, end;
};

static struct script script;
static struct section section[MOST_CASES];
static struct CMUnitTest test[MOST_CASES];

void script_refuse(const struct script *s, const char *format, ...) {
        va_list arguments;
        char text[LINE];

        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        print_error("%s:%u: %s\n  %s\n", s->path, s->at + 1, text, s->line[s->at].text);
        fail();
        abort(); /* not reached */
}

/* ---- what commands see ---- */

static char *take(struct script *s, unsigned i) {
        char *word = s->word[i];

        s->word[i] = NULL;
        return word;
}

static int next_word(const struct script *s) {
        for (unsigned i = 0; i < s->n_words; i++)
                if (s->word[i] != NULL && strchr(s->word[i], '=') == NULL)
                        return (int)i;
        return -1;
}

bool script_has_word(const struct script *s) {
        return next_word(s) >= 0;
}

const char *script_word(struct script *s) {
        int i = next_word(s);

        if (i < 0)
                script_refuse(s, "a word is missing");
        return take(s, (unsigned)i);
}

static uint64_t number_of(const struct script *s, const char *text) {
        char *end;
        uint64_t number = strtoull(text, &end, 0);

        if (end == text || *end != '\0')
                script_refuse(s, "'%s' is no number", text);
        return number;
}

uint64_t script_number(struct script *s) {
        int i = next_word(s);
        char *range = i >= 0 ? strstr(s->word[i], "..") : NULL;
        uint64_t first, last;

        if (range == NULL)
                return number_of(s, script_word(s));
        *range = '\0';
        first = number_of(s, s->word[i]);
        last = number_of(s, range + 2);
        snprintf(s->number, sizeof(s->number), "%llu..%llu", (unsigned long long)first + 1,
                 (unsigned long long)last);
        s->word[i] = first < last ? s->number : NULL;
        return first;
}

bool script_flag(struct script *s, const char *name) {
        for (unsigned i = 0; i < s->n_words; i++)
                if (s->word[i] != NULL && strcmp(s->word[i], name) == 0)
                        return take(s, i) != NULL;
        return false;
}

const char *script_text(struct script *s, const char *name) {
        size_t length = strlen(name);

        for (unsigned i = 0; i < s->n_words; i++)
                if (s->word[i] != NULL && strncmp(s->word[i], name, length) == 0 && s->word[i][length] == '=')
                        return take(s, i) + length + 1;
        return NULL;
}

uint64_t script_option(struct script *s, const char *name, uint64_t otherwise) {
        const char *text = script_text(s, name);

        return text != NULL ? number_of(s, text) : otherwise;
}

void script_say(struct script *s, const char *format, ...) {
        size_t used = strlen(s->said);
        va_list arguments;

        if (used > 0)
                used += (size_t)snprintf(s->said + used, sizeof(s->said) - used, "; ");
        va_start(arguments, format);
        vsnprintf(s->said + used, sizeof(s->said) - used, format, arguments);
        va_end(arguments);
        if (strlen(s->said) + 1 == sizeof(s->said))
                script_refuse(s, "the command says too much");
}

/* ---- running ---- */

static void run_command(struct script *s) {
        const struct script_command *command = rig.commands;
        char words[LINE], *rest, *word;

        snprintf(words, sizeof(words), "%s", s->line[s->at].command);
        s->n_words = 0;
        for (word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
                if (s->n_words == MOST_WORDS)
                        script_refuse(s, "there are too many words");
                s->word[s->n_words++] = word;
        }
        s->said[0] = '\0';
        while (command->name != NULL && strcmp(command->name, s->word[0]) != 0)
                command++;
        if (command->name == NULL)
                script_refuse(s, "there is no command '%s'", s->word[0]);
        take(s, 0);
        rig.before(s);
        command->run(s);
        for (unsigned i = 0; i < s->n_words; i++)
                if (s->word[i] != NULL)
                        script_refuse(s, "'%s' says nothing here", s->word[i]);
        rig.after(s);
}

static void run_lines(struct script *s, unsigned first, unsigned end, bool checks) {
        for (s->at = first; s->at < end; s->at++) {
                struct line *line = &s->line[s->at];
                const char *expected = line->expected != NULL ? line->expected : "";

                if (line->command == NULL)
                        continue;
                run_command(s);
                if (checks && s->rewrites) {
                        free(line->said);
                        line->said = strdup(s->said);
                } else if (checks && strcmp(s->said, expected) != 0) {
                        print_error("%s:%u: %s\n  expected: %s\n  came:     %s\n", s->path, s->at + 1,
                                    line->command, expected, s->said);
                        fail();
                }
        }
}

static void run_case(void **state) {
        const struct section *of = *state;

        rig.begin();
        run_lines(of->script, 0, section[0].first, false);
        run_lines(of->script, of->first, of->end, true);
        rig.end();
}

/* ---- the file ---- */

/* Without blanks at both ends. */
static char *trimmed(const char *text, size_t length) {
        while (length > 0 && text[0] == ' ')
                text++, length--;
        while (length > 0 && text[length - 1] == ' ')
                length--;
        return length > 0 ? strndup(text, length) : NULL;
}

/* An item that is too long for a line goes on in the next one, after `->   `. */
static void expect_more(struct line *line, const char *text) {
        bool goes_on = strncmp(text, "   ", 3) == 0;
        char *more = trimmed(text, strlen(text)), joined[LINE];

        if (more == NULL)
                return;
        snprintf(joined, sizeof(joined), "%s%s%s", line->expected != NULL ? line->expected : "",
                 line->expected == NULL ? ""
                 : goes_on              ? " "
                                        : "; ",
                 more);
        free(line->expected);
        free(more);
        line->expected = strdup(joined);
}

static bool is_title(const struct line *line) {
        return strncmp(line->text, "== ", 3) == 0;
}

static void read_line(struct script *s, struct line *line, struct line **command) {
        const char *text = line->text, *arrow = strstr(text, ARROW);
        size_t length = arrow != NULL ? (size_t)(arrow - text) : strlen(text);

        if (text[0] == '#' || is_title(line))
                return;
        line->command = trimmed(text, length);
        line->continues = line->command == NULL && arrow != NULL;
        if (line->command != NULL)
                *command = line;
        if (arrow != NULL && *command == NULL)
                script_refuse(s, "nothing happens before this");
        if (arrow != NULL)
                expect_more(*command, arrow + strlen(ARROW));
}

static void read_file(struct script *s) {
        FILE *file = fopen(s->path, "r");
        struct line *command = NULL;
        char text[LINE];

        if (file == NULL) {
                perror(s->path);
                exit(1);
        }
        while (fgets(text, sizeof(text), file) != NULL) {
                struct line *line = &s->line[s->n_lines];

                text[strcspn(text, "\n")] = '\0';
                if (s->n_lines == MOST_LINES) {
                        fprintf(stderr, "%s has more than %u lines\n", s->path, MOST_LINES);
                        exit(1);
                }
                *line = (struct line){ .text = strdup(text) };
                s->at = s->n_lines++;
                read_line(s, line, &command);
        }
        fclose(file);
}

/* How much of a text goes into that many columns: up to a blank, if there is one. */
static size_t fitting(const char *text, size_t length, size_t columns) {
        size_t fits = columns;

        while (fits > 0 && length > columns && text[fits] != ' ')
                fits--;
        return length <= columns || fits == 0 ? length : fits;
}

/* Items share a line as far as they fit. */
static void write_items(FILE *file, const char *items, size_t used) {
        const char *before = ARROW " ";

        while (*items != '\0') {
                const char *end = strstr(items, "; ");
                size_t length = end != NULL ? (size_t)(end - items) : strlen(items), fits;

                if (before[0] == ';' && used + strlen(before) + length > WIDTH) {
                        fprintf(file, "\n%*s", (int)COLUMN, "");
                        used = COLUMN;
                        before = ARROW " ";
                }
                fits = fitting(items, length,
                               used + strlen(before) < WIDTH ? WIDTH - used - strlen(before) : 0);
                fprintf(file, "%s%.*s", before, (int)fits, items);
                used += strlen(before) + fits;
                items += fits;
                before = "; ";
                if (fits < length) {
                        fprintf(file, "\n%*s", (int)COLUMN, "");
                        used = COLUMN;
                        before = ARROW "   ";
                        items++;
                } else if (end != NULL) {
                        items += 2;
                }
        }
}

static void write_file(const struct script *s) {
        FILE *file = fopen(s->path, "w");

        assert_non_null(file);
        for (unsigned i = 0; i < s->n_lines; i++) {
                const struct line *line = &s->line[i];
                const char *items = line->said != NULL ? line->said : line->expected;
                size_t used;

                if (line->continues)
                        continue;
                if (line->command == NULL || items == NULL || *items == '\0') {
                        fprintf(file, "%s\n", line->command != NULL ? line->command : line->text);
                        continue;
                }
                used = strlen(line->command) < COLUMN ? COLUMN : strlen(line->command) + 1;
                fprintf(file, "%-*s", (int)used, line->command);
                write_items(file, items, used);
                fprintf(file, "\n");
        }
        fclose(file);
}

static void free_lines(struct script *s) {
        for (unsigned i = 0; i < s->n_lines; i++) {
                free(s->line[i].text);
                free(s->line[i].command);
                free(s->line[i].expected);
                free(s->line[i].said);
        }
}

static unsigned find_cases(struct script *s) {
        unsigned n = 0;

        for (unsigned i = 0; i < s->n_lines; i++) {
                if (!is_title(&s->line[i]))
                        continue;
                assert_true(n < MOST_CASES);
                if (n > 0)
                        section[n - 1].end = i;
                section[n] = (struct section){ .script = s, .first = i + 1, .end = s->n_lines };
                test[n] = (struct CMUnitTest){ .name = s->line[i].text + 3,
                                               .test_func = run_case,
                                               .initial_state = &section[n] };
                n++;
        }
        return n;
}

int script_main(const char *path, int argc, char **argv) {
        unsigned n;
        int failed;

        script.path = path;
        script.rewrites = argc > 1 && strcmp(argv[1], "--rewrite") == 0;
        read_file(&script);
        n = find_cases(&script);
        failed = _cmocka_run_group_tests(path, test, n, NULL, NULL);
        if (script.rewrites && failed == 0)
                write_file(&script);
        free_lines(&script);
        return n == 0 ? 1 : failed;
}
