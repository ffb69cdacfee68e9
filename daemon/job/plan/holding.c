/* SPDX-License-Identifier: Apache-2.0 */
/* One request at a time for each memory, and one way for all that can become of it. */
#include "job/plan/holding.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gradsync.pb-c.h"
#include "job/data.h"

static void holding_set_state(struct holding *holding, enum holding_state state) {
        static const unsigned before[] = {
                [HOLDING_NONE] = 1u << HOLDING_ASKED,
                [HOLDING_ASKED] = 1u << HOLDING_NONE,
                [HOLDING_THERE] = 1u << HOLDING_ASKED | 1u << HOLDING_MAPPING,
                [HOLDING_MAPPING] = 1u << HOLDING_THERE,
                [HOLDING_ATTACHED] = 1u << HOLDING_ASKED | 1u << HOLDING_MAPPING,
                [HOLDING_FREEING] = 1u << HOLDING_THERE | 1u << HOLDING_ATTACHED,
        };

        assert(before[state] >> holding->state & 1);
        holding->state = state;
}

static void holding_discharge(struct holding *holding) {
        list_remove(&holding->link);
        charges_release(&holding->charges);
}

#define PAGE_TABLE_SHARE 512u /* of what is mapped: eight bytes for each page */

struct charges_amount holding_cost(const struct backend *backend, uint64_t bytes, uint64_t own) {
        struct backend_gpu gpu;
        bool device = backend->ops->gpu(backend, &gpu);

        return (struct charges_amount){ .bytes = device ? 0 : bytes,
                                        .own = sizeof(struct holding) + own +
                                               (device ? 0 : bytes / PAGE_TABLE_SHARE),
                                        .device = device ? frame_round_up(bytes, gpu.granularity) : 0,
                                        .arenas = bytes > 0,
                                        .fds = bytes > 0 ? backend->memory->n_fds : 0 };
}

int holding_new(struct job *job, const struct member *member, uint32_t number, struct backend *backend,
                const struct charges_amount *cost, holding_done_fn done, struct holding **ret,
                struct refusal *refusal) {
        struct holdings *holdings = &job->table->holdings;
        struct holding *holding = calloc(1, sizeof(*holding));
        int r;

        if (holding == NULL)
                return -ENOMEM;
        holding->jobs = job->table;
        holding->backend = backend;
        holding->holder = (struct holder){ .job = job->id,
                                           .member = member != NULL ? member->id : 0,
                                           .number = number };
        holding->done = done;
        list_append(&holdings->list, &holding->link);
        r = charges_take(&holding->charges, job->table->config.accounts, job->uid, cost, refusal);
        if (r != 0) {
                holding_discharge(holding);
                free(holding);
                return r;
        }
        holding->id = ++holdings->last;
        *ret = holding;
        return 0;
}

static struct job *holder_find_job(const struct jobs *jobs, const struct holder *holder) {
        struct job *job;

        list_for_each(job, &jobs->list, link)
                if (job->id == holder->job)
                        return job;
        return NULL;
}

struct member *holder_find(const struct job *job, const struct holder *holder) {
        struct member *member;

        list_for_each(member, &job->members, link)
                if (member->id == holder->member)
                        return member;
        return NULL;
}

static void holding_tell_gone(const struct holding *holding) {
        const struct holder *holder = &holding->holder;
        struct job *job = holder->request != 0 ? holder_find_job(holding->jobs, holder) : NULL;
        struct member *member = job != NULL ? holder_find(job, holder) : NULL;

        if (member != NULL && member->owner != NULL)
                holding->gone(member, holder->request, holder->number);
}

static void holding_gone(struct holding *holding) {
        holding_discharge(holding);
        holding_tell_gone(holding);
        free(holding);
}

/* Nothing is under way. */
static void holding_let_go(struct holding *holding) {
        struct memory_request request = { .id = holding->id, .kind = MEMORY_FREE, .memory = holding->memory };
        struct memory_result result;

        if (holding->memory == NULL) {
                holding_gone(holding);
                return;
        }
        holding_set_state(holding, HOLDING_FREEING);
        if (holding->backend->memory->request(holding->backend, &request, &result) == 1)
                holding_gone(holding);
}

