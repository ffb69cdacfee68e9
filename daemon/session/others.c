/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the other nodes of jobs that span daemons, and searches their answers. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "session/private.h"

/* The age of an answer by which something is decided. */
#define RECENT (5 * USEC_PER_SEC)

static struct sessions *others_sessions(const struct job *job) {
        return job_events_data(job);
}

/* Its own waits for other nodes, as bytes of STATUS_WAIT. */
static size_t others_pack_waits(struct job *job, struct sessions *sessions, uint8_t out[HUB_WAITS]) {
        struct job_wait waits[LIMIT_LOCAL];
        unsigned n = job_waits(job, waits, LIMIT_LOCAL), said = 0;
        uint64_t now = clock_now();
        size_t used = 0;

        for (unsigned i = 0; i < n && said < JOB_WANTS; i++) {
                struct wait_parts parts;
                Wire__StatusWait row;

                if (waits[i].kind != WAIT_NODES)
                        continue;
                wait_row(job, &waits[i], now, NULL, &parts, &row);
                row.text = row.call = NULL;
                row.n_blocked = 0; /* a node that needs them asks */
                ssize_t size = codec_pack(sessions->frame, WIRE__MESSAGE_TYPE__STATUS_WAIT, 0, 0, &row.base);
                if (size < 0 || used + (size_t)size > HUB_WAITS)
                        break;
                memcpy(out + used, sessions->frame, (size_t)size);
                used += (size_t)size;
                said++;
        }
        return used;
}

static void others_ask(struct job *job, struct view *view) {
        uint8_t waits[HUB_WAITS];
        size_t bytes = others_pack_waits(job, others_sessions(job), waits);
        uint32_t id = view_begin(view);

        view_asked(view, id, machine_ask(job, id, waits, bytes));
}

static struct view *others_get_view(const struct job *job) {
        return elsewhere_get(others_sessions(job)->elsewhere, job->uid, job->name, job->incarnation);
}

struct view *others_view(const struct job *job) {
        return elsewhere_find(others_sessions(job)->elsewhere, job->uid, job->name, job->incarnation);
}

/* If there is no memory for a view, nothing is known of other nodes, and no caller waits for it. */
bool others_inquire(struct job *job, uint64_t after) {
        struct view *view = others_get_view(job);

        if (view == NULL || view_is_of(view, after))
                return true;
        if (!view_is_coming(view))
                others_ask(job, view);
        return view_is_of(view, after);
}

/* Whether one of the missing members is blocked in something else, according to this row of its node. */
static bool others_take_entangled(const Wire__StatusWait *row, const struct job_wait *wait,
                                  const struct job_wait *missing, unsigned n, struct entangled *ret) {
        if (row->what == NULL || strcmp(row->what, "nodes") != 0 || row->call == NULL ||
            !wait_row_want(row, &ret->in) ||
            (ret->in.what == wait->purpose &&
             (wait->purpose == WAIT_OPERATION || ret->in.plan == wait->plan)))
                return false;
        for (unsigned i = 0; i < n; i++)
                for (size_t k = 0; k < row->n_blocked; k++) {
                        if (missing[i].rank != row->blocked[k] || missing[i].rank == UINT32_MAX)
                                continue;
                        ret->rank = missing[i].rank;
                        ret->pid = missing[i].pid;
                        ret->traced = strcmp(missing[i].process_state, "traced") == 0;
                        snprintf(ret->host, sizeof(ret->host), "%s", missing[i].host);
                        snprintf(ret->call, sizeof(ret->call), "%s", row->call);
                        snprintf(ret->lacks, sizeof(ret->lacks), "%s", missing[i].parameter);
                        return true;
                }
        return false;
}

unsigned others_blame(struct job *job, const struct job_wait *wait, struct job_wait *waits, unsigned max) {
        return view_blame(others_view(job), wait, waits, max);
}

bool others_entangled(struct job *job, const struct job_wait *wait, uint64_t after, struct entangled *ret) {
        uint64_t recent = clock_now() - RECENT;
        struct view *view = others_view(job);
        struct job_wait missing[ELSEWHERE_NAMED];
        const ProtobufCMessage *row;
        uint16_t type;
        size_t at = 0;

        if (view == NULL || !view_is_of(view, recent > after ? recent : after))
                return false;
        unsigned n = view_blame(view, wait, missing, ELSEWHERE_NAMED);
        while (n > 0 && (row = view_next(view, &at, &type)) != NULL)
                if (type == WIRE__MESSAGE_TYPE__STATUS_WAIT &&
                    others_take_entangled(CAST(Wire__StatusWait, row), wait, missing, n, ret))
                        return true;
        return false;
}

