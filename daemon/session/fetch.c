/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TRACE of other nodes of a job: a list of them, or the records of one of them. A node's answer goes to the
 * client as it comes, and is not kept. A short request makes other daemons send much, on connections that
 * heartbeats need, too. So a user has only a few questions open, and each counts for some time at least;
 * further ones wait for their turn.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "session/private.h"

#define FETCHES 16u                       /* of one user, those that wait included */
#define FETCHES_OPEN 4u                   /* of one user, without those that wait */
#define FETCH_COUNTS (50 * USEC_PER_MSEC) /* for so long, though its answer comes sooner */

_Static_assert(HUB_NODES <= LIMIT_TRACE_NODES, "all of them fit a frame");

struct fetch_node {
        Wire__TraceNode row; /* as it says: by the coordinator's clock */
        char host[HUB_HOST + 1];
};

enum fetch_state {
        FETCH_WAITING, /* for its turn */
        FETCH_ASKED,
        FETCH_SPENT, /* it is answered, and counts still */
};

struct fetch {
        struct list link;
        enum fetch_state state;
        struct sessions *sessions;
        struct session *session; /* NULL: it is gone */
        uid_t uid;
        uint32_t request, id;
        struct loop_timer *timer; /* ASKED: the coordinator is silent; SPENT: it counts no more */
        uint64_t begun;
        bool nodes; /* these, or that one's record: */
        uint32_t wanted;
        char job[LIMIT_NAME + 16];
        bool found;
        struct charge charge;
        uint32_t n;
        struct fetch_node node[HUB_NODES];
};

static void fetch_free(struct fetch *fetch) {
        list_remove(&fetch->link);
        loop_timer_free(fetch->timer);
        charge_release(&fetch->charge);
        free(fetch);
}

static void fetch_set_state(struct fetch *fetch, enum fetch_state state) {
        assert(state > fetch->state);
        fetch->state = state;
}

/* The request is answered, or its client is gone. */
static void fetch_spend(struct fetch *fetch) {
        uint64_t over = fetch->begun + FETCH_COUNTS, now = clock_now();

        fetch_set_state(fetch, FETCH_SPENT);
        fetch->session = NULL;
        loop_timer_arm(fetch->timer, over > now ? over - now : 0);
}

/* From the coordinator's clock to the one of this daemon, if both are known. */
static void fetch_set_clock(const struct sessions_cluster *cluster, Wire__TraceNode *row) {
        uint64_t round_trip;
        int64_t ahead;

        if (row->self) {
                SET(*row, clock_us, 0);
                SET(*row, round_trip_us, 0);
        } else if (row->has_clock_us && cluster->clock(cluster->data, &ahead, &round_trip)) {
                SET(*row, clock_us, (int64_t)((uint64_t)row->clock_us - (uint64_t)ahead));
                SET(*row, round_trip_us, row->round_trip_us + round_trip);
        } else {
                row->has_clock_us = row->has_round_trip_us = false;
        }
}

static void fetch_end(struct fetch *fetch) {
        const struct sessions_cluster *cluster = &fetch->sessions->cluster;
        Wire__TraceEnd end = WIRE__TRACE_END__INIT;
        Wire__TraceNode *nodes[HUB_NODES];

        SET(end, found, fetch->found);
        SET(end, now_us, clock_now());
        end.node = nodes;
        end.n_node = fetch->n;
        for (uint32_t i = 0; i < fetch->n; i++) {
                nodes[i] = &fetch->node[i].row;
                fetch_set_clock(cluster, nodes[i]);
        }
        session_send(fetch->session, WIRE__MESSAGE_TYPE__TRACE_END, fetch->request, &end.base);
        fetch_spend(fetch);
}

static void fetch_add_node(struct fetch *fetch, const Wire__TraceNode *from) {
        struct fetch_node *node = &fetch->node[fetch->n];

        if (fetch->n == HUB_NODES)
                return;
        fetch->n++;
        node->row = *from;
        snprintf(node->host, sizeof(node->host), "%s", from->host != NULL ? from->host : "");
        node->row.host = node->host;
}

static void fetch_take_rows(struct fetch *fetch, const void *rows, size_t bytes) {
        struct elsewhere *elsewhere = fetch->sessions->elsewhere;
        const ProtobufCMessage *row;
        uint16_t type;
        size_t at = 0;

        while ((row = elsewhere_decode(elsewhere, rows, bytes, &at, &type)) != NULL) {
                if (type == WIRE__MESSAGE_TYPE__TRACE_STEP) {
                        session_send(fetch->session, type, fetch->request, row);
                        fetch->found = true;
                } else if (type == WIRE__MESSAGE_TYPE__TRACE_END) {
                        const Wire__TraceEnd *end = CAST(Wire__TraceEnd, row);

                        for (size_t i = 0; i < end->n_node; i++)
                                fetch_add_node(fetch, end->node[i]);
                }
        }
}

bool fetch_told(struct sessions *sessions, const struct hub_told *told) {
        struct fetch *fetch;

        list_for_each(fetch, &sessions->fetches, link) {
                if (fetch->state != FETCH_ASKED || fetch->id != told->id)
                        continue;
                if (told->bytes > 0)
                        fetch_take_rows(fetch, told->rows, told->bytes);
                if (told->last)
                        fetch_end(fetch);
                return true;
        }
        return false;
}

static struct job *fetch_find_job(const struct session *session, const char *asked) {
        struct job *job;

        list_for_each(job, &session->sessions->config.jobs->list, link)
                if (job->cluster && job->state != JOB_LOST && session_sees(session, job->uid) &&
                    job_is_named(asked, job->uid, job->name))
                        return job;
        return NULL;
}

