/* SPDX-License-Identifier: Apache-2.0 */
/* A wait as STATUS shows it, and as other nodes hear of it. */
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "report/private.h"

static const char *const wait_names[] = {
        [WAIT_STEP] = "step",   [WAIT_PLAN] = "plan",     [WAIT_OPERATION] = "operation",
        [WAIT_JOIN] = "join",   [WAIT_NODES] = "nodes",   [WAIT_MEMORY] = "memory",
        [WAIT_SILENT] = "node", [WAIT_HELPER] = "helper",
};

void wait_row(const struct job *job, const struct job_wait *wait, uint64_t now, const char *host,
              struct wait_parts *parts, Wire__StatusWait *ret) {
        bool nodes = wait->kind == WAIT_NODES;
        struct job_wait placed = *wait;
        char *text = parts->text;

        wire__status_wait__init(ret);
        SET(*ret, job, job->id);
        if (wait->host[0] == '\0' && wait->pid != 0 && host != NULL)
                placed.host = host;
        wait_text(job, &placed, text);
        ret->text = text[0] != '\0' ? text : NULL;
        SET_IF(*ret, rank, wait->rank != UINT32_MAX, wait->rank);
        /* The pid of a member is looked for by its rank: a process that has none is in the text. */
        SET_IF(*ret, pid, wait->pid != 0 && ret->has_rank, (int32_t)wait->pid);
        ret->process_state = (char *)wait->process_state;
        SET(*ret, plan, wait->plan);
        SET_IF(*ret, bucket, wait->bucket != UINT32_MAX, wait->bucket);
        ret->parameter = (char *)wait->parameter;
        SET(*ret, since_ms, now > wait->since ? (now - wait->since) / USEC_PER_MSEC : 0);
        ret->what = (char *)wait_names[wait->kind];
        SET(*ret, step, wait->step);
        ret->host = placed.host[0] != '\0' ? (char *)placed.host : NULL;
        if (nodes)
                ret->purpose = (char *)wait_names[wait->purpose];
        SET_IF(*ret, sequence, wait->kind == WAIT_OPERATION || wait->purpose == WAIT_OPERATION,
               wait->sequence);
        ret->n_blocked = nodes ? deadlock_list_blocked(job, wait, parts->blocked, parts->call) : 0;
        ret->blocked = parts->blocked;
        ret->call = ret->n_blocked > 0 ? parts->call : NULL;
}

bool wait_row_kind(const char *name, enum wait_kind *ret) {
        for (enum wait_kind kind = 0; name != NULL && kind < array_size(wait_names); kind++)
                if (strcmp(name, wait_names[kind]) == 0) {
                        *ret = kind;
                        return true;
                }
        return false;
}

uint64_t wait_row_since(const Wire__StatusWait *row) {
        uint64_t now = clock_now();

        return row->since_ms < now / USEC_PER_MSEC ? now - row->since_ms * USEC_PER_MSEC : 0;
}

bool wait_row_want(const Wire__StatusWait *row, struct want *ret) {
        enum wait_kind kind;

        if (!wait_row_kind(row->purpose, &kind) || kind > WAIT_OPERATION)
                return false;
        *ret = (struct want){ .what = kind,
                              .plan = row->plan,
                              .bucket = row->has_bucket ? row->bucket : UINT32_MAX,
                              .step = kind == WAIT_OPERATION ? row->sequence : row->step,
                              .since = wait_row_since(row) };
        return true;
}
