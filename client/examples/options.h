/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of digits: parsed and checked here, so that training needs to ask no more questions. */
#ifndef DIGITS_OPTIONS_H
#define DIGITS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options {
        size_t epochs;
        size_t batch; /* of all members together */
        float rate;
        float momentum;
        uint64_t seed;
        int device; /* -1 if none was named */
        const char *data;
        const char *exec;  /* a shell command that rank 0 runs … */
        size_t exec_epoch; /* … after this epoch, NULL and 0 if none */
        bool json;
        bool no_sync;
};

/* Prints help, or what is wrong, and ends the program where there is nothing to train. */
void options_parse(struct options *options, int argc, char **argv);

#endif