/* The host of a member that a node has shown when it could be asked last. */
static bool others_find_host(struct view *view, const struct membership_loss *loss, char *text, size_t size) {
        const ProtobufCMessage *row;
        uint16_t type;
        size_t at = 0;

        while ((row = view_next(view, &at, &type)) != NULL) {
                const Wire__StatusMember *member = CAST(Wire__StatusMember, row);

                if (type != WIRE__MESSAGE_TYPE__STATUS_MEMBER || member->host == NULL || !member->has_rank ||
                    member->rank != loss->rank || member->pid != loss->pid || strlen(member->host) >= size)
                        continue;
                snprintf(text, size, "%s", member->host);
                return true;
        }
        return false;
}

void others_host_of(struct job *job, const struct membership_loss *loss, char *text, size_t size) {
        struct view *view = job->cluster ? others_view(job) : NULL;
        struct job_wait silent[HUB_HOSTS];
        size_t used = 0;

        text[0] = '\0';
        if (view == NULL || others_find_host(view, loss, text, size) ||
            loss->cause != WIRE__CAUSE__UNREACHABLE)
                return;
        unsigned n = view_silent(view, false, silent, HUB_HOSTS);
        for (unsigned i = 0; i < n && used < size; i++)
                used += (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? " or " : "",
                                         silent[i].host);
        if (used >= size)
                snprintf(text, size, "one of %u hosts", n);
}

static bool others_counts(const Wire__StatusMember *member) {
        return member->state == NULL || strcmp(member->state, "spare") != 0;
}

void others_missing(struct job *job, char *text, size_t size) {
        struct view *view = job->cluster ? others_view(job) : NULL;
        const struct member *member;
        const ProtobufCMessage *row;
        char empty[512];
        unsigned here = 0;
        uint16_t type;
        size_t at = 0;

        text[0] = '\0';
        if (view == NULL || !view_is_of(view, 1) || job->state != JOB_FORMING)
                return;
        list_for_each(member, &job->members, link)
                here += !member->spare;
        while ((row = view_next(view, &at, &type)) != NULL)
                here += type == WIRE__MESSAGE_TYPE__STATUS_MEMBER &&
                        others_counts(CAST(Wire__StatusMember, row));
        view_empty(view, empty, sizeof(empty));
        snprintf(text, size, "%u of %u members%s%s", here, job->max_world, empty[0] != '\0' ? "; " : "",
                 empty);
}

struct wanted {
        struct sessions *sessions;
        const struct session *viewer;
        const char *job;
        uint64_t after;
        bool ask;
        unsigned open;
};

struct job *others_find_job(const struct sessions *sessions, uid_t uid, const char *name,
                            uint64_t incarnation) {
        struct job *job;

        list_for_each(job, &sessions->config.jobs->list, link)
                if (job->cluster && job->uid == uid && job->incarnation == incarnation &&
                    strcmp(job->name, name) == 0)
                        return job;
        return NULL;
}

static bool others_awaits(const struct view *view, uint64_t after) {
        return view != NULL && view_is_coming(view) && !view_is_of(view, after);
}

/* A job whose coordinator is here; if it has a node here, that asks. */
static void others_refresh_coordinated(void *to, uint64_t number, uid_t uid, const char *name,
                                       uint64_t incarnation) {
        struct wanted *wanted = to;
        const struct sessions_cluster *cluster = &wanted->sessions->cluster;

        if (!session_sees(wanted->viewer, uid) || !status_asks_for(wanted->job, uid, name) ||
            others_find_job(wanted->sessions, uid, name, incarnation) != NULL)
                return;
        struct view *view = elsewhere_get(wanted->sessions->elsewhere, uid, name, incarnation);
        if (wanted->ask && view != NULL && !view_is_of(view, wanted->after) && !view_is_coming(view)) {
                uint32_t id = view_begin(view);

                view_asked(view, id, cluster->ask(cluster->data, uid, name, incarnation, id, NULL, 0));
        }
        wanted->open += others_awaits(view, wanted->after);
}

unsigned others_refresh(struct sessions *sessions, const struct session *viewer, const char *asked,
                        uint64_t after, bool ask) {
        struct wanted wanted = { sessions, viewer, asked, after, ask, 0 };
        struct job *job;

        list_for_each(job, &sessions->config.jobs->list, link)
                if (job->cluster && job->state != JOB_LOST && session_sees(viewer, job->uid) &&
                    status_asks_for(asked, job->uid, job->name)) {
                        if (ask)
                                others_inquire(job, after);
                        wanted.open += others_awaits(others_view(job), after);
                }
        if (sessions->cluster.each != NULL)
                sessions->cluster.each(sessions->cluster.data, others_refresh_coordinated, &wanted);
        return wanted.open;
}
