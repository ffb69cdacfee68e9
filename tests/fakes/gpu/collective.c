/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A collective of the fake NCCL, as the context process of each rank runs it: chunk by chunk through the file
 * of the communicator (board.h). Every rank adds the chunks in the order of ranks, so all get the same bits.
 * While it waits for other ranks it spins, as NCCL's kernels do: its queue is occupied, and nothing else.
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "gpu.h"
#include "tests/fakes/nccl/board.h"
#include "tests/fakes/nccl/reduce.h"

#define GARBAGE 0xab
#define CTAS 64     /* that fit on a GPU */
#define YIELDS 100u /* that a wait begins with: most are short */

struct run {
        const struct collective *collective;
        struct board *board;
        struct board_rank *own;
        uint64_t chunk; /* how many the communicator has had, with this one */
        uint32_t ctas;
};

static bool run_ends(const struct run *run) {
        return run->own->aborted || run->own->differs || run->collective->is_over();
}

/* False: it ends before. */
static bool run_wait_until(const struct run *run, bool (*condition)(const struct run *run)) {
        for (unsigned round = 0; !condition(run); round++) {
                if (run_ends(run))
                        return false;
                if (round < YIELDS)
                        sched_yield();
                else
                        nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
        }
        return true;
}

static bool run_turn_begin(const struct run *run) {
        while (run->collective->slice != NULL && !machine_try(run->collective->slice))
                if (run_ends(run))
                        return false;
        return true;
}

static void run_turn_end(const struct run *run) {
        if (run->collective->slice != NULL)
                pthread_mutex_unlock(run->collective->slice);
}

/* ---- conditions ---- */

static bool run_is_next(const struct run *run) {
        return run->own->ended + 1 == run->collective->what->number;
}

static uint32_t run_total_ctas(void) {
        return (uint32_t)machine_setting("FAKE_NCCL_CTAS", CTAS);
}

static bool run_takes_ctas(const struct run *run) {
        struct machine *machine = run->collective->machine;
        uint32_t *taken = &machine->ctas[run->collective->device];

        machine_enter(&machine->lock);
        bool fits = *taken + run->ctas <= run_total_ctas();
        if (fits)
                *taken += run->ctas;
        pthread_mutex_unlock(&machine->lock);
        return fits;
}

static bool run_all_have_begun(const struct run *run) {
        for (unsigned r = 0; r < run->collective->what->ranks; r++)
                if (run->board->rank[r].begun < run->collective->what->number)
                        return false;
        return true;
}

static bool run_all_have_read(const struct run *run) {
        for (unsigned r = 0; r < run->collective->what->ranks; r++)
                if (run->board->rank[r].read + 1 < run->chunk)
                        return false;
        return true;
}

static bool run_all_have_written(const struct run *run) {
        for (unsigned r = 0; r < run->collective->what->ranks; r++)
                if (run->board->rank[r].wrote < run->chunk)
                        return false;
        return true;
}

static bool run_nothing_holds(const struct run *run) {
        return !machine_has("nccl-hold") && !machine_has("hold");
}

/* ---- one collective ---- */

/* Compares each rank's call with that of the first rank. A rank that differs logs it, and all ranks find out.
 * */
static bool run_is_same_everywhere(const struct run *run) {
        const struct board_call *first = &run->board->rank[0].call, *own = &run->own->call;
        bool same = true;

        for (unsigned r = 1; r < run->collective->what->ranks; r++)
                same &= memcmp(&run->board->rank[r].call, first, sizeof(*first)) == 0;
        if (memcmp(own, first, sizeof(*first)) != 0)
                machine_log(
                        "rank %u differs from rank 0 in collective %llu: count %llu, not %llu; type %d, not "
                        "%d; operation %d, not %d; place in windows %llx, not %llx",
                        run->collective->what->rank, (unsigned long long)own->number,
                        (unsigned long long)own->count, (unsigned long long)first->count, own->type,
                        first->type, own->operation, first->operation, (unsigned long long)own->place,
                        (unsigned long long)first->place);
        return same;
}

static bool run_write_chunk(const struct run *run, size_t at, size_t bytes) {
        if (!run_wait_until(run, run_all_have_read) || !run_turn_begin(run))
                return false;
        memcpy(run->own->chunk, (const unsigned char *)run->collective->from + at, bytes);
        run_turn_end(run);
        run->own->wrote = run->chunk;
        return true;
}

static bool run_reduce_chunk(const struct run *run, size_t at, size_t count) {
        const struct gpu_collective *what = run->collective->what;
        const void *input[BOARD_RANKS];

        for (unsigned r = 0; r < what->ranks; r++)
                input[r] = run->board->rank[r].chunk;
        if (!run_wait_until(run, run_all_have_written) || !run_turn_begin(run))
                return false;
        reduce((unsigned char *)run->collective->to + at, input, what->ranks, count, what->type,
               what->operation);
        run_turn_end(run);
        run->own->read = run->chunk;
        return true;
}

static bool run_all(struct run *run) {
        const struct gpu_collective *what = run->collective->what;
        size_t size = reduce_size(what->type), most = BOARD_CHUNK / size;

        for (size_t from = 0; from < what->count; from += most) {
                size_t count = what->count - from < most ? what->count - from : most;
                run->chunk = run->own->wrote + 1;
                if (!run_write_chunk(run, from * size, count * size) ||
                    !run_reduce_chunk(run, from * size, count))
                        return false;
        }
        return true;
}

static bool run_begun(struct run *run) {
        const struct gpu_collective *what = run->collective->what;

        run->own->call =
                (struct board_call){ what->number, what->count, what->place, what->type, what->operation };
        run->own->begun = what->number;
        if (!run_wait_until(run, run_all_have_begun))
                return false;
        if (!run_is_same_everywhere(run)) {
                run->own->differs = true;
                return false;
        }
        return run_all(run) && run_wait_until(run, run_nothing_holds);
}

void collective_run(const struct collective *collective) {
        struct board *board = board_map(collective->board);
        struct machine *machine = collective->machine;
        bool good = false;

        if (board != NULL) {
                uint32_t ctas =
                        collective->what->ctas < run_total_ctas() ? collective->what->ctas : run_total_ctas();
                struct run run = { collective, board, &board->rank[collective->what->rank], 0, ctas };
                if (run_wait_until(&run, run_is_next) && !run_ends(&run) &&
                    run_wait_until(&run, run_takes_ctas)) {
                        good = run_begun(&run) && !run_ends(&run);
                        machine_enter(&machine->lock);
                        machine->ctas[collective->device] -= ctas;
                        pthread_mutex_unlock(&machine->lock);
                }
                board_unmap(board);
        }
        if (!good)
                memset(collective->to, GARBAGE, collective->what->bytes);
}

void collective_end(const struct gpu_collective *what, int fd) {
        struct board *board = board_map(fd);

        if (board == NULL)
                return;
        board->rank[what->rank].ended++;
        board_unmap(board);
}
