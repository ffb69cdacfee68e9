/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of settings: one row a key, from which the file parser, the flags, --help and the reload are
 * driven. A flag is the key with dashes. Used by config.c alone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "config.h"

struct option_row {
        const char *section, *key;
        const char *what; /* the value in --help: "SECONDS" */
        const char *help;
        const char *fallback; /* default as text; NULL: computed */
        int (*set)(const struct option_row *row, void *field, const char *value, char *error, size_t size);
        void (*format)(const void *field, char *text, size_t size);
        size_t offset;     /* of the field in struct config */
        size_t field_size; /* 0 where the field owns memory or has several parts */
        uint64_t min, max;
        bool reloads; /* may change at run time */
};

extern const struct option_row option_rows[];
extern const unsigned option_count;

/* Sets the field from text. -EINVAL with a sentence ("'x' is not …") in `error`, or -ENOMEM. */
int option_set(const struct option_row *row, struct config *config, const char *value, char *error,
               size_t size);
/* The current value as text, in the form that option_set() takes. */
void option_format(const struct option_row *row, const struct config *config, char *text, size_t size);
/* All texts that rows own. */
void options_free_texts(struct config *config);
/* Copies a plain field; only for rows that reload. */
void option_copy(const struct option_row *row, struct config *to, const struct config *from);
const struct option_row *option_find(const char *section, const char *key); /* NULL if there is none */
/* In whichever section; no two have keys of the same name. */
const struct option_row *option_find_anywhere(const char *key);
bool option_section_known(const char *section);
