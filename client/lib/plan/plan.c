/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a plan: describe it in chunks, map and touch the arena, agree with the other members. Each phase can
 * be interrupted and goes on with the next call. The gradients' addresses are fixed from then on.
 */
#include "client/lib/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/fail.h"
#include "client/lib/base/options.h"
#include "client/lib/memory/registered.h"
#include "client/lib/plan/describe.h"
#include "client/lib/plan/placement.h"
#include "proto/cleanup.h"
#include "proto/names.h"

#define OLDEST_OPTIONS (offsetof(struct gradsync_plan_options, bucket_bytes) + sizeof(uint64_t))
#define ANSWER_GRACE_MS 10000

unsigned plan_list_fds(const struct gradsync_plan *plan, int ret[FRAME_FDS_MAX]) {
        unsigned n = 0;

        if (plan->layout.arena_bytes > 0)
                ret[n++] = plan->fd;
        ret[n++] = plan->control_fd;
        return n;
}

void plan_close_fds(struct gradsync_plan *plan) {
        plan->fd = fd_close(plan->fd);
        plan->control_fd = fd_close(plan->control_fd);
}

static bool plan_is_on_gpu(const struct gradsync_plan *plan) {
        return device_is_cuda(plan->job->gs->device_name);
}

static void plan_unmap(struct gradsync_plan *plan) {
        if (plan_is_on_gpu(plan) && plan->arena.base != NULL) {
                device_unmap(plan->job->gs->device, plan->arena.base, plan->arena.bytes);
                plan->arena = (struct shared){ 0 };
        }
        shared_unmap(&plan->arena);
        shared_unmap(&plan->control);
}

void plan_free(struct gradsync_plan *plan) {
        request_close(plan->job->gs, &plan->request);
        signal_deinit(plan);
        plan_unmap(plan);
        plan_close_fds(plan);
        step_deinit(plan);
        results_deinit(&plan->results[0]);
        results_deinit(&plan->results[1]);
        layout_deinit(&plan->layout);
        params_deinit(&plan->params);
        free(plan);
}

static int plan_check_reduce(const struct gradsync_job *job, unsigned reduce) {
        for (uint32_t i = 0; i < job->plans->params.n; i++)
                if (!reduce_valid(reduce, job->plans->params.list[i].dtype))
                        return fail_about_parameter(fail(GRADSYNC_INVALID,
                                                         "parameter \"%s\": the %s of %s is not defined",
                                                         job->plans->params.list[i].name, reduce_name(reduce),
                                                         dtype_name(job->plans->params.list[i].dtype)),
                                                    job->plans->params.list[i].name);
        return GRADSYNC_OK;
}

static void plan_set_deadline(struct gradsync_plan *plan) {
        uint64_t ms = plan->job->wish.timeout_ms;

        plan->deadline = ms == 0 ? NEVER : clock_after_ms(ms + ANSWER_GRACE_MS);
}

/* The registered parameters move into the plan only once nothing local can fail any more. */
static int plan_create(struct gradsync_job *job, const struct gradsync_plan_options *options,
                       struct gradsync_plan **ret) {
        struct gradsync_plan *plan = calloc(1, sizeof(*plan));
        struct plans *plans = job->plans;

        if (plan == NULL)
                return fail(GRADSYNC_NO_MEMORY, "no memory for a plan");
        plan->job = job;
        plan->fd = plan->control_fd = -1;
        plan->reduce = (unsigned)options->reduce;
        plan->void_on_loss = options->void_on_loss;
        plan->generation = job->standing.told;
        int r = plan_check_reduce(job, plan->reduce);
        if (r == GRADSYNC_OK)
                r = placement_check_overlap(job);
        if (r == GRADSYNC_OK)
                r = layout_init(&plan->layout, &job->plans->params, options->first_bucket_bytes,
                                options->bucket_bytes);
        for (unsigned i = 0; i < 2 && r == GRADSYNC_OK; i++)
                r = results_init(&plan->results[i], &plan->layout, job->wish.max_world);
        if (r == GRADSYNC_OK)
                r = step_init(plan);
        if (r != GRADSYNC_OK) {
                plan_free(plan);
                return r;
        }
        plan->params = plans->params;
        plans->params = (struct params){ 0 };
        plan->ordinal = plans->next;
        plans->next = plans->at_later < plans->n_later ? plans->later[plans->at_later++] : plans->next + 1;
        plan->connection = job->gs->link.connection;
        plan_set_deadline(plan);
        *ret = plan;
        return GRADSYNC_OK;
}

