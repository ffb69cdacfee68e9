/* SPDX-License-Identifier: Apache-2.0 */
/* Registering parameters, in the arena or in registered memory, and giving such memory back when no parameter
 * lies in it any more. */
#include "client/lib/plan/placement.h"

#include <inttypes.h>
#include <stdlib.h>

#include "client/lib/base/fail.h"
#include "client/lib/memory/registered.h"
#include "client/lib/plan/plan.h"

static bool placement_uses(const struct params *params, const struct gradsync_memory *memory) {
        for (uint32_t i = 0; i < params->n; i++)
                if (params->list[i].memory == memory)
                        return true;
        return false;
}

static int placement_check_unused(const struct gradsync_memory *memory) {
        const struct gradsync_job *job = memory->job;
        bool used = job->plans->making != NULL && placement_uses(&job->plans->making->params, memory);

        for (const struct gradsync_plan *plan = job->plans->list; plan != NULL && !used; plan = plan->next)
                used = placement_uses(&plan->params, memory);
        if (used)
                return fail(GRADSYNC_STATE,
                            "job '%s': gradients of a plan lie in this memory; free the plan first",
                            job->name);
        if (placement_uses(&job->plans->params, memory))
                return fail(GRADSYNC_STATE,
                            "job '%s': parameters of the next plan were placed in this memory; call "
                            "gradsync_plan() first, and free the plan",
                            job->name);
        return GRADSYNC_OK;
}

int gradsync_unregister(struct gradsync_memory *memory) {
        if (memory == NULL)
                return GRADSYNC_OK;
        struct gradsync_job *job = memory->job;
        int r = job_enter(job, "gradsync_unregister");
        if (r != GRADSYNC_OK)
                return r;
        r = placement_check_unused(memory);
        if (r == GRADSYNC_OK)
                r = registered_withdraw(memory);
        if (r == GRADSYNC_OK) {
                struct gradsync_memory **at = &job->memories;

                while (*at != memory)
                        at = &(*at)->next;
                *at = memory->next;
                registered_free(memory);
        }
        return job_leave(job, r);
}

static int placement_check(const struct gradsync_job *job, const struct gradsync_memory *memory,
                           uint64_t offset, const char *name) {
        const struct gradsync_memory *known = job->memories;

        while (known != NULL && known != memory)
                known = known->next;
        if (known == NULL)
                return fail(GRADSYNC_INVALID, "parameter \"%s\": its memory is not registered for job '%s'",
                            name, job->name);
        if (offset % ARENA_ALIGN != 0)
                return fail(GRADSYNC_INVALID, "parameter \"%s\": offset %" PRIu64 " is not a multiple of %u",
                            name, offset, ARENA_ALIGN);
        return GRADSYNC_OK;
}

static int placement_add(struct gradsync_job *job, const char *name, unsigned dtype, uint32_t ndim,
                         const uint64_t *shape, struct gradsync_memory *memory, uint64_t offset) {
        const char *shown = name != NULL ? name : "";

        if (job->plans->making != NULL)
                return fail(
                        GRADSYNC_STATE,
                        "parameter \"%s\": a plan of job '%s' is being made; finish gradsync_plan() first",
                        shown, job->name);
        if (memory != NULL) {
                int r = placement_check(job, memory, offset, shown);

                if (r != GRADSYNC_OK)
                        return r;
        }
        return params_add(&job->plans->params, name, dtype, ndim, shape, memory, offset);
}

int gradsync_param(struct gradsync_job *job, const char *name, enum gradsync_dtype dtype, uint32_t ndim,
                   const uint64_t *shape) {
        int r = job_enter(job, "gradsync_param");

        return r != GRADSYNC_OK
                       ? r
                       : job_leave(job, placement_add(job, name, (unsigned)dtype, ndim, shape, NULL, 0));
}

int gradsync_param_at(struct gradsync_job *job, const char *name, enum gradsync_dtype dtype, uint32_t ndim,
                      const uint64_t *shape, struct gradsync_memory *memory, uint64_t offset) {
        if (memory == NULL)
                return fail(GRADSYNC_INVALID,
                            "gradsync_param_at(): the memory is NULL; gradsync_param() has the daemon "
                            "allocate it");
        int r = job_enter(job, "gradsync_param_at");
        return r != GRADSYNC_OK ? r
                                : job_leave(job, placement_add(job, name, (unsigned)dtype, ndim, shape,
                                                               memory, offset));
}

/* The bytes of a file that a parameter occupies. */
struct claim {
        const struct memfd_file *file;
        const struct param *param;
        uint64_t start, end;
        /* The parameter belongs to the plan that is to be made. */
        bool next;
};

static int placement_by_start(const void *left, const void *right) {
        const struct claim *a = left, *b = right;

        if (a->file->device != b->file->device)
                return a->file->device < b->file->device ? -1 : 1;
        if (a->file->inode != b->file->inode)
                return a->file->inode < b->file->inode ? -1 : 1;
        return a->start < b->start ? -1 : a->start > b->start;
}

/* Counts the parameters that lie in registered memory, and lists them unless `list` is NULL. */
static size_t placement_list(const struct params *params, bool next, struct claim *list) {
        size_t n = 0;

        for (uint32_t i = 0; i < params->n; i++) {
                const struct param *param = &params->list[i];

                if (param->memory == NULL)
                        continue;
                if (list != NULL)
                        list[n] =
                                (struct claim){ .file = &param->memory->file,
                                                .param = param,
                                                .next = next,
                                                .start = param->memory->offset + param->offset,
                                                .end = param->memory->offset + param->offset + param->bytes };
                n++;
        }
        return n;
}

static size_t placement_list_all(const struct gradsync_job *next, struct claim *list) {
        size_t n = placement_list(&next->plans->params, true, list);

        for (const struct gradsync_job *job = next->gs->jobs; job != NULL; job = job->next)
                for (const struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next)
                        n += placement_list(&plan->params, false, list != NULL ? list + n : NULL);
        return n;
}

int placement_check_overlap(const struct gradsync_job *job) {
        size_t n = placement_list(&job->plans->params, true, NULL) > 0 ? placement_list_all(job, NULL) : 0;
        struct claim *list = n > 0 ? calloc(n, sizeof(*list)) : NULL;
        int r = GRADSYNC_OK;

        if (n == 0)
                return r;
        if (list == NULL)
                return fail(GRADSYNC_NO_MEMORY, "no memory to compare %zu parameters", n);
        placement_list_all(job, list);
        qsort(list, n, sizeof(*list), placement_by_start);
        for (size_t i = 1; i < n && r == GRADSYNC_OK; i++) {
                const struct claim *a = &list[i - 1], *b = &list[i];

                if (a->file->inode != b->file->inode || a->file->device != b->file->device ||
                    b->start >= a->end)
                        continue;
                r = fail(a->next && b->next ? GRADSYNC_INVALID : GRADSYNC_STATE,
                         "job '%s': parameters \"%s\" and \"%s\"%s overlap at byte %" PRIu64
                         " of a registered file",
                         job->name, a->param->name, b->param->name,
                         a->next && b->next ? "" : " of another plan", b->start);
        }
        free(list);
        return r;
}
