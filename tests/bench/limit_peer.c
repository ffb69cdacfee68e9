/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of limit.h under the driver's command: "loop 0" adds, "loop 1" scales, "loop 2" copies. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "limit.h"

struct peer {
        unsigned int members, threads;
        enum limit_loop loop;
        struct limit *limit;
};

static void prepare(struct peer *p, size_t bytes, unsigned int count) {
        p->limit = limit_free(p->limit);
        p->limit = limit_new(p->members, bytes, p->threads, bytes * p->members * (count - 1));
        if (!p->limit)
                bench_die("limit: %s", strerror(errno));
}

static void run(struct peer *p, struct control *c, unsigned int n) {
        int64_t *ns = calloc(n + 1, sizeof(*ns));

        if (!ns || !p->limit)
                bench_die("not prepared, or out of memory");
        limit_run(p->limit, p->loop, n, ns + 1);
        for (unsigned int i = 1; i <= n; i++)
                ns[i] += ns[i - 1];
        control_reply_stamps(c, ns, n + 1);
        free(ns);
}

static void release(void *data) {
        struct peer *p = data;

        p->limit = limit_free(p->limit);
}

static bool obey(void *data, struct control *c, const char *line) {
        struct peer *p = data;
        size_t bytes;
        unsigned int n;

        if (sscanf(line, "prepare %zu %u", &bytes, &n) == 2 && n > 0) {
                prepare(p, bytes, n);
                control_reply(c, "ready %zu %u", limit_copied(p->limit), limit_sets(p->limit));
        } else if (sscanf(line, "loop %u", &n) == 1 && n <= LIMIT_COPY) {
                p->loop = (enum limit_loop)n;
                control_reply(c, "loop");
        } else if (sscanf(line, "run %u", &n) == 1) {
                run(p, c, n);
        } else {
                return false;
        }
        return true;
}

int main(int argc, char **argv) {
        struct peer p = { .loop = LIMIT_REDUCE };
        struct control c;

        if (argc != 6)
                bench_die("usage: %s SOCKET GATE CONTENDER MEMBERS THREADS", argv[0]);
        p.members = (unsigned int)strtoul(argv[4], NULL, 10);
        p.threads = (unsigned int)strtoul(argv[5], NULL, 10);
        control_open(&c, argv[1], argv[3], 0);
        bench_serve(&(struct bench_peer){ .data = &p, .release = release, .obey = obey }, &c);
        release(&p);
        return 0;
}