static int plan_take_arena(struct request *request, const ProtobufCMessage *message,
                           struct fdpass_packet *packet) {
        struct gradsync_plan *plan = OWNER(request, struct gradsync_plan, request);
        const Wire__PlanArena *arena = (const Wire__PlanArena *)message;
        const struct layout *layout = &plan->layout;
        int none[FRAME_FDS_MAX];
        unsigned n = 0, wanted = plan_list_fds(plan, none);

        if (packet->n_fds != wanted || arena->bytes < layout->arena_bytes ||
            (arena->bytes > layout->arena_bytes && !plan_is_on_gpu(plan)))
                return fail(GRADSYNC_PROTOCOL,
                            "job '%s', plan %u: gradsyncd sent an arena of %llu bytes and %u fds, one of "
                            "%llu and %u were asked for",
                            plan->job->name, plan->ordinal, (unsigned long long)arena->bytes, packet->n_fds,
                            (unsigned long long)layout->arena_bytes, wanted);
        if (layout->arena_bytes > 0)
                plan->fd = packet->fds[n++];
        plan->control_fd = packet->fds[n];
        packet->n_fds = 0;
        return GRADSYNC_OK;
}

static int plan_map_on_gpu(struct gradsync_plan *plan) {
        int r = device_map(plan->job->gs->device, plan->fd, plan->layout.arena_bytes, &plan->arena.base);

        plan->arena.bytes = plan->layout.arena_bytes;
        return r;
}

static int plan_map_both(struct gradsync_plan *plan) {
        const struct layout *layout = &plan->layout;
        int r = GRADSYNC_OK;

        if (layout->arena_bytes > 0 && plan_is_on_gpu(plan))
                r = plan_map_on_gpu(plan);
        else if (layout->arena_bytes > 0)
                r = shared_map(&plan->arena, plan->fd, layout->arena_bytes, "the arena", plan->job->name);
        if (r == GRADSYNC_OK)
                r = shared_map(&plan->control, plan->control_fd, layout->control_bytes, "the control memory",
                               plan->job->name);
        return r;
}

static int plan_populate(const struct gradsync_plan *plan) {
        int r = GRADSYNC_OK;

        if (plan->arena.base != NULL && !plan_is_on_gpu(plan))
                r = shared_populate(&plan->arena, "the arena", plan->job->name);
        if (r == GRADSYNC_OK)
                r = shared_populate(&plan->control, "the control memory", plan->job->name);
        return r;
}

/* Clears padding: it is reduced with its bucket and counts in the norm, and registered memory may have held
 * other data there. */
static int plan_clear(const struct gradsync_plan *plan, void *address, uint64_t bytes) {
        cuda_stream ignored;

        if (plan_is_on_gpu(plan))
                return bytes > 0 ? device_clear(plan->job->gs->device, address, bytes, &ignored)
                                 : GRADSYNC_OK;
        memset(address, 0, bytes);
        return GRADSYNC_OK;
}

static int plan_clear_padding(const struct gradsync_plan *plan) {
        const struct layout *layout = &plan->layout;
        int r = GRADSYNC_OK;

        for (uint32_t i = 0; i + 1 < layout->n_params && r == GRADSYNC_OK; i++) {
                uint32_t param = layout->order[i], next = layout->order[i + 1];
                uint64_t bytes = plan->params.list[param].bytes;

                if (layout->bucket_of[param] == layout->bucket_of[next])
                        r = plan_clear(plan, (unsigned char *)plan_address(plan, param) + bytes,
                                       layout->offset[next] - layout->offset[param] - bytes);
        }
        return r == GRADSYNC_OK && plan_is_on_gpu(plan) ? device_wait(plan->job->gs->device) : r;
}

