/* SPDX-License-Identifier: Apache-2.0 */
#include "job/plan/position.h"

#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "gradsync.pb-c.h"
#include "job/data.h"
#include "job/plan/plan.h"

static struct journal_track position_of_track(const struct job *job, uint32_t track) {
        const struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if (plan->agreed && plan->track == track)
                        return (struct journal_track){ plan->ordinal, track,
                                                       machine_before(job, plan->ordinal) };
        return (struct journal_track){ JOURNAL_NO_PLAN, track, machine_committed(job, track) };
}

/* A process that takes the member's place has a secret of its own. */
static void position_name(struct member *member) {
        if (sha256_is_none(&member->secret) &&
            getrandom(&member->secret, sizeof(member->secret), 0) != sizeof(member->secret))
                member->secret = (struct sha256){ 0 }; /* no process comes back with that one */
}

static struct journal_member position_of_member(const struct job *job, const struct member *member) {
        const struct report_member *said = machine_member(job, member->id);
        const struct membership_request *wish = &said->request;

        return (struct journal_member){
                .id = member->stable,
                .secret = member->secret,
                .rank = member->rank,
                .slot = member->local_rank,
                .flags = (wish->has_rank ? JOURNAL_HAS_RANK : 0) | (wish->has_slot ? JOURNAL_HAS_SLOT : 0) |
                         (said->behind ? JOURNAL_LACKS : 0),
                .min_world = wish->min_world,
                .max_world = wish->max_world,
                .pid = (int32_t)member->pid,
                .grace = wish->grace,
                .identity = wish->identity,
                .instance = wish->instance,
        };
}

/* The next daemon awaits only members that are not gone, and tells the others apart: a place that was left is
 * not kept. */
static void position_mark(struct journal_member *kept, const struct member *member) {
        if (member->cause == WIRE__CAUSE__CAUSE_NONE)
                return;
        kept->flags |= member->cause == WIRE__CAUSE__LEAVING ? JOURNAL_LEFT : JOURNAL_LOST;
        kept->secret = (struct sha256){ 0 };
}

static const struct journal_member *position_find(const struct journal_generation *latest, uint64_t id) {
        for (uint32_t i = 0; latest != NULL && i < latest->n_members; i++)
                if (latest->member[i].id == id)
                        return &latest->member[i];
        return NULL;
}

/* The machine forgets members that are gone; of these the journal knows what they had asked for. */
static void position_put(struct journal_generation *to, const struct member *member) {
        const struct job *job = member->job;
        struct journal_member *kept = &to->member[to->n_members];

        if (machine_member(job, member->id) != NULL) {
                *kept = position_of_member(job, member);
        } else {
                const struct journal_member *before =
                        position_find(journal_latest(job->kept), member->stable);

                if (before == NULL)
                        return;
                *kept = *before;
                kept->rank = member->rank;
                kept->slot = member->local_rank;
        }
        position_mark(kept, member);
        to->n_members++;
}

struct situation {
        struct generation number;
        bool ended;
        uint32_t since;
        struct journal_ended operations;
};

static void position_write(struct job *job, const struct situation *situation) {
        const struct node *node = &job->machine.node;
        struct journal_generation *to = journal_begin_generation(job->kept);

        to->world = job->world;
        to->ended = situation->ended;
        to->since = situation->since;
        to->operations = situation->operations;
        to->unsynced = node->unsynced;
        to->history = node->history;
        if (!job->cluster)
                to->history.term = 0;
        for (uint32_t track = TRACK_STEP; track < node->n_tracks; track++)
                to->steps += node->track[track].committed;
        nodeset_copy((struct nodeset){ to->set, NODESET_WORDS }, node->set);
        for (uint32_t local = 0; local < job->n_local; local++)
                position_put(to, job->local[local]);
        for (uint32_t track = TRACK_STEP; track < node->n_tracks; track++)
                to->track[to->n_tracks++] = position_of_track(job, track);
        journal_enter(job->kept, situation->number);
}

static void position_claim(struct job *job) {
        const struct journal_about about = { .incarnation = job->incarnation,
                                             .token = job->token.digest,
                                             .cluster = job->cluster };

        if (job->kept != NULL || job->lost_with_daemon || job->table->journal == NULL)
                return;
        job->kept = journal_add_job(job->table->journal, job->uid, job->name, &about, job->max_world);
        if (job->kept == NULL)
                position_give_up(job);
}

void position_enter(struct job *job, bool resumed) {
        const struct journal_generation *before = journal_latest(job->kept);

        position_claim(job);
        if (job->kept == NULL)
                return;
        for (uint32_t local = 0; local < job->n_local; local++)
                position_name(job->local[local]);
        /* Generations of jobs of one daemon have no term. */
        position_write(job, &(struct situation){
                                    .number = job->cluster ? job->machine.node.generation
                                                           : (struct generation){ .number = job->generation },
                                    .since = resumed && before != NULL ? before->since : job->generation,
                                    .operations = {
                                            .number = machine_committed(job, TRACK_OPERATION),
                                            .sequence = job->n_local > 0 ? job->local[0]->operation.next : 0,
                                            .failed = resumed && journal_ended_of(job->kept).failed,
                                    } });
}

/* The machine says nothing of this generation: members have not heard of the one in which the node is, or the
 * job is being taken back. */
static void position_amend(struct job *job, const struct journal_generation *now, bool ended) {
        struct journal_generation *to = journal_begin_generation(job->kept);

        memcpy(to, now, journal_generation_bytes(now->n_members));
        to->number.number = 0;
        to->ended |= ended;
        for (uint32_t i = 0; i < to->n_members; i++)
                for (uint32_t local = 0; local < job->n_local; local++)
                        if (job->local[local]->stable == to->member[i].id)
                                position_mark(&to->member[i], job->local[local]);
        journal_enter(job->kept, now->number);
}

static void position_write_again(struct job *job, bool ended) {
        const struct journal_generation *now = journal_latest(job->kept);

        if (now == NULL || job->generation != now->number.number)
                return;
        if (job->takeover != NULL || job->machine.node.generation.number != job->generation)
                position_amend(job, now, ended);
        else
                position_write(job, &(struct situation){ .number = now->number,
                                                         .ended = ended || now->ended,
                                                         .since = now->since,
                                                         .operations = now->operations });
}

void position_keep(struct job *job) {
        position_write_again(job, false);
}

void position_end(struct job *job) {
        position_write_again(job, true);
}

void position_commit(struct plan *plan) {
        struct job *job = plan->job;
        const struct journal_generation *now = journal_latest(job->kept);

        journal_commit(plan->kept, plan->step);
        if (now != NULL && now->unsynced && !job->machine.node.unsynced)
                position_keep(job);
}

void position_forget(struct job *job) {
        struct journal *journal = job->table->journal;
        struct plan *plan;

        journal_drop_job(journal, job->kept);
        job->kept = NULL;
        list_for_each(plan, &job->plans, link) {
                journal_drop(journal, plan->kept);
                plan->kept = NULL;
        }
}

void position_give_up(struct job *job) {
        struct log_context context = LOG_CONTEXT_OF(job);

        position_forget(job);
        job->lost_with_daemon = true;
        if (flood_admits(FLOOD_JOBS, job->uid, clock_now()))
                log_write(LOG_WARNING, &context,
                          "job '%s': the journal has no more room for jobs of uid %u; a restart of this "
                          "gradsyncd would end the job",
                          job->name, (unsigned)job->uid);
}