struct holding *holding_free(struct holding *holding) {
        if (holding == NULL)
                return NULL;
        assert(!holding->unwanted);
        holding->unwanted = true;
        if (holding_is_busy(holding))
                holding->backend->memory->cancel(holding->backend, holding->id);
        else
                holding_let_go(holding);
        return NULL;
}

void holding_answer(struct holding *holding, uint32_t request, holding_gone_fn gone) {
        holding->holder.request = request;
        holding->gone = gone;
}

/* Takes the result of the request that was under way. */
static void holding_take(struct holding *holding, const struct memory_result *result) {
        bool asked = holding->state == HOLDING_ASKED;

        if (asked && result->error == 0)
                holding->memory = result->memory;
        if (result->error != 0)
                holding_set_state(holding, asked ? HOLDING_NONE : HOLDING_THERE);
        else if (!asked || holding->attached)
                holding_set_state(holding, HOLDING_ATTACHED);
        else
                holding_set_state(holding, HOLDING_THERE);
}

int holding_refuse_room(const struct job *job, uint64_t bytes, int r, struct refusal *refusal) {
        if (r == -EMFILE || r == -ENFILE || r == -ENOSPC || r == -ENOMEM)
                return refuse(refusal, WIRE__CODE__QUOTA,
                              "job '%s': gradsyncd has no room for %" PRIu64 " bytes of shared memory: %s",
                              job->name, bytes, strerror(-r));
        return r;
}

static int holding_judge(const struct holding *holding, const struct job *job,
                         const struct memory_result *result, struct refusal *refusal) {
        if (result->error <= 0)
                return holding_refuse_room(job, holding->wanted, result->error, refusal);
        *refusal = result->refusal;
        return (int)refusal->code;
}

int holding_ask(struct holding *holding, const struct job *job, const struct memory_request *what,
                struct refusal *refusal) {
        struct memory_request request = *what;
        struct memory_result result;

        request.id = holding->id;
        request.memory = holding->memory;
        holding->since = clock_now();
        holding_set_state(holding, what->kind == MEMORY_ATTACH ? HOLDING_MAPPING : HOLDING_ASKED);
        holding->attached = what->kind != MEMORY_SHARED;
        if (what->kind != MEMORY_ATTACH)
                holding->wanted = what->bytes;
        if (holding->backend->memory->request(holding->backend, &request, &result) == 0)
                return 0;
        holding_take(holding, &result);
        return holding_judge(holding, job, &result, refusal);
}

/* The session of a late answer cannot end for an error any more: it hears of it. */
static const struct refusal *holding_refusal(const struct holding *holding, const struct job *job,
                                             const struct memory_result *result, struct refusal *refusal) {
        int r = holding_judge(holding, job, result, refusal);

        if (r < 0)
                refuse(refusal, WIRE__CODE__SYSTEM, "job '%s': gradsyncd could not get its memory ready: %s",
                       job->name, strerror(-r));
        return r != 0 ? refusal : NULL;
}

static void holding_deliver(const struct holding *holding, const struct memory_result *result) {
        struct job *job = holder_find_job(holding->jobs, &holding->holder);
        struct holder holder = holding->holder;
        struct refusal refusal;

        holding->done(job, &holder, holding_refusal(holding, job, result, &refusal));
        loop_defer(job->table->config.loop, &job->settle); /* the job may have waited for it */
}

void holdings_made(struct jobs *jobs, const struct memory_result *result) {
        struct holding *holding;

        list_for_each(holding, &jobs->holdings.list, link)
                if (holding->id == result->id)
                        break;
        assert(&holding->link != &jobs->holdings.list);
        if (holding->state == HOLDING_FREEING) {
                holding_gone(holding);
                return;
        }
        holding_take(holding, result);
        if (holding->unwanted)
                holding_let_go(holding);
        else
                holding_deliver(holding, result);
}

void holdings_deinit(struct holdings *holdings) {
        while (!list_empty(&holdings->list)) {
                struct holding *holding = list_entry(holdings->list.next, struct holding, link);

                assert(holding->unwanted);
                holding_discharge(holding);
                free(holding);
        }
}