/* Faulting in gigabytes takes long: other threads go on meanwhile. */
static int plan_map_arena(struct gradsync_plan *plan) {
        struct gradsync_job *job = plan->job;
        int r = plan_is_on_gpu(plan) ? context_open_device(job->gs) : GRADSYNC_OK;

        if (r == GRADSYNC_OK)
                r = plan_map_both(plan);
        if (r == GRADSYNC_OK && plan_is_on_gpu(plan))
                r = signal_init(plan);

        /* No other daemon will ask for them. */
        if (job->gs->link.timer < 0)
                plan_close_fds(plan);
        if (r == GRADSYNC_PROTOCOL)
                link_fail(&job->gs->link, r);
        if (r != GRADSYNC_OK)
                return r;
        pthread_mutex_unlock(&job->gs->link.lock);
        r = plan_populate(plan);
        if (r == GRADSYNC_OK)
                r = plan_clear_padding(plan);
        pthread_mutex_lock(&job->gs->link.lock);
        plan->page = (struct diagnosis *)(void *)plan->control.base;
        if (r == GRADSYNC_OK)
                plan->page->version = DIAGNOSIS_VERSION;
        return r;
}

/* `step` is the last one that the members have committed. */
static void plan_take_part(struct gradsync_plan *plan, uint64_t step) {
        plan->phase = PLAN_AGREED;
        plan->agreed_ns = plan->finished_ns = clock_ns();
        step_begin(plan, step + 1);
        plan->next = plan->job->plans->list;
        plan->job->plans->list = plan;
}

/* The plan takes part from here on, and not only when the caller's thread runs: the next message may be for
 * it. */
static int plan_take_agreed(struct request *request, const ProtobufCMessage *message,
                            struct fdpass_packet *packet) {
        plan_take_part(OWNER(request, struct gradsync_plan, request),
                       ((const Wire__PlanAgreed *)message)->step);
        return GRADSYNC_OK;
}

void plan_say_blocked(const struct gradsync_plan *plan, uint64_t in) {
        if (plan->page != NULL)
                __atomic_store_n(&plan->page->blocked, in, __ATOMIC_RELAXED);
}

static int plan_say_mapped(struct gradsync_plan *plan) {
        Wire__PlanMapped mapped = WIRE__PLAN_MAPPED__INIT;

        SET_PLAN(mapped, plan);
        plan_say_blocked(plan, job_waits_alone(plan->job) ? DIAGNOSIS_AGREEMENT : 0);
        return request_call(plan->job->gs, &plan->request, WIRE__MESSAGE_TYPE__PLAN_MAPPED, &mapped.base, -1,
                            WIRE__MESSAGE_TYPE__PLAN_AGREED, plan_take_agreed, plan->deadline);
}

/* The daemon holds an arena for a plan that failed here. It is asked to drop that; its answer does not
 * matter. */
static void plan_say_dropped(struct gradsync_plan *plan) {
        Wire__PlanDrop drop = WIRE__PLAN_DROP__INIT;
        struct gradsync *gs = plan->job->gs;
        struct request unheard = { 0 };

        SET_PLAN(drop, plan);
        request_open(gs, &unheard, WIRE__MESSAGE_TYPE__PLAN_DROPPED, NULL);
        link_send(&gs->link, WIRE__MESSAGE_TYPE__PLAN_DROP, unheard.id, &drop.base, -1);
        request_close(gs, &unheard);
}

/* The daemon that knew of the plan is gone, and its arena has not been used yet. */
static void plan_start_again(struct gradsync_plan *plan) {
        request_close(plan->job->gs, &plan->request);
        signal_deinit(plan);
        plan_unmap(plan);
        plan_close_fds(plan);
        plan->phase = PLAN_DESCRIBE;
        plan->at = 0;
        plan->begun = false;
        plan->connection = plan->job->gs->link.connection;
        plan_set_deadline(plan);
}

static bool plan_is_void(const struct gradsync_plan *plan) {
        return plan->void_on_loss && plan->phase != PLAN_AGREED &&
               plan->generation != plan->job->standing.generation;
}

void plan_regenerate(struct gradsync_plan *plan) {
        if (plan_is_void(plan))
                request_end(&plan->request, GRADSYNC_VOID_RETRY, "");
}

/* The daemon forgot the plan with the generation, so the next plan has its ordinal. */
static void plan_return_ordinal(const struct gradsync_plan *plan) {
        struct plans *plans = plan->job->plans;

        if (plans->at_later > 0 && plans->later[plans->at_later - 1] == plans->next)
                plans->at_later--;
        plans->next = plan->ordinal;
}

