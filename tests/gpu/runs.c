/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic on the records of two kernels that were under way at once.
 */
#include "runs.h"

bool runs_read(struct runs *runs, const uint64_t *record) {
        uint64_t gaps = record[0];

        if (gaps > RUNS_GAPS || record[2] <= record[1])
                return false;
        runs->begin = record[1];
        runs->end = record[2];
        runs->n = (unsigned)gaps + 1;
        runs->run[0].begin = runs->begin;
        for (unsigned i = 0; i < gaps; i++) {
                runs->run[i].end = record[4 + 2 * i];
                runs->run[i + 1].begin = record[4 + 2 * i + 1];
        }
        runs->run[gaps].end = runs->end;
        return true;
}

static uint64_t runs_later(uint64_t a, uint64_t b) {
        return a > b ? a : b;
}

static uint64_t runs_earlier(uint64_t a, uint64_t b) {
        return a < b ? a : b;
}

uint64_t runs_common(const struct runs *a, const struct runs *b, uint64_t from, uint64_t to) {
        uint64_t total = 0;

        for (unsigned i = 0, j = 0; i < a->n && j < b->n;) {
                uint64_t begin = runs_later(runs_later(a->run[i].begin, b->run[j].begin), from);
                uint64_t end = runs_earlier(runs_earlier(a->run[i].end, b->run[j].end), to);

                if (end > begin)
                        total += end - begin;
                if (a->run[i].end < b->run[j].end)
                        i++;
                else
                        j++;
        }
        return total;
}

uint64_t runs_alone(const struct runs *runs, uint64_t from, uint64_t to, int64_t *samples, size_t *n) {
        uint64_t total = 0;

        for (unsigned i = 0; i < runs->n; i++) {
                uint64_t begin = runs_later(runs->run[i].begin, from),
                         end = runs_earlier(runs->run[i].end, to);

                if (end > begin)
                        total += end - begin;
                if (runs->run[i].begin > from && runs->run[i].end < to)
                        samples[(*n)++] = (int64_t)(runs->run[i].end - runs->run[i].begin);
        }
        return total;
}
