/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of digits: parsed and checked here, so that training needs to ask no more questions. */
#ifndef DIGITS_OPTIONS_H
#define DIGITS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options {
        size_t epochs;
        size_t batch; /* rows of one step, all members together */
        float rate;
        float momentum;
        uint64_t seed;
        int device; /* -1 if none was named */
        const char *data;
        const char *exec;  /* shell command that rank 0 runs; NULL if none */
        size_t exec_epoch; /* epoch after which it runs */
        bool json;
        bool no_sync;
};

/* Fills the options. Prints help, or the mistake, and ends the program if there is nothing to train. */
void options_parse(struct options *options, int argc, char **argv);

#endif
