/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered memory. The backend recognises the same memory, so that it does not matter through which
 * descriptor, by which member and how often one was registered. One search tree holds the claims on all
 * memories, so that a claim costs the same however many there are.
 */
#include "job/plan/memory.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "gradsync.pb-c.h"
#include "job/event/event.h"
#include "job/plan/holding.h"
#include "job/plan/plan.h"

static const struct jobs_config *config_of(const struct member *member) {
        return &member->job->table->config;
}

static struct memory *memory_find(const struct member *member, uint32_t handle) {
        struct memory *memory = member->memories;

        while (memory != NULL && memory->handle != handle)
                memory = memory->next;
        return memory;
}

/* Off its member's list, and freed. */
static void memory_free(struct memory *memory) {
        struct memory **at = &memory->member->memories;

        assert(list_empty(&memory->claims));
        while (*at != memory)
                at = &(*at)->next;
        *at = memory->next;
        holding_free(memory->arena);
        free(memory);
}

static void memory_answer(const struct memory *memory) {
        member_tell(memory->member, (struct job_event){ .kind = JOB_EVENT_REGISTERED,
                                                        .request = memory->request,
                                                        .number = memory->handle });
}

static void memory_refuse(struct memory *memory, const struct refusal *why, struct refusal *refusal) {
        refuse(refusal, why->code, "rank %u of job '%s' cannot register this memory: %s",
               memory->member->rank, memory->member->job->name, why->text);
        memory_free(memory);
}

static void memory_late(struct job *job, const struct holder *holder, const struct refusal *refusal) {
        struct member *member = holder_find(job, holder);
        struct memory *memory = memory_find(member, holder->number);
        uint32_t request = memory->request;
        struct refusal why;

        if (member->owner == NULL)
                return; /* it goes with its member */
        if (refusal == NULL) {
                memory_answer(memory);
                return;
        }
        memory_refuse(memory, refusal, &why);
        member_tell_refused(member, request, &why);
}

static int memory_new(struct member *member, uint64_t offset, uint64_t bytes, struct memory **ret,
                      struct refusal *refusal) {
        struct memory *memory = calloc(1, sizeof(*memory));
        struct backend *backend = config_of(member)->backend;
        struct charges_amount cost = holding_cost(backend, bytes, sizeof(*memory));

        if (memory == NULL)
                return -ENOMEM;
        memory->member = member;
        memory->offset = offset;
        memory->bytes = bytes;
        memory->handle = member->last_memory + 1;
        list_init(&memory->claims);
        memory->next = member->memories;
        member->memories = memory;
        int r = holding_new(member->job, member, memory->handle, backend, &cost, memory_late, &memory->arena,
                            refusal);
        if (r != 0)
                memory_free(memory);
        *ret = memory;
        return r;
}

int memory_offer(struct member *member, uint32_t request, const struct memory_request *what,
                 struct refusal *refusal) {
        uint64_t bytes = what->bytes;
        struct memory *memory;
        struct refusal why;

        if (bytes > LIMIT_ARENA)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': a memory of %" PRIu64 " bytes is too large; %" PRIu64
                              " are possible",
                              member->job->name, bytes, LIMIT_ARENA);
        int r = memory_new(member, what->offset, bytes, &memory, refusal);
        if (r != 0)
                return r;
        memory->request = request;
        r = holding_ask(memory->arena, member->job, what, &why);
        if (r > 0)
                memory_refuse(memory, &why, refusal);
        else if (r < 0)
                memory_free(memory);
        if (r != 0)
                return r;
        member->last_memory++;
        if (!holding_is_busy(memory->arena))
                memory_answer(memory);
        return 0;
}

/* A memory that is still being taken over cannot be used yet. */
static bool memory_is_there(const struct memory *memory) {
        return memory != NULL && !holding_is_busy(memory->arena);
}

static void memory_gone(struct member *member, uint32_t request, uint32_t handle) {
        member_tell(member, (struct job_event){
                                    .kind = JOB_EVENT_UNREGISTERED, .request = request, .number = handle });
}

int memory_unregister(struct member *member, uint32_t request, uint32_t handle, struct refusal *refusal) {
        struct memory *memory = memory_find(member, handle);

        if (!memory_is_there(memory))
                return refuse(refusal, WIRE__CODE__INVALID, "rank %u of job '%s' has registered no memory %u",
                              member->rank, member->job->name, handle);
        if (!list_empty(&memory->claims))
                return refuse(
                        refusal, WIRE__CODE__STATE,
                        "rank %u of job '%s': memory %u holds gradients of plan %u; free the plan first",
                        member->rank, member->job->name, handle,
                        list_entry(memory->claims.next, struct memory_claim, link)->plan->ordinal);
        holding_answer(memory->arena, request, memory_gone);
        memory_free(memory);
        return 0;
}

