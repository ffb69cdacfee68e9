/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Letters between the daemons of a job (hub.h): frames of the clients' protocol, of which the first one says
 * what the letter is.
 *
 * STATUS_JOB   a node to the coordinator's daemon: a statement, how the node and its members are
 * STATUS       a node to the coordinator's daemon: what do the others say?
 * STATUS_END   back, after the others' statements: that was all, and the rows of nodes that say nothing
 * STATUS_WAIT  a node to all others: what it waits for
 * TRACE        to a node: its record is wanted; TRACE_STEP and TRACE_END come back under the same number
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "report/private.h"

#define NAMED 8u                      /* most nodes that say nothing, and most hosts without one */
#define SILENT USEC_PER_SEC           /* a node from which nothing came for so long says nothing */
#define WAITING (100 * USEC_PER_MSEC) /* shorter waits are not said */
#define SHARE 100u                    /* one part in so many of the thread's time is for statements */

/* ---- of a node */

/* For TRACE: which node it is, and what has to be added to its clock to have the coordinator's. */
static void letters_add_node(struct packet *packet) {
        const struct reports_cluster *cluster = &packet->reports->cluster;
        Wire__TraceNode node = WIRE__TRACE_NODE__INIT, *nodes[] = { &node };
        Wire__TraceEnd end = WIRE__TRACE_END__INIT;
        uint64_t round_trip;
        int64_t ahead;

        SET(node, node, packet->job->machine.attachment.address);
        node.host = (char *)(uintptr_t)cluster->host;
        if (cluster->clock != NULL && cluster->clock(cluster->data, &ahead, &round_trip)) {
                SET(node, clock_us, ahead);
                SET(node, round_trip_us, round_trip);
        }
        end.node = nodes;
        end.n_node = 1;
        packet_add(packet, WIRE__MESSAGE_TYPE__TRACE_END, &end.base);
}

static void letters_send_statement(struct job *job, uint64_t now) {
        struct reports *reports = reports_of(job);
        struct packet packet = { .reports = reports, .job = job, .to = HUB_COORDINATOR, .one = true };
        const struct query query = packet_query(&packet);

        status_describe_job(&query, job);
        letters_add_node(&packet);
        packet_send(&packet);
        uint64_t pause = (clock_now() - now) * SHARE;
        job->showing.rows = now + (pause > VIEWS_SHOW ? pause : VIEWS_SHOW);
}

/* So that another node finds the members that have not delivered it, although no member there may wait. */
static void letters_send_waits(struct job *job, uint64_t now) {
        struct packet packet = { .reports = reports_of(job), .job = job, .to = HUB_ALL, .one = true };
        struct job_wait waits[LIMIT_LOCAL];
        unsigned n = job_waits(job, waits, LIMIT_LOCAL), said = 0;

        for (unsigned i = 0; i < n && said < JOB_WANTS; i++) {
                struct wait_parts parts;
                Wire__StatusWait row;

                if (waits[i].kind != WAIT_NODES || now - waits[i].since < WAITING)
                        continue;
                wait_row(job, &waits[i], now, NULL, &parts, &row);
                row.text = row.call = NULL;
                row.n_blocked = 0; /* the statement has them */
                packet_add(&packet, WIRE__MESSAGE_TYPE__STATUS_WAIT, &row.base);
                said++;
        }
        if (said == 0)
                return;
        packet_send(&packet);
        job->showing.waits = now + VIEWS_SHOW;
}

void reports_show(struct job *job) {
        uint64_t now = clock_now();

        if (job->state == JOB_RUNNING && now >= job->showing.waits)
                letters_send_waits(job, now);
        if (now >= job->showing.rows)
                letters_send_statement(job, now);
}

static void letters_take_waits(struct job *job, const struct hub_letter *letter) {
        struct reports *reports = reports_of(job);
        const ProtobufCMessage *row;
        struct frame_header header;
        struct want want;
        size_t at = 0;

        while ((row = views_decode(reports->views, letter->bytes, letter->size, &at, &header)) != NULL)
                if (header.type == WIRE__MESSAGE_TYPE__STATUS_WAIT &&
                    wait_row_want(CAST(Wire__StatusWait, row), &want) && job_want(job, &want))
                        job->showing.rows = 0;
}

static void letters_send_record(struct job *job, uint32_t to, uint32_t request) {
        struct packet packet = { .reports = reports_of(job), .job = job, .to = to, .request = request };
        const struct query query = packet_query(&packet);
        Wire__TraceEnd end = WIRE__TRACE_END__INIT;

        trace_describe_job(&query, job);
        packet_send(&packet);
        packet_add(&packet, WIRE__MESSAGE_TYPE__TRACE_END, &end.base);
        packet_send(&packet);
}

/* ---- of the coordinator's daemon */

struct answering {
        struct packet end; /* the last letter */
        uint64_t now;
        unsigned n_silent, n_empty;
        const char *empty[NAMED];
};

