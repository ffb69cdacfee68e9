/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases as text: a script says what happens, a command a line, and after `->` what comes of it.
 * scripts/README.md describes the format. A rig has the commands; each case is one of cmocka's.
 */
#pragma once

#include "tests/unit/unit.h"

struct script;

struct script_command {
        const char *name; /* NULL: the end of the table */
        void (*run)(struct script *script);
};

struct rig {
        const struct script_command *commands;
        void (*begin)(void);                   /* before each case */
        void (*before)(struct script *script); /* before each command: takes options that all of them have */
        void (*after)(struct script *script);  /* after each command: says what has changed */
        void (*end)(void);
};

extern const struct rig rig; /* of the program that is linked */

/* Runs the cases of the file; `--rewrite`: writes what comes of each command into it instead. */
int script_main(const char *path, int argc, char **argv);

/* The words of the command. A command takes those that it knows; what is left over is a mistake. */
const char *script_word(
        struct script *script); /* the next one that is no option; a mistake if none is left */
bool script_has_word(const struct script *script); /* one is left */
uint64_t script_number(struct script *script);     /* the next word as a number; `3..9` is several words */
bool script_flag(struct script *script, const char *name); /* the word is there, anywhere */
/* `name=value`, anywhere; `otherwise` if it is not there. */
uint64_t script_option(struct script *script, const char *name, uint64_t otherwise);
const char *script_text(struct script *script, const char *name); /* NULL: it is not there */

/* One item of what comes of the command. */
void script_say(struct script *script, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The script is wrong: the case ends. */
_Noreturn void script_refuse(const struct script *script, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
