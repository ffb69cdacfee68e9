/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open MPI's side of the benchmark: MPI_Allreduce in place over buffers that take turns. Started by mpirun
 * with the driver's socket and the gate's file; idle members sleep in control_read(), they do not spin in
 * MPI.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"

struct set {
        unsigned int count, next;
        float **buffers;
};

struct peer {
        int rank, world;
        struct gate *gate;
        size_t bytes;
        struct set sets[2], *used; /* in ordinary pages, as gradsync's arenas are, and in huge pages */
};

static void allreduce(const struct peer *p, float *buffer) {
        if (MPI_Allreduce(MPI_IN_PLACE, buffer, (int)(p->bytes / sizeof(float)), MPI_FLOAT, MPI_SUM,
                          MPI_COMM_WORLD) != MPI_SUCCESS)
                bench_die("MPI_Allreduce failed");
}

static void set_release(struct peer *p, struct set *set) {
        for (unsigned int i = 0; i < set->count; i++)
                bench_buffer_free(set->buffers[i], p->bytes);
        free(set->buffers);
        *set = (struct set){ 0 };
}

static void release(void *data) {
        struct peer *p = data;

        set_release(p, &p->sets[0]);
        set_release(p, &p->sets[1]);
}

/* Ranks hold 1, -1, 0, 0 … so that sums stay finite however often they are taken; the first sum proves the
 * operation. */
static void set_prepare(struct peer *p, struct set *set, unsigned int count, bool huge) {
        float value = p->rank == 0 ? 1.0f : p->rank == 1 ? -1.0f : 0.0f;
        size_t elements = p->bytes / sizeof(float);

        set->buffers = calloc(count, sizeof(*set->buffers));
        if (!set->buffers)
                bench_die("out of memory");
        for (; set->count < count; set->count++)
                set->buffers[set->count] = bench_buffer(p->bytes, value, huge);
        for (size_t i = 0; i < elements; i++)
                set->buffers[0][i] += p->rank == 0 ? 2 : 0;
        allreduce(p, set->buffers[0]);
        if (!bench_check(set->buffers[0], elements, p->world > 1 ? 2.0f : 3.0f))
                bench_die("MPI_Allreduce gave a wrong sum");
        for (size_t i = 0; i < elements; i++)
                set->buffers[0][i] = value;
}

static void prepare(struct peer *p, size_t bytes, unsigned int count) {
        release(p);
        p->bytes = bytes;
        set_prepare(p, &p->sets[0], count, false);
        set_prepare(p, &p->sets[1], count, true);
}

static void step(void *data) {
        const struct peer *p = data;
        struct set *set = p->used;

        if (!set->count)
                bench_die("not prepared");
        allreduce(p, set->buffers[set->next]);
        set->next = (set->next + 1) % set->count;
}

static bool obey(void *data, struct control *c, const char *line) {
        struct peer *p = data;
        size_t bytes;
        unsigned int n;

        if (sscanf(line, "prepare %zu %u", &bytes, &n) == 2 && n > 0) {
                prepare(p, bytes, n);
                control_reply(c, "ready");
        } else if (sscanf(line, "huge %u", &n) == 1) {
                p->used = &p->sets[n != 0];
                control_reply(c, "huge");
        } else {
                return false;
        }
        return true;
}

int main(int argc, char **argv) {
        struct peer p = { 0 };
        struct control c;

        if (argc != 4)
                bench_die("usage: %s SOCKET GATE CONTENDER", argv[0]);
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
        MPI_Comm_size(MPI_COMM_WORLD, &p.world);
        p.used = &p.sets[0];
        p.gate = gate_open(argv[2]);
        control_open(&c, argv[1], argv[3], (unsigned int)p.rank);
        bench_serve(&(struct bench_peer){ .data = &p,
                                          .gate = p.gate,
                                          .members = (unsigned int)p.world,
                                          .step = step,
                                          .release = release,
                                          .obey = obey },
                    &c);
        release(&p);
        MPI_Finalize();
        return 0;
}