static void answering_add_silent(struct answering *answering, const struct hub_sight *sight) {
        uint64_t silent = answering->now - sight->heard;
        Wire__StatusWait row = WIRE__STATUS_WAIT__INIT;
        char text[WAIT_TEXT];

        if (answering->n_silent++ >= NAMED)
                return;
        snprintf(text, sizeof(text),
                 sight->away ? "the node on host %s: not connected for %.1f s"
                             : "the node on host %s: no report for %.1f s",
                 sight->name, (double)silent / 1e6);
        row.what = (char *)"node";
        row.host = (char *)sight->name;
        row.text = text;
        SET(row, since_ms, silent / USEC_PER_MSEC);
        packet_add(&answering->end, WIRE__MESSAGE_TYPE__STATUS_WAIT, &row.base);
}

static void answering_add_node(void *to, uint32_t address, const struct hub_sight *sight) {
        struct answering *answering = to;
        const struct packet *end = &answering->end;
        const struct reports *reports = end->reports;
        const struct view *view = views_find(reports->views, end->about, VIEW_STATEMENT, address);
        struct hub_letter letter = { .node = end->to };

        if (address == end->to)
                return;
        if (address == HUB_UNKNOWN) {
                if (answering->n_empty++ < NAMED)
                        answering->empty[answering->n_empty - 1] = sight->name;
        } else if (sight != NULL && (sight->away || answering->now - sight->heard >= SILENT)) {
                answering_add_silent(answering, sight);
        } else if (view != NULL) {
                letter.bytes = view_rows(view, &letter.size);
                reports->cluster.post(reports->cluster.data, end->about, &letter);
        }
}

/* "host a and host b have none" */
static void answering_add_empty(struct answering *answering) {
        unsigned n = answering->n_empty, named = n < NAMED ? n : NAMED;
        Wire__StatusJob row = WIRE__STATUS_JOB__INIT;
        char text[512];
        size_t used = 0;

        for (unsigned i = 0; i < named && used < sizeof(text); i++)
                used += (size_t)snprintf(text + used, sizeof(text) - used, "%shost %s",
                                         i == 0                         ? ""
                                         : i + 1 == named && n == named ? " and "
                                                                        : ", ",
                                         answering->empty[i]);
        if (n > named && used < sizeof(text))
                used += (size_t)snprintf(text + used, sizeof(text) - used, " and %u more", n - named);
        if (used < sizeof(text))
                snprintf(text + used, sizeof(text) - used, n == 1 ? " has none" : " have none");
        row.text = text;
        if (n > 0)
                packet_add(&answering->end, WIRE__MESSAGE_TYPE__STATUS_JOB, &row.base);
}

static void letters_answer(struct reports *reports, const struct hub_job *job, uint32_t to,
                           uint32_t request) {
        const struct reports_cluster *cluster = &reports->cluster;
        struct answering answering = {
                .end = { .reports = reports, .about = job, .to = to, .request = request, .one = true },
                .now = clock_now()
        };
        Wire__StatusEnd end = WIRE__STATUS_END__INIT;

        packet_add(&answering.end, WIRE__MESSAGE_TYPE__STATUS_END, &end.base);
        cluster->nodes(cluster->data, job, answering_add_node, &answering);
        answering_add_empty(&answering);
        packet_send(&answering.end);
}

/* ---- what comes */

static void letters_give(struct view *view, const struct hub_letter *letter) {
        if (view != NULL)
                view_take(view, letter->bytes, letter->size);
}

static void letters_keep(struct view *view, const struct hub_letter *letter) {
        if (view != NULL)
                view_keep(view, letter->bytes, letter->size);
}

/* `job`: it is for the node; NULL: for the coordinator's daemon. */
static void letters_read(struct reports *reports, struct job *job, const struct hub_job *name,
                         const struct hub_letter *letter) {
        struct views *views = reports->views;
        bool answer = letter->node == HUB_COORDINATOR;
        struct frame_header head;
        size_t at = 0;

        if (views_decode(views, letter->bytes, letter->size, &at, &head) == NULL)
                return;
        if (head.type == WIRE__MESSAGE_TYPE__TRACE_STEP || head.type == WIRE__MESSAGE_TYPE__TRACE_END)
                letters_give(views_find(views, name, VIEW_RECORD, letter->node), letter);
        else if (job != NULL && head.type == WIRE__MESSAGE_TYPE__TRACE)
                letters_send_record(job, letter->node, head.request);
        else if (job != NULL && head.type == WIRE__MESSAGE_TYPE__STATUS_WAIT)
                letters_take_waits(job, letter);
        else if (job == NULL && head.type == WIRE__MESSAGE_TYPE__STATUS)
                letters_answer(reports, name, letter->node, head.request);
        else if (answer)
                letters_give(views_find(views, name, VIEW_OTHERS, 0), letter);
        else if (job == NULL)
                letters_keep(views_get(views, name, VIEW_STATEMENT, letter->node), letter);
}

void letters_take(struct job *job, const struct hub_letter *letter) {
        const struct hub_job name = peers_name(job);

        letters_read(reports_of(job), job, &name, letter);
}

void reports_posted(struct reports *reports, const struct hub_job *job, const struct hub_letter *letter) {
        letters_read(reports, NULL, job, letter);
}
