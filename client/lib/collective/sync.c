/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings the state of all members to the newest one. It is built from collectives: all members say how new
 * their state is, come to the same conclusion, and the member with the newest state broadcasts it. If the
 * generation ends meanwhile, the synchronisation starts again; a member that was receiving then has no state,
 * whatever it had before.
 */
#include "client/lib/collective/sync.h"

#include <stdlib.h>

#include "client/lib/base/fail.h"
#include "client/lib/collective/collective.h"
#include "client/lib/plan/plan.h"

static const char call_name[] = "gradsync_sync_state";

/* FNV-1a, over sizes. */
static uint64_t sync_digest(const struct gradsync_state *state, uint32_t n) {
        uint64_t hash = UINT64_C(0xcbf29ce484222325);

        for (uint32_t i = 0; i < n; i++)
                for (unsigned shift = 0; shift < 64; shift += 8)
                        hash = (hash ^ (state[i].bytes >> shift & 0xff)) * UINT64_C(0x100000001b3);
        return hash;
}

static uint64_t sync_mix(uint64_t x) {
        x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
        return x ^ x >> 31;
}

/* The result does not depend on the order of the plans; plans of which no step was finished are left out. */
static uint64_t sync_digest_plans(const struct gradsync_job *job) {
        uint64_t sum = 0;

        for (const struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next)
                if (step_next(plan, false) > 1)
                        sum += sync_mix((uint64_t)plan->ordinal << 48 ^ step_next(plan, false));
        return sum;
}

static int sync_begin(struct gradsync_job *job, const struct gradsync_state *state, uint32_t n,
                      uint64_t step) {
        struct sync *sync = job->sync;

        *sync = (struct sync){
                .mine = { .tag = job->standing.tag, .step = step, .digest = sync_digest(state, n) }
        };
        sync->mine.plans = sync_digest_plans(job);
        sync->mine.claims = job->standing.claims;
        for (uint32_t i = 0; i < n; i++)
                sync->mine.bytes += state[i].bytes;
        /* The world may grow before all have been asked. */
        sync->all = calloc(job->wish.max_world, sizeof(*sync->all));
        if (sync->all == NULL)
                return fail(GRADSYNC_NO_MEMORY, "no memory to gather the state of %u members",
                            job->wish.max_world);
        return GRADSYNC_OK;
}

void sync_end(struct sync *sync) {
        free(sync->all);
        sync->all = NULL;
}

/* A trainer that counts further than others of the same commit has done something to its state since, such
 * as reading a checkpoint. */
static int sync_compare(const struct sync_entry *a, const struct sync_entry *b) {
        const uint64_t x[] = { a->tag.generation, a->tag.commits, a->step };
        const uint64_t y[] = { b->tag.generation, b->tag.commits, b->step };
        unsigned i = 0;

        while (i < 2 && x[i] == y[i])
                i++;
        return x[i] < y[i] ? -1 : x[i] > y[i];
}

/* Threads may finish steps of several plans in an order that differs from that of other members. A member
 * that has not made its plans yet has the state that it received. */
static bool sync_same_state(const struct sync_entry *a, const struct sync_entry *b) {
        return sync_compare(a, b) == 0 && (a->plans == b->plans || a->plans == 0 || b->plans == 0);
}

static int sync_check_sizes(const struct gradsync_job *job, const struct sync_entry *all) {
        for (uint32_t rank = 1; rank < job->sync->world; rank++)
                if (all[rank].digest != all[0].digest || all[rank].bytes != all[0].bytes)
                        return fail(GRADSYNC_OPERATION_MISMATCH,
                                    "job '%s': the state of rank %u has %llu bytes, that of rank 0 has "
                                    "%llu, or is cut into other buffers; give the same buffers on all "
                                    "members",
                                    job->name, rank, (unsigned long long)all[rank].bytes,
                                    (unsigned long long)all[0].bytes);
        return GRADSYNC_OK;
}

static int sync_no_state(const struct gradsync_job *job) {
        return fail(GRADSYNC_MEMBER_LOST, "job '%s': no up-to-date rank is left: restart from a checkpoint",
                    job->name);
}

/* No member has a state of this job. Either all have read the same checkpoint, or the state of the lowest
 * rank that has not received a part of another one is taken. */
static int sync_decide_fresh(struct gradsync_job *job) {
        struct sync *sync = job->sync;
        const struct sync_entry *all = sync->all;
        bool same = all[0].step > 0;

        sync->source = sync->world;
        for (uint32_t rank = 0; rank < sync->world; rank++) {
                if ((all[rank].claims & STANDING_HISTORY) != 0)
                        return sync_no_state(job);
                same = same && all[rank].step == all[0].step && (all[rank].claims & STANDING_TORN) == 0;
                if (sync->source == sync->world && (all[rank].claims & STANDING_TORN) == 0)
                        sync->source = rank;
        }
        if (sync->source == sync->world)
                return sync_no_state(job);
        sync->transfer = !same;
        sync->receive = !same && sync->rank != sync->source;
        return GRADSYNC_OK;
}

