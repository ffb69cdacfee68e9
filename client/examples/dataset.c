/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of the digits' CSV file: 64 numbers from 0 to 16 and the label in each line. zlib's gz calls read
 * plain files as well as compressed ones, so an unpacked copy does too. A line that is anything else is an
 * error, not a guess.
 */
#include "dataset.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define LINE_MAX_BYTES 1024
#define INK_MAX 16

static int part_add(struct dataset_part *part, const long *value) {
        float *image = reallocarray(part->image, part->rows + 1, sizeof(*image) * DATASET_PIXELS);
        if (image)
                part->image = image;
        uint8_t *label = realloc(part->label, part->rows + 1);
        if (label)
                part->label = label;
        if (!image || !label)
                return -1;

        for (size_t i = 0; i < DATASET_PIXELS; i++)
                image[part->rows * DATASET_PIXELS + i] = (float)value[i] / INK_MAX;
        label[part->rows] = (uint8_t)value[DATASET_PIXELS];
        part->rows++;
        return 0;
}

/* Parses one line into DATASET_PIXELS + 1 numbers; false if it is anything else. */
static int line_parse(const char *line, long *value) {
        for (size_t i = 0; i <= DATASET_PIXELS; i++) {
                long limit = i < DATASET_PIXELS ? INK_MAX : DATASET_CLASSES - 1;
                char *end;
                errno = 0;
                value[i] = strtol(line, &end, 10);
                if (end == line || errno || value[i] < 0 || value[i] > limit)
                        return 0;
                if (i < DATASET_PIXELS && *end++ != ',')
                        return 0;
                line = end;
        }
        return !strcmp(line, "\n") || !strcmp(line, "\r\n") || !*line;
}

static int read_lines(struct dataset *data, const char *path, gzFile file) {
        char line[LINE_MAX_BYTES];
        long value[DATASET_PIXELS + 1];
        size_t n = 0;

        for (; gzgets(file, line, sizeof(line)); n++) {
                if (!line_parse(line, value)) {
                        fprintf(stderr, "digits: %s:%zu: not 64 pixels and a label\n", path, n + 1);
                        return -1;
                }
                if (part_add(n % DATASET_HELD_OUT ? &data->train : &data->held_out, value)) {
                        fprintf(stderr, "digits: out of memory\n");
                        return -1;
                }
        }
        int error;
        const char *text = gzerror(file, &error);
        if (error < 0) {
                fprintf(stderr, "digits: %s\n", error == Z_ERRNO ? strerror(errno) : text);
                return -1;
        }
        if (!data->train.rows) {
                fprintf(stderr, "digits: %s: too few rows\n", path);
                return -1;
        }
        return 0;
}

const char *dataset_file(void) {
        static const char *const places[] = { "digits.csv.gz", DIGITS_INSTALLED };
        static char path[2 * PATH_MAX];
        char self[PATH_MAX] = "";
        ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
        char *slash = n > 0 ? strrchr(self, '/') : NULL;

        if (slash)
                *slash = '\0';
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
                snprintf(path, sizeof(path), "%s/%s", self, places[i]);
                if (access(path, R_OK) == 0)
                        break;
        }
        return path;
}

int dataset_init(struct dataset *data, const char *path) {
        *data = (struct dataset){ 0 };
        gzFile file = gzopen(path, "re");
        if (!file) {
                fprintf(stderr, "digits: %s: %s\n", path, strerror(errno));
                return -1;
        }
        int r = read_lines(data, path, file);
        gzclose(file);
        if (r)
                dataset_deinit(data);
        return r;
}

void dataset_deinit(struct dataset *data) {
        free(data->train.image);
        free(data->train.label);
        free(data->held_out.image);
        free(data->held_out.label);
        *data = (struct dataset){ 0 };
}
