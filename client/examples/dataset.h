/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handwritten digits as two sets of rows, one to train with and one held out to judge the result by.
 * Reads the file and scales the pixels; knows nothing of ranks, batches or order.
 */
#ifndef DIGITS_DATASET_H
#define DIGITS_DATASET_H

#include <stddef.h>
#include <stdint.h>

#define DATASET_PIXELS 64
#define DATASET_CLASSES 10
#define DATASET_HELD_OUT 5 /* each fifth row of the file is held out */

struct dataset_part {
        size_t rows;
        float *image; /* rows × DATASET_PIXELS, 0 to 1 */
        uint8_t *label;
};

struct dataset {
        struct dataset_part train;
        struct dataset_part held_out;
};

/* The file that came with the program: beside it in a build directory, else where it was installed. */
const char *dataset_file(void);
/* Reads a CSV file, compressed or not. On failure prints a message naming file and line, and returns -1. */
int dataset_init(struct dataset *data, const char *path);
void dataset_deinit(struct dataset *data);

#endif
