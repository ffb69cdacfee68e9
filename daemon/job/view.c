/* SPDX-License-Identifier: Apache-2.0 */
/* States, waits and shares of time, as people are shown them. See view.h. */
#include "job/view.h"

#include "gradsync.pb-c.h"
#include "job/plan/plan.h"

double view_exposed(const struct member *member, uint64_t *ret_us) {
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

const char *view_state(struct job *job, uint64_t now) {
        struct job_view view;

        view.n_waits = job_waits(job, view.wait, 1);
        return view_job_state(job, &view, now);
}

static bool view_engine(const struct job *job, struct engine_view *ret) {
        struct engine *engine = job->table->config.engine;

        return engine != NULL && engine->ops->view != NULL && job->comm.id != 0 &&
               engine->ops->view(engine, job->comm.id, ret);
}

void view_job(struct job *job, uint64_t now, struct job_view *ret) {
        struct plan *plan;

        ret->n_waits = job_waits(job, ret->wait, LIMIT_LOCAL);
        ret->state = view_job_state(job, ret, now);
        ret->buckets = 0;
        ret->bytes = 0;
        list_for_each(plan, &job->plans, link)
                if (plan->agreed) {
                        ret->buckets += plan->reference->n_buckets;
                        ret->bytes += plan->reference->payload;
                }
        ret->step_rate = hist_rate(&job->steps, now);
        ret->exposed = view_job_exposed(job);
        ret->has_engine = view_engine(job, &ret->engine);
}

static bool view_is_late(const struct member *member, const struct job_view *view) {
        for (unsigned i = 0; i < view->n_waits; i++)
                if (view->wait[i].member == member)
                        return true;
        return false;
}

/* The job lacks a member: what this one has begun cannot end before another one has its place. */
static bool view_waits_for_place(const struct member *member) {
        return member->job->state == JOB_REPLACING &&
               (member->waits_in == member->job->generation || member->operation.deferred != 0);
}

/* A member waits once it has sent everything that it can in some open step. */
static const char *view_doing(const struct member *member) {
        bool mapped = false, waiting = member->operation.pending || view_waits_for_place(member);
        struct plan *plan;

        list_for_each(plan, &member->job->plans, link) {
                const struct plan_part *part = &plan->part[member->local];

                waiting |= !plan->agreed && part->request != 0 && member->job->state == JOB_REPLACING;
                mapped |= plan->agreed && part->state == PART_MAPPED;
                waiting |= plan_is_open(plan) && part->n_ready == plan->reference->n_buckets;
        }
        return waiting ? "waiting" : mapped ? "computing" : "planning";
}

static const char *view_member_state(const struct member *member, bool late) {
        switch (member->state) {
        case MEMBER_JOINING: return member_waits(member) ? "spare" : "joining";
        case MEMBER_LEFT: return "left";
        case MEMBER_LOST: return "lost";
        default: break;
        }
        return late ? "late" : view_doing(member);
}

struct member_view view_member(const struct member *member, const struct job_view *job) {
        struct member_view view = { .late = member->state != MEMBER_JOINING && view_is_late(member, job) };

        view.state = view_member_state(member, view.late);
        view.exposed = view_exposed(member, &view.exposed_us);
        return view;
}
