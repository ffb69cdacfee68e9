/* SPDX-License-Identifier: Apache-2.0 */
/* Shows people the rows of other nodes about their parts in a job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "session/private.h"

static int far_compare(const void *a, const void *b) {
        const struct far_member *one = a, *other = b;

        if (one->unranked != other->unranked)
                return one->unranked ? 1 : -1;
        if (one->rank != other->rank && !one->unranked)
                return one->rank < other->rank ? -1 : 1;
        return one->at < other->at ? -1 : 1;
}

void far_find_members(struct view *view, struct far_members *ret) {
        const ProtobufCMessage *row;
        uint16_t type;
        size_t at = 0, before = 0;

        ret->n = ret->n_spares = 0;
        while ((row = view_next(view, &at, &type)) != NULL && ret->n < 2 * LIMIT_LOCAL) {
                if (type == WIRE__MESSAGE_TYPE__STATUS_MEMBER) {
                        const Wire__StatusMember *member = CAST(Wire__StatusMember, row);

                        ret->n_spares += member->state != NULL && strcmp(member->state, "spare") == 0;
                        ret->member[ret->n++] = (struct far_member){ .rank = member->rank,
                                                                     .unranked = member->unranked,
                                                                     .at = before };
                }
                before = at;
        }
        qsort(ret->member, ret->n, sizeof(ret->member[0]), far_compare);
}

/* The row is the view's own memory, and is sent before anything else is unpacked there. */
void far_send_member(struct view *view, const struct far_member *member, uint32_t job, sessions_row_fn row,
                     void *data) {
        size_t at = member->at;
        uint16_t type;
        Wire__StatusMember *message = (Wire__StatusMember *)(uintptr_t)view_next(view, &at, &type);

        if (message == NULL)
                return;
        SET(*message, job, job);
        message->has_client = false; /* another daemon's number */
        row(data, type, &message->base);
}

/* Whether a wait of another node is shown: one for a member on that node, or for memory. If it waits for
 * members elsewhere, their node says so. */
static bool far_is_shown(const Wire__StatusWait *wait) {
        return wait->what != NULL && wait->host != NULL && strcmp(wait->what, "nodes") != 0 &&
               strcmp(wait->what, "join") != 0 && strcmp(wait->what, "node") != 0;
}

static unsigned far_send_silent(struct view *view, uint32_t job, bool waiting, sessions_row_fn row,
                                void *data) {
        struct job_wait waits[HUB_HOSTS + 1];
        unsigned n = view_silent(view, waiting, waits, HUB_HOSTS + 1);
        uint64_t now = clock_now();

        for (unsigned i = 0; i < n; i++) {
                Wire__StatusWait message = WIRE__STATUS_WAIT__INIT;

                SET(message, job, job);
                message.what = (char *)"node";
                message.host = waits[i].host[0] != '\0' ? (char *)waits[i].host : NULL;
                message.text = (char *)waits[i].text;
                SET(message, since_ms, (now - waits[i].since) / USEC_PER_MSEC);
                row(data, WIRE__MESSAGE_TYPE__STATUS_WAIT, &message.base);
        }
        return n;
}

/* `waiting`: other nodes are waited for, so that a coordinator that does not answer is of interest, too. */
unsigned far_send_waits(struct view *view, uint32_t job, bool waiting, sessions_row_fn row, void *data) {
        const ProtobufCMessage *from;
        unsigned n = 0;
        uint16_t type;
        size_t at = 0;

        while ((from = view_next(view, &at, &type)) != NULL && n < LIMIT_LOCAL) {
                Wire__StatusWait *message = (Wire__StatusWait *)(uintptr_t)from;

                if (type != WIRE__MESSAGE_TYPE__STATUS_WAIT || !far_is_shown(message))
                        continue;
                SET(*message, job, job);
                row(data, type, &message->base);
                n++;
        }
        return n + far_send_silent(view, job, waiting && n == 0, row, data);
}

/* The node whose account of the job is passed on: one that waits, or else the first one. */
static bool far_find_job(struct view *view, size_t *ret) {
        const ProtobufCMessage *row;
        size_t at = 0, before = 0;
        bool found = false;
        uint16_t type;

        while ((row = view_next(view, &at, &type)) != NULL) {
                const Wire__StatusJob *job = CAST(Wire__StatusJob, row);

                if (type == WIRE__MESSAGE_TYPE__STATUS_JOB && job->name != NULL && job->state != NULL &&
                    (!found || strcmp(job->state, "stalled") == 0)) {
                        *ret = before;
                        found = true;
                }
                before = at;
        }
        return found;
}

/* Rows of a kind that follow one node's account of the job. */
static unsigned far_send_own(struct view *view, size_t at, uint16_t wanted, const char *what, uint32_t job,
                             sessions_row_fn row, void *data) {
        const ProtobufCMessage *from;
        unsigned n = 0;
        uint16_t type;

        view_next(view, &at, &type);
        while ((from = view_next(view, &at, &type)) != NULL && type != WIRE__MESSAGE_TYPE__STATUS_JOB) {
                if (type != wanted)
                        continue;
                if (type == WIRE__MESSAGE_TYPE__STATUS_PLAN) {
                        SET(*(Wire__StatusPlan *)(uintptr_t)from, job, job);
                } else {
                        Wire__StatusWait *wait = (Wire__StatusWait *)(uintptr_t)from;

                        if (wait->what == NULL || strcmp(wait->what, what) != 0)
                                continue;
                        SET(*wait, job, job);
                }
                row(data, type, from);
                n++;
        }
        return n;
}

/* Says how many members a forming job has, and which hosts have none. */
static void far_note_missing(struct view *view, Wire__StatusJob *job, const struct far_members *members,
                             char *text, size_t size) {
        char empty[512];

        if (strcmp(job->state, "forming") != 0)
                return;
        view_empty(view, empty, sizeof(empty));
        snprintf(text, size, "%u of %u members%s%s", members->n - members->n_spares, job->world,
                 empty[0] != '\0' ? "; " : "", empty);
        job->text = text;
}

bool far_send_job(struct view *view, uint32_t job, sessions_row_fn row, void *data) {
        struct far_members members;
        char text[600];
        uint16_t type;
        size_t at, first;

        if (!far_find_job(view, &first))
                return false;
        far_find_members(view, &members);
        at = first;
        Wire__StatusJob *message = (Wire__StatusJob *)(uintptr_t)view_next(view, &at, &type);
        SET(*message, job, job);
        far_note_missing(view, message, &members, text, sizeof(text));
        row(data, type, &message->base);
        for (unsigned i = 0; i < members.n; i++)
                far_send_member(view, &members.member[i], job, row, data);
        far_send_own(view, first, WIRE__MESSAGE_TYPE__STATUS_PLAN, NULL, job, row, data);
        if (far_send_waits(view, job, false, row, data) == 0)
                far_send_own(view, first, WIRE__MESSAGE_TYPE__STATUS_WAIT, "nodes", job, row, data);
        far_send_own(view, first, WIRE__MESSAGE_TYPE__STATUS_WAIT, "join", job, row, data);
        return true;
}