void memories_release(struct member *member) {
        while (member->memories != NULL)
                memory_free(member->memories);
}

/* A bucket of a description that lies in a memory, as a span of its file. */
struct lying {
        struct memory *memory;
        struct memory_span span;
        uint32_t bucket;
};

/* Those of the memory with the highest handle come first, as in a member's list of memories. */
static int by_handle(const void *left, const void *right, void *d) {
        const struct description_bucket *bucket = ((const struct description *)d)->bucket;
        uint32_t a = ((const struct lying *)left)->bucket, b = ((const struct lying *)right)->bucket;

        if (bucket[a].memory != bucket[b].memory)
                return bucket[a].memory > bucket[b].memory ? -1 : 1;
        return bucket[a].offset < bucket[b].offset ? -1 : bucket[a].offset > bucket[b].offset;
}

static int memory_check_bucket(const struct member *member, const struct memory *memory,
                               const struct description_bucket *bucket, uint32_t index,
                               struct refusal *refusal) {
        if (!memory_is_there(memory) || memory->handle != bucket->memory)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "bucket %u lies in memory %u, but rank %u of job '%s' has "
                              "registered none of that number",
                              index, bucket->memory, member->rank, member->job->name);
        if (bucket->offset > memory->bytes || bucket->bytes > memory->bytes - bucket->offset)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "bucket %u: %" PRIu64 " bytes at offset %" PRIu64
                              " do not lie in memory %u, of which %" PRIu64 " are registered",
                              index, bucket->bytes, bucket->offset, bucket->memory, memory->bytes);
        return 0;
}

/* Each of the description's buckets that lies in a memory, sorted. */
static int memory_find_places(const struct member *member, const struct description *d,
                              struct backend_range *place, struct lying *lying, uint32_t *ret_n,
                              struct refusal *refusal) {
        struct memory *memory = member->memories;
        uint32_t n = 0;

        for (uint32_t b = 0; b < d->n_buckets; b++)
                if (d->bucket[b].memory != 0)
                        lying[n++].bucket = b;
        qsort_r(lying, n, sizeof(*lying), by_handle, (void *)(uintptr_t)d);
        for (uint32_t i = 0; i < n; i++) {
                uint32_t index = lying[i].bucket;
                const struct description_bucket *bucket = &d->bucket[index];
                int r;

                while (memory != NULL && memory->handle > bucket->memory)
                        memory = memory->next;
                r = memory_check_bucket(member, memory, bucket, index, refusal);
                if (r != 0)
                        return r;
                place[index] =
                        (struct backend_range){ .memory = memory->arena->memory, .offset = bucket->offset };
                lying[i].memory = memory;
                lying[i].span.start = memory->offset + bucket->offset;
                lying[i].span.end = lying[i].span.start + bucket->bytes;
                if (i > 0 && lying[i - 1].memory == memory && lying[i].span.start < lying[i - 1].span.end)
                        return refuse(refusal, WIRE__CODE__INVALID,
                                      "buckets %u and %u overlap in memory %u: no byte belongs to two "
                                      "parameters",
                                      lying[i - 1].bucket, index, memory->handle);
        }
        *ret_n = n;
        return 0;
}

/* For a tree of spans that do not overlap: one that overlaps another one is equal to it. */
static int by_bytes(const void *left, const void *right) {
        const struct memory_span *a = left, *b = right;
        const struct backend_memory *memory = a->claim->memory->arena->memory;
        int order = memory->backend->memory->compare(memory, b->claim->memory->arena->memory);

        if (order != 0)
                return order;
        return a->end <= b->start ? -1 : a->start >= b->end;
}

