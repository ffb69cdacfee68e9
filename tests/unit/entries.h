/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls into the job layer as the session layer makes them: after each of them jobs_advance(), before
 * anything else happens. The macros have the names of the functions that they call.
 */
#pragma once

#include "job/op/operation.h"
#include "job/op/staging.h"
#include "job/plan/memory.h"
#include "job/plan/plan.h"
#include "job/plan/step.h"
#include "job/private.h"
#include "job/rejoin.h"
#include "job/restart/takeover.h"

/* Makes the call and advances the table, which is looked up before: the call may free the member. */
#define ENTER(path, function, who, ...)                                                                      \
        ({                                                                                                   \
                __auto_type entering = (who);                                                                \
                struct jobs *entered = entering path;                                                        \
                int code = function(entering, __VA_ARGS__);                                                  \
                jobs_advance(entered);                                                                       \
                code;                                                                                        \
        })
#define ENTER_VOID(path, function, who, ...)                                                                 \
        ({                                                                                                   \
                __auto_type entering = (who);                                                                \
                struct jobs *entered = entering path;                                                        \
                function(entering __VA_ARGS__);                                                              \
                jobs_advance(entered);                                                                       \
        })

#define jobs_join(...) ENTER(, jobs_join, __VA_ARGS__)
#define jobs_rejoin(...) ENTER(, jobs_rejoin, __VA_ARGS__)
#define jobs_hold(who, on) ENTER_VOID(, jobs_hold, who, , on)
#define job_pause(who) ENTER_VOID(->table, job_pause, who)
#define job_resume(who) ENTER_VOID(->table, job_resume, who)
#define member_gone(who, cause) ENTER_VOID(->job->table, member_gone, who, , cause)
#define member_evict(who, by) ENTER_VOID(->job->table, member_evict, who, , by)
#define takeover_forget(...) ENTER(->table, takeover_forget, __VA_ARGS__)
#define step_ready(...) ENTER(->job->table, step_ready, __VA_ARGS__)
#define operation_call(...) ENTER(->job->table, operation_call, __VA_ARGS__)
#define staging_ask(...) ENTER(->job->table, staging_ask, __VA_ARGS__)
#define staging_attach(...) ENTER(->job->table, staging_attach, __VA_ARGS__)
#define memory_offer(...) ENTER(->job->table, memory_offer, __VA_ARGS__)
#define memory_register(...) ENTER(->job->table, memory_register, __VA_ARGS__)
#define memory_unregister(...) ENTER(->job->table, memory_unregister, __VA_ARGS__)
#define plan_begin(...) ENTER(->job->table, plan_begin, __VA_ARGS__)
#define plan_params(...) ENTER(->job->table, plan_params, __VA_ARGS__)
#define plan_buckets(...) ENTER(->job->table, plan_buckets, __VA_ARGS__)
#define plan_commit(...) ENTER(->job->table, plan_commit, __VA_ARGS__)
#define plan_mapped(...) ENTER(->job->table, plan_mapped, __VA_ARGS__)
#define plan_drop(...) ENTER(->job->table, plan_drop, __VA_ARGS__)
#define takeover_plan(...) ENTER(->job->table, takeover_plan, __VA_ARGS__)
#define takeover_staging(...) ENTER(->job->table, takeover_staging, __VA_ARGS__)
#define takeover_told(...) ENTER(->job->table, takeover_told, __VA_ARGS__)