static int plan_end_void(struct gradsync_plan *plan) {
        struct gradsync_job *job = plan->job;
        const struct loss *loss = &job->standing.loss;
        int r = job_wait_generation(job);

        if (r == GRADSYNC_OK)
                r = job_check_together(job);
        if (r != GRADSYNC_OK)
                return r;
        plan_return_ordinal(plan);
        r = job_void_code(job);
        job->standing.told = job->standing.generation;
        fail(r, "the plan is void, the job has gone on to generation %u: %s; %s", job->standing.generation,
             loss->text,
             r == GRADSYNC_VOID_BEHIND
                     ? "synchronise the state with gradsync_sync_state(), then make it again"
                     : "make it again");
        return loss->pid != 0 ? fail_about_member(r, loss->rank, loss->pid) : r;
}

static int plan_negotiate(struct gradsync_plan *plan) {
        struct gradsync *gs = plan->job->gs;
        int r = GRADSYNC_OK;

        if (plan->phase == PLAN_AGREED)
                return request_wait(gs, &plan->request, plan->deadline);
        r = job_wait_daemon(plan->job);
        if (r == GRADSYNC_OK && plan_is_void(plan))
                return GRADSYNC_VOID_RETRY;
        if (r == GRADSYNC_OK && plan->connection != gs->link.connection)
                plan_start_again(plan);
        if (r == GRADSYNC_OK && plan->phase == PLAN_DESCRIBE) {
                if (plan->request.id == 0)
                        request_open(gs, &plan->request, WIRE__MESSAGE_TYPE__PLAN_ARENA, plan_take_arena);
                r = describe_plan(plan);
                plan->phase = r == GRADSYNC_OK ? PLAN_ARENA : PLAN_DESCRIBE;
        }
        if (r == GRADSYNC_OK && plan->phase == PLAN_ARENA) {
                r = request_wait(gs, &plan->request, plan->deadline);
                plan->phase = r == GRADSYNC_OK ? PLAN_MAP : PLAN_ARENA;
        }
        if (r == GRADSYNC_OK && plan->phase == PLAN_MAP) {
                r = plan_map_arena(plan);
                if (r == GRADSYNC_OK)
                        plan->phase = PLAN_MAPPED;
                else
                        plan_say_dropped(plan);
        }
        if (r == GRADSYNC_OK && plan_is_void(plan))
                return GRADSYNC_VOID_RETRY;
        if (r == GRADSYNC_OK && plan->connection != gs->link.connection)
                return REQUEST_BROKEN;
        return r != GRADSYNC_OK ? r : plan_say_mapped(plan);
}

static int plan_negotiate_until_known(struct gradsync_plan *plan) {
        int r;

        do
                r = plan_negotiate(plan);
        while (r == REQUEST_BROKEN);
        return r == GRADSYNC_VOID_RETRY ? plan_end_void(plan) : r;
}

static int plan_negotiate_alone(struct gradsync_plan *plan) {
        int r = plan_map_arena(plan);

        if (r == GRADSYNC_OK)
                plan_take_part(plan, 0);
        return r;
}

static int plan_make(struct gradsync_job *job, const struct gradsync_plan_options *options,
                     struct gradsync_plan **ret) {
        struct gradsync_plan *plan = job->plans->making;
        int r;

        plan_note_caller(job, true);
        if (plan == NULL) {
                r = plan_create(job, options, &plan);
                if (r != GRADSYNC_OK) {
                        /* Else nothing would take the parameters out of registered memory again. */
                        params_deinit(&job->plans->params);
                        return r;
                }
                job->plans->making = plan;
        }
        r = job->gs->standalone ? plan_negotiate_alone(plan) : plan_negotiate_until_known(plan);
        if (r == GRADSYNC_AGAIN || r == GRADSYNC_INTERRUPTED)
                return r;
        job->plans->making = NULL;
        plan_say_blocked(plan, 0);
        if (r == GRADSYNC_OK) {
                *ret = plan;
                return r;
        }
        plan_free(plan);
        return r;
}

int gradsync_plan_with(struct gradsync_job *job, const struct gradsync_plan_options *given,
                       struct gradsync_plan **plan) {
        struct gradsync_plan_options options = GRADSYNC_PLAN_OPTIONS_INIT;

        if (plan == NULL)
                return fail(GRADSYNC_INVALID, "gradsync_plan(): no place for the plan");
        int r = options_take(&options, sizeof(options), OLDEST_OPTIONS, given,
                             "struct gradsync_plan_options");
        if (r == GRADSYNC_OK)
                r = job_enter_together(job, "gradsync_plan");
        return r != GRADSYNC_OK ? r : job_leave(job, plan_make(job, &options, plan));
}