/* The other plan may be another user's: its name is shown only to members of its own uid. */
static int refuse_overlap(const struct memory_span *span, const struct memory_span *taken,
                          struct refusal *refusal) {
        const struct member *member = span->claim->memory->member, *other = taken->claim->memory->member;
        uint64_t start = span->start > taken->start ? span->start : taken->start;
        uint64_t end = span->end < taken->end ? span->end : taken->end;
        char owner[LIMIT_NAME + 64] = "another user's plan";

        if (other->job->uid == member->job->uid)
                snprintf(owner, sizeof(owner), "plan %u of rank %u of job '%s'", taken->claim->plan->ordinal,
                         other->rank, other->job->name);
        return refuse(refusal, WIRE__CODE__STATE,
                      "bytes %" PRIu64 " to %" PRIu64 " of the file of a registered memory belong to %s; "
                      "free that one first, or place the parameters elsewhere",
                      start, end, owner);
}

static int enter(const struct memory_claim *claim, struct memory_span *span, struct refusal *refusal) {
        struct memory_span **at;

        span->claim = claim;
        at = tsearch(span, &claim->memory->member->job->table->claimed, by_bytes);
        if (at == NULL)
                return -ENOMEM;
        return *at == span ? 0 : refuse_overlap(span, *at, refusal);
}

/* The first of these that lie in one memory: makes their claim, which is on the list also if it fails.
 * Buckets that touch are one span. */
static int claim_memory(const struct plan *plan, const struct lying *lying, uint32_t n,
                        struct memory_claim **claims, struct refusal *refusal) {
        struct memory_claim *claim = malloc(sizeof(*claim) + n * sizeof(claim->span[0]));
        uint32_t spans = 0;
        int r = 0;

        if (claim == NULL)
                return -ENOMEM;
        *claim = (struct memory_claim){ .next = *claims, .plan = plan, .memory = lying->memory };
        for (uint32_t i = 0; i < n; i++)
                if (spans > 0 && claim->span[spans - 1].end == lying[i].span.start)
                        claim->span[spans - 1].end = lying[i].span.end;
                else
                        claim->span[spans++] = lying[i].span;
        list_append(&lying->memory->claims, &claim->link);
        *claims = claim;
        while (r == 0 && claim->n < spans) {
                r = enter(claim, &claim->span[claim->n], refusal);
                claim->n += r == 0;
        }
        return r;
}

int memory_claim(struct member *member, const struct plan *plan, const struct description *d,
                 struct backend_range *place, struct memory_claim **ret, struct refusal *refusal) {
        _cleanup_(freep) struct lying *lying = malloc(d->n_buckets * sizeof(*lying));
        struct memory_claim *claims = NULL;
        uint32_t n = 0, some;

        if (lying == NULL)
                return -ENOMEM;
        int r = memory_find_places(member, d, place, lying, &n, refusal);
        for (uint32_t first = 0; r == 0 && first < n; first += some) {
                some = 1;
                while (first + some < n && lying[first + some].memory == lying[first].memory)
                        some++;
                r = claim_memory(plan, lying + first, some, &claims, refusal);
        }
        if (r != 0) {
                memory_unclaim(claims);
                return r;
        }
        *ret = claims;
        return 0;
}

void memory_unclaim(struct memory_claim *claims) {
        while (claims != NULL) {
                struct memory_claim *claim = claims;

                claims = claim->next;
                list_remove(&claim->link);
                for (uint32_t i = 0; i < claim->n; i++)
                        tdelete(&claim->span[i], &claim->memory->member->job->table->claimed, by_bytes);
                free(claim);
        }
}

static void evict(struct member *member, uint32_t code, const char *why) {
        struct log_context context = LOG_CONTEXT_OF(member->job);
        struct refusal refusal;

        refuse_for(&refusal, code, member->rank, (int32_t)member->pid,
                   "job '%s': rank %u (pid %d) is evicted: %s", member->job->name, member->rank,
                   (int)member->pid, why);
        context.rank = member->rank;
        context.pid = member->pid;
        if (member->owner != NULL && flood_admits(FLOOD_PROTOCOL, member->job->uid, clock_now()))
                log_write(LOG_WARNING, &context, "%s", refusal.text);
        member_expel(member, &refusal);
}

void memory_withdrawn(struct member *member) {
        evict(member, WIRE__CODE__INVALID,
              "some of its shared memory was given back to the kernel (holes were punched) while gradsyncd "
              "was using it");
}

bool memory_intact(struct member *member, struct backend_memory *memory, uint64_t bytes) {
        struct refusal why;
        int r = memory->backend->memory->check(memory, bytes, &why);

        if (r < 0)
                refuse(&why, WIRE__CODE__SYSTEM, "its memory cannot be looked at: %s", strerror(-r));
        if (r != 0)
                evict(member, why.code, why.text);
        return r == 0;
}