static int sync_decide(struct gradsync_job *job) {
        struct sync *sync = job->sync;
        const struct sync_entry *all = sync->all;
        int r = sync_check_sizes(job, all);

        if (r != GRADSYNC_OK)
                return r;
        sync->source = 0;
        for (uint32_t rank = 1; rank < sync->world; rank++)
                if (sync_compare(&all[rank], &all[sync->source]) > 0)
                        sync->source = rank;
        if (all[sync->source].tag.generation == 0)
                return sync_decide_fresh(job);
        job->standing.claims |= STANDING_HISTORY;
        for (uint32_t rank = 0; rank < sync->world; rank++)
                sync->transfer |= !sync_same_state(&all[rank], &all[sync->source]);
        sync->receive = !sync_same_state(&sync->mine, &all[sync->source]);
        return GRADSYNC_OK;
}

static int sync_gather(struct gradsync_job *job) {
        struct sync *sync = job->sync;

        if (sync->gathered)
                return GRADSYNC_OK;
        int r = collective_allgather(job, &sync->mine, sync->all, sizeof(sync->mine));
        if (r != GRADSYNC_OK)
                return r;
        sync->generation = job->collective->generation;
        sync->rank = job->collective->rank;
        sync->world = job->collective->world;
        r = sync_decide(job);
        sync->gathered = r == GRADSYNC_OK;
        if (sync->receive)
                job->standing.tag = (struct tag){ 0 };
        return r;
}

static int sync_transfer(struct gradsync_job *job, const struct gradsync_state *state, uint32_t n) {
        struct sync *sync = job->sync;

        for (; sync->transfer && sync->at < n; sync->at++) {
                void *data = state[sync->at].data;
                int r = collective_broadcast(job, sync->generation, data, sync->receive ? data : NULL,
                                             state[sync->at].bytes, sync->source);

                if (sync->receive && state[sync->at].bytes > 0 && job->collective->at > 0)
                        job->standing.claims |= STANDING_TORN;
                if (r != GRADSYNC_OK)
                        return r;
        }
        return GRADSYNC_OK;
}

/* Begins steps that were void only because of the new generation. */
static void sync_reopen_steps(struct gradsync_job *job) {
        for (struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next)
                if (plan->step.outcome == WIRE__OUTCOME__VOID && !plan->step.touched)
                        step_begin(plan, step_next(plan, false));
}

/* Forgets steps that were committed before the generation of the synchronisation, and that finish() has not
 * returned yet. */
static void sync_forget_steps(struct gradsync_job *job) {
        for (struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next)
                if (plan->renewed && plan->step.generation < job->sync->generation)
                        step_forget(plan);
}

static int sync_conclude(struct gradsync_job *job, uint64_t *step) {
        const struct sync *sync = job->sync;
        const struct sync_entry *from = &sync->all[sync->source];
        struct standing *standing = &job->standing;
        int r = job_check(job);

        if (r != GRADSYNC_OK)
                return r;
        *step = from->step;
        standing->tag = from->tag.generation > 0 ? from->tag : (struct tag){ sync->generation, 0 };
        standing->claims = STANDING_HISTORY;
        sync_forget_steps(job);
        /* There are new members now that do not have the state. */
        if (standing->newcomer > sync->generation)
                return GRADSYNC_VOID_RETRY;
        standing->synchronised = sync->generation;
        if (standing->generation != sync->generation)
                return GRADSYNC_OK;
        standing->told = sync->generation;
        sync_reopen_steps(job);
        return GRADSYNC_OK;
}

static int sync_check(const struct gradsync_job *job, const struct gradsync_state *state, uint32_t n,
                      const uint64_t *step) {
        if (job == NULL || step == NULL || (state == NULL && n > 0))
                return fail(GRADSYNC_INVALID, "%s(): job, buffers or step are NULL", call_name);
        for (uint32_t i = 0; i < n; i++)
                if (state[i].data == NULL && state[i].bytes > 0)
                        return fail(GRADSYNC_INVALID, "%s(): buffer %u of %u is NULL", call_name, i, n);
        return GRADSYNC_OK;
}

/* Other threads see one call, since their collectives would disturb what is known of the members. */
static int sync_synchronise(struct gradsync_job *job, const struct gradsync_state *state, uint32_t n,
                            uint64_t *step) {
        int r;

        do {
                r = job->sync->all == NULL ? sync_begin(job, state, n, *step) : GRADSYNC_OK;
                if (r == GRADSYNC_OK)
                        r = sync_gather(job);
                if (r == GRADSYNC_OK)
                        r = sync_transfer(job, state, n);
                if (r == GRADSYNC_OK)
                        r = sync_conclude(job, step);
                if (r == GRADSYNC_AGAIN || r == GRADSYNC_INTERRUPTED)
                        return r;
                sync_end(job->sync);
        } while (r == GRADSYNC_VOID_RETRY || r == GRADSYNC_VOID_BEHIND);
        return r;
}

int gradsync_sync_state(struct gradsync_job *job, const struct gradsync_state *state, uint32_t n,
                        uint64_t *step) {
        int r = sync_check(job, state, n, step);

        if (r == GRADSYNC_OK)
                r = job_enter_together(job, call_name);
        if (r != GRADSYNC_OK)
                return r;
        return job_leave(job, job->gs->standalone ? GRADSYNC_OK : sync_synchronise(job, state, n, step));
}
