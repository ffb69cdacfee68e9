// SPDX-License-Identifier: Apache-2.0
/* A daemon's answer to STATUS: see snapshot.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/ask/snapshot.h"

/* Appends to an array of pointers. On failure the message is freed. */
static int snapshot_push(void *array, size_t *n, ProtobufCMessage *message) {
        ProtobufCMessage ***list = array;
        ProtobufCMessage **grown = realloc(*list, (*n + 1) * sizeof *grown);

        if (!grown) {
                protobuf_c_message_free_unpacked(message, NULL);
                return -ENOMEM;
        }
        *list = grown;
        grown[(*n)++] = message;
        return 0;
}

static int snapshot_push_job(struct snapshot *snapshot, ProtobufCMessage *message) {
        struct snapshot_job *grown = realloc(snapshot->job, (snapshot->n_jobs + 1) * sizeof *grown);

        if (!grown) {
                protobuf_c_message_free_unpacked(message, NULL);
                return -ENOMEM;
        }
        snapshot->job = grown;
        grown[snapshot->n_jobs++] = (struct snapshot_job){ .job = (Wire__StatusJob *)message };
        return 0;
}

/* Tools such as this one are clients too, but no user asks for them. */
static int snapshot_push_client(struct snapshot *snapshot, ProtobufCMessage *message) {
        if (((Wire__StatusClient *)message)->admin) {
                protobuf_c_message_free_unpacked(message, NULL);
                return 0;
        }
        return snapshot_push(&snapshot->client, &snapshot->n_clients, message);
}

static bool snapshot_in_order(const struct snapshot *snapshot, uint16_t type) {
        switch (type) {
        case WIRE__MESSAGE_TYPE__STATUS_DAEMON: return !snapshot->daemon;
        case WIRE__MESSAGE_TYPE__STATUS_CLIENT:
        case WIRE__MESSAGE_TYPE__STATUS_LINK:
        case WIRE__MESSAGE_TYPE__STATUS_JOB:
        case WIRE__MESSAGE_TYPE__STATUS_END: return snapshot->daemon;
        case WIRE__MESSAGE_TYPE__STATUS_MEMBER:
        case WIRE__MESSAGE_TYPE__STATUS_PLAN:
        case WIRE__MESSAGE_TYPE__STATUS_WAIT: return snapshot->n_jobs > 0;
        default: return false;
        }
}

int snapshot_feed(struct snapshot *snapshot, uint16_t type, const void *payload, size_t length) {
        struct snapshot_job *job = snapshot->n_jobs ? &snapshot->job[snapshot->n_jobs - 1] : NULL;

        if (!snapshot_in_order(snapshot, type))
                return -EPROTO;
        ProtobufCMessage *message = protobuf_c_message_unpack(codec_descriptor(type), NULL, length, payload);
        if (!message)
                return -EPROTO;
        switch (type) {
        case WIRE__MESSAGE_TYPE__STATUS_DAEMON: snapshot->daemon = (Wire__StatusDaemon *)message; return 0;
        case WIRE__MESSAGE_TYPE__STATUS_CLIENT: return snapshot_push_client(snapshot, message);
        case WIRE__MESSAGE_TYPE__STATUS_LINK:
                return snapshot_push(&snapshot->link, &snapshot->n_links, message);
        case WIRE__MESSAGE_TYPE__STATUS_JOB: return snapshot_push_job(snapshot, message);
        case WIRE__MESSAGE_TYPE__STATUS_MEMBER: return snapshot_push(&job->member, &job->n_members, message);
        case WIRE__MESSAGE_TYPE__STATUS_PLAN: return snapshot_push(&job->plan, &job->n_plans, message);
        case WIRE__MESSAGE_TYPE__STATUS_WAIT: return snapshot_push(&job->wait, &job->n_waits, message);
        default:
                snapshot->found = ((Wire__StatusEnd *)message)->found;
                protobuf_c_message_free_unpacked(message, NULL);
                return 1;
        }
}

static void snapshot_free_list(void *array, size_t n) {
        ProtobufCMessage **list = array;

        for (size_t i = 0; i < n; i++)
                protobuf_c_message_free_unpacked(list[i], NULL);
        free(list);
}

size_t snapshot_places(const struct snapshot_job *job) {
        size_t n = 0;

        for (size_t i = 0; i < job->n_members; i++)
                n += !job->member[i]->state || strcmp(job->member[i]->state, "spare") != 0;
        return n;
}

uint64_t snapshot_recoveries(const Wire__StatusJob *job) {
        uint64_t n = 0;

        for (size_t i = 0; i < job->n_recovery_class; i++)
                n += job->recovery_class[i];
        return n;
}

bool snapshot_wait_is_step(const Wire__StatusWait *wait) {
        return !wait->what || strcmp(wait->what, "step") == 0;
}

void snapshot_deinit(struct snapshot *snapshot) {
        for (size_t i = 0; i < snapshot->n_jobs; i++) {
                struct snapshot_job *job = &snapshot->job[i];
                protobuf_c_message_free_unpacked(&job->job->base, NULL);
                snapshot_free_list(job->member, job->n_members);
                snapshot_free_list(job->plan, job->n_plans);
                snapshot_free_list(job->wait, job->n_waits);
        }
        free(snapshot->job);
        snapshot_free_list(snapshot->client, snapshot->n_clients);
        snapshot_free_list(snapshot->link, snapshot->n_links);
        if (snapshot->daemon)
                protobuf_c_message_free_unpacked(&snapshot->daemon->base, NULL);
        free(snapshot->path);
        *snapshot = (struct snapshot){ 0 };
}

enum talk_result snapshot_fetch(struct talk *talk, const char *path, const char *job, struct snapshot *ret) {
        Wire__Status request = WIRE__STATUS__INIT;
        struct talk_reply reply;
        int fed = 0;

        *ret = (struct snapshot){ .path = strdup(path) };
        request.job = (char *)job;
        enum talk_result r = talk_send(talk, WIRE__MESSAGE_TYPE__STATUS, &request.base);
        while (!r && fed == 0) {
                r = talk_receive(talk, &reply);
                if (!r)
                        fed = snapshot_feed(ret, reply.type, reply.payload, reply.length);
        }
        if (!r && fed == -EPROTO)
                r = talk_fail(talk, TALK_BROKEN, "the daemon's answer is out of order");
        else if (!r && (fed < 0 || !ret->path))
                r = talk_fail(talk, TALK_FAILED, "out of memory");
        if (!r && !job)
                ret->found = true;
        if (r)
                snapshot_deinit(ret);
        return r;
}