int gradsync_plan(struct gradsync_job *job, struct gradsync_plan **plan) {
        return gradsync_plan_with(job, NULL, plan);
}

static int plan_ask_drop(struct gradsync_plan *plan) {
        struct gradsync_job *job = plan->job;
        Wire__PlanDrop message = WIRE__PLAN_DROP__INIT;
        int r;

        if (plan->step.touched)
                return fail(GRADSYNC_STATE, "step %llu of the plan is open; gradsync_finish() it first",
                            (unsigned long long)plan->step.number);
        if (plan->waiters > 0)
                return fail(
                        GRADSYNC_STATE,
                        "step %llu of the plan is being waited for; gradsync_finish() has to return first",
                        (unsigned long long)plan->step.number);
        if (job->gs->standalone)
                return GRADSYNC_OK;
        if (!plan->drop) {
                r = job_wait_daemon(job);
                if (r != GRADSYNC_OK)
                        return r;
        }
        SET_PLAN(message, plan);
        plan->drop = true;
        r = request_call(job->gs, &plan->request, WIRE__MESSAGE_TYPE__PLAN_DROP, &message.base, -1,
                         WIRE__MESSAGE_TYPE__PLAN_DROPPED, NULL, NEVER);
        /* The daemon that follows is not told of the plan. */
        return r == REQUEST_BROKEN ? GRADSYNC_OK : r;
}

int gradsync_plan_free(struct gradsync_plan *plan) {
        if (plan == NULL)
                return GRADSYNC_OK;
        struct gradsync_job *job = plan->job;
        int r = job_enter(job, "gradsync_plan_free");
        if (r != GRADSYNC_OK)
                return r;
        r = plan_ask_drop(plan);
        if (r == GRADSYNC_OK) {
                struct gradsync_plan **at = &job->plans->list;

                while (*at != plan)
                        at = &(*at)->next;
                *at = plan->next;
                if (job->rejoin.plan == plan)
                        job->rejoin.plan = plan->next;
                plan_free(plan);
        } else if (plan->request.id == 0) {
                /* The request was refused, or not sent: a daemon that follows has to know of the plan. */
                plan->drop = false;
        }
        return job_leave(job, r);
}

void plan_note_caller(struct gradsync_job *job, bool together) {
        if (!(together ? callers_note_home(&job->callers) : callers_note_step(&job->callers)))
                return;
        for (struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next)
                plan_say_blocked(plan, 0);
}

int plan_enter(const struct gradsync_plan *plan, const char *call) {
        if (plan == NULL)
                return fail(GRADSYNC_INVALID, "%s(): the plan is NULL", call);
        return context_enter(plan->job->gs);
}

int plan_leave(const struct gradsync_plan *plan, int r) {
        return context_leave(plan->job->gs, r);
}

void *plan_address(const struct gradsync_plan *plan, uint32_t param) {
        const struct gradsync_memory *memory = plan->params.list[param].memory;

        return (memory != NULL ? memory->map.base : plan->arena.base) + plan->layout.offset[param];
}

int plan_check_param(const struct gradsync_plan *plan, uint32_t param, const char *call) {
        if (param >= plan->layout.n_params)
                return fail(GRADSYNC_INVALID, "%s(): there is no parameter %u, the plan has %u", call, param,
                            plan->layout.n_params);
        return GRADSYNC_OK;
}

uint32_t gradsync_plan_params(const struct gradsync_plan *plan) {
        return plan ? plan->layout.n_params : 0;
}

uint32_t gradsync_plan_buckets(const struct gradsync_plan *plan) {
        return plan ? plan->layout.n_buckets : 0;
}

uint64_t gradsync_plan_bytes(const struct gradsync_plan *plan) {
        return plan ? plan->layout.payload : 0;
}

uint32_t gradsync_plan_bucket_of(const struct gradsync_plan *plan, uint32_t param) {
        return plan && param < plan->layout.n_params ? plan->layout.bucket_of[param] : 0;
}

void *gradsync_gradient(struct gradsync_plan *plan, uint32_t param) {
        return plan && param < plan->layout.n_params ? plan_address(plan, param) : NULL;
}
