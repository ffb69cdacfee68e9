/* SPDX-License-Identifier: Apache-2.0 */
/* Fills what people see of a job. See view.h. */
#include "job/view.h"

#include "gradsync.pb-c.h"
#include "job/plan/plan.h"

/* Mean share of its time that the member was blocked, over its plans, and the sum of that time. */
static double view_exposed(const struct member *member, uint64_t *ret_us) {
        struct plan *plan;
        uint64_t times[2];
        double sum = 0;
        unsigned n = 0;

        *ret_us = 0;
        if (member->owner == NULL || member->state != MEMBER_ACTIVE)
                return -1;
        list_for_each(plan, &member->job->plans, link) {
                if (!plan_read_times(plan, member->local, times))
                        continue;
                sum += (double)times[0] / (double)times[1];
                *ret_us += times[0] / 1000;
                n++;
        }
        return n > 0 ? sum / n : -1;
}

static double view_job_exposed(const struct job *job) {
        struct member *member;
        double sum = 0;
        unsigned n = 0;
        uint64_t us;

        list_for_each(member, &job->members, link) {
                double share = view_exposed(member, &us);

                if (share < 0)
                        continue;
                sum += share;
                n++;
        }
        return n > 0 ? sum / n : -1;
}

static const char *view_job_state(const struct job *job, const struct job_view *view, uint64_t now) {
        switch (job->state) {
        case JOB_FORMING: return "forming";
        case JOB_REPLACING: return "replacing";
        case JOB_LOST: return job->loss.cause == WIRE__CAUSE__LEAVING ? "ended" : "lost";
        default: break;
        }
        if (job_is_paused(job))
                return "paused";
        return view->n_waits > 0 && now - view->wait[0].since >= job->table->config.stall_notice ? "stalled"
                                                                                                 : "running";
}

void view_job(struct job *job, uint64_t now, struct job_view *ret) {
        bool blamed = job->blame.step != 0 && job->blame.searched == NULL;
        struct plan *plan;

        ret->n_waits = job_waits(job, ret->wait, LIMIT_LOCAL);
        ret->id = job->id;
        ret->generation = job->generation;
        ret->world = job->state == JOB_FORMING ? job->max_world : job->world;
        ret->uid = job->uid;
        ret->name = job->name;
        ret->state = view_job_state(job, ret, now);
        ret->text = job->loss_text;
        ret->incarnation = job->incarnation;
        ret->step = job->last_step;
        ret->bytes_reduced = job->bytes_reduced;
        ret->void_steps = job->void_steps;
        ret->operations = job->operations;
        ret->nonfinite = job->nonfinite;
        ret->buckets = 0;
        ret->bytes = 0;
        list_for_each(plan, &job->plans, link)
                if (plan->agreed) {
                        ret->buckets += plan->reference->n_buckets;
                        ret->bytes += plan->reference->payload;
                }
        ret->step_rate = hist_rate(&job->steps, now);
        ret->norm = job->norm;
        ret->exposed = view_job_exposed(job);
        ret->totals = job->record != NULL ? &job->record->totals : NULL;
        ret->blame = blamed ? &job->blame : NULL;
        ret->recovery = &job->recovery;
}

static bool view_is_late(const struct member *member, const struct job_view *view) {
        for (unsigned i = 0; i < view->n_waits; i++)
                if (view->wait[i].member == member)
                        return true;
        return false;
}

/* A member waits once it has sent everything that it can in some open step. */
static const char *view_doing(const struct member *member) {
        bool mapped = false, waiting = member->operation.pending;
        struct plan *plan;

        list_for_each(plan, &member->job->plans, link) {
                const struct plan_part *part = &plan->part[member->local];

                mapped |= plan->agreed && part->state == PART_MAPPED;
                waiting |= plan_is_open(plan) && part->n_ready == plan->reference->n_buckets;
        }
        return waiting ? "waiting" : mapped ? "computing" : "planning";
}

static const char *view_state(const struct member *member, bool late) {
        switch (member->state) {
        case MEMBER_JOINING: return member_waits(member) ? "spare" : "joining";
        case MEMBER_LEFT: return "left";
        case MEMBER_LOST: return "lost";
        default: break;
        }
        return late ? "late" : view_doing(member);
}

static struct member_view view_member(const struct member *member, const struct job_view *view) {
        bool joining = member->state == MEMBER_JOINING, late = !joining && view_is_late(member, view);
        uint64_t exposed_us;
        double exposed = view_exposed(member, &exposed_us);

        return (struct member_view){
                .rank = member->rank,
                .local_rank = member->local_rank,
                .id = member->stable > 0 ? member->stable : member_id_count(member->id),
                .client = member->client,
                .step = member->last_step,
                .pid = member->pid,
                .program = member->program,
                .state = view_state(member, late),
                .active = member->state == MEMBER_ACTIVE,
                .joining = joining,
                .late = late,
                .has_late_us = view->totals != NULL && !joining,
                .exposed = exposed,
                .exposed_us = exposed_us,
                .late_us = view->totals != NULL && !joining ? view->totals->late_us[member->local] : 0,
        };
}

void view_members(const struct job *job, const struct job_view *view, view_member_fn fn, void *data) {
        struct member_view seen;
        struct member *member;

        for (uint32_t local = 0; job->state != JOB_FORMING && local < job->n_local; local++) {
                seen = view_member(job->local[local], view);
                fn(data, &seen);
        }
        list_for_each(member, &job->members, link) {
                if (member->state != MEMBER_JOINING)
                        continue;
                seen = view_member(member, view);
                fn(data, &seen);
        }
}

void view_plans(const struct job *job, view_plan_fn fn, void *data) {
        struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if (plan->agreed)
                        fn(data, &(struct plan_view){
                                         .ordinal = plan->ordinal,
                                         .params = plan->reference->n_params,
                                         .buckets = plan->reference->n_buckets,
                                         .step = plan->step,
                                         .bytes = plan->reference->payload,
                                         .arena_bytes = plan->reference->arena_bytes,
                                         .reduce = plan->reference->reduce,
                                         .open = plan_unit(plan) != UNIT_IDLE,
                                 });
}