/* A question about a job that has no node here. */
struct fetch_question {
        const struct session *session;
        struct fetch *fetch;
        const void *bytes;
        size_t size;
        bool found, asked;
};

static void fetch_ask_coordinated(void *to, uint64_t number, uid_t uid, const char *name,
                                  uint64_t incarnation) {
        struct fetch_question *question = to;
        const struct sessions_cluster *cluster = &question->session->sessions->cluster;

        if (question->found || !session_sees(question->session, uid) ||
            !job_is_named(question->fetch->job, uid, name))
                return;
        question->found = true;
        question->fetch->found = question->fetch->nodes;
        question->asked = cluster->ask(cluster->data, uid, name, incarnation, question->fetch->id,
                                       question->bytes, question->size);
}

/* Asks. The answer may come before it returns. False: no node could be asked. */
static bool fetch_ask(struct fetch *fetch) {
        struct sessions *sessions = fetch->sessions;
        struct job *job = fetch_find_job(fetch->session, fetch->job);
        struct fetch_question question = { .session = fetch->session, .fetch = fetch };
        Wire__Trace asked = WIRE__TRACE__INIT;
        uint8_t bytes[HUB_WAITS];

        SET_IF(asked, nodes, fetch->nodes, true);
        SET_IF(asked, node, !fetch->nodes, fetch->wanted);
        ssize_t size = codec_pack(sessions->frame, WIRE__MESSAGE_TYPE__TRACE, 0, 0, &asked.base);
        if (size < 0 || (size_t)size > sizeof(bytes))
                return false;
        memcpy(bytes, sessions->frame, (size_t)size);
        if (job != NULL) {
                Wire__TraceNode self = WIRE__TRACE_NODE__INIT;

                fetch->found = fetch->nodes;
                SET(self, node, job->machine.attachment.address);
                SET(self, self, true);
                self.host = (char *)(uintptr_t)sessions->cluster.host;
                if (fetch->nodes)
                        fetch_add_node(fetch, &self);
                return machine_ask(job, fetch->id, bytes, (size_t)size);
        }
        question.bytes = bytes;
        question.size = (size_t)size;
        if (sessions->cluster.each != NULL)
                sessions->cluster.each(sessions->cluster.data, fetch_ask_coordinated, &question);
        return question.asked;
}

/* Those whose turn it is, in the order in which they have come. */
static void fetch_ask_next(struct sessions *sessions, uid_t uid) {
        struct fetch *fetch;
        unsigned open = 0;

        list_for_each(fetch, &sessions->fetches, link)
                open += fetch->uid == uid && fetch->state != FETCH_WAITING;
        list_for_each(fetch, &sessions->fetches, link) {
                if (fetch->uid != uid || fetch->state != FETCH_WAITING || open == FETCHES_OPEN)
                        continue;
                open++;
                fetch_set_state(fetch, FETCH_ASKED);
                fetch->id = elsewhere_number(sessions->elsewhere);
                fetch->begun = clock_now();
                loop_timer_arm(fetch->timer, ELSEWHERE_WAIT);
                if (!fetch_ask(fetch) && fetch->state == FETCH_ASKED)
                        fetch_end(fetch);
        }
}

static void fetch_on_time(void *data) {
        struct fetch *fetch = data;
        struct sessions *sessions = fetch->sessions;
        uid_t uid = fetch->uid;

        if (fetch->state == FETCH_ASKED)
                fetch_end(fetch);
        else
                fetch_free(fetch);
        fetch_ask_next(sessions, uid);
}

void fetch_forget(const struct session *session) {
        struct fetch *fetch, *spare;

        list_for_each_safe(fetch, spare, &session->sessions->fetches, link)
                if (fetch->session == session && fetch->state == FETCH_WAITING)
                        fetch_free(fetch);
                else if (fetch->session == session)
                        fetch_spend(fetch);
}

void fetch_drop_all(struct sessions *sessions) {
        while (!list_empty(&sessions->fetches))
                fetch_free(list_entry(sessions->fetches.next, struct fetch, link));
}

int fetch_begin(struct session *session, struct request *request, const Wire__Trace *trace) {
        struct sessions *sessions = session->sessions;
        const struct fetch *other;
        struct fetch *fetch;
        unsigned n = 0;

        list_for_each(other, &sessions->fetches, link)
                n += other->uid == session->peer.uid && other->state != FETCH_SPENT;
        if (n >= FETCHES)
                return refuse(&request->refusal, WIRE__CODE__QUOTA,
                              "%u questions of uid %u to other nodes are open; wait for an answer", n,
                              (unsigned)session->peer.uid);
        fetch = calloc(1, sizeof(*fetch));
        if (fetch == NULL)
                return -ENOMEM;
        fetch->sessions = sessions;
        fetch->session = session;
        fetch->uid = session->peer.uid;
        fetch->request = request->id;
        fetch->nodes = trace->nodes;
        fetch->wanted = trace->node;
        snprintf(fetch->job, sizeof(fetch->job), "%s", trace->job);
        list_append(&sessions->fetches, &fetch->link);
        int r = charge_take(&fetch->charge, sessions->config.accounts, fetch->uid, ACCOUNT_OWN,
                            sizeof(*fetch), &request->refusal);
        if (r == 0)
                r = loop_timer_new(sessions->config.loop, fetch_on_time, fetch, &fetch->timer);
        if (r != 0) {
                fetch_free(fetch);
                return r;
        }
        fetch_ask_next(sessions, fetch->uid);
        return 0;
}
