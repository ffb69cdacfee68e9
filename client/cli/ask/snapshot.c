// SPDX-License-Identifier: Apache-2.0
/* A daemon's answer to STATUS: see snapshot.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/ask/snapshot.h"
#include "proto/cleanup.h"

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

/* Copies a row, with its rank and member numbers increased by `by`. */
static ProtobufCMessage *snapshot_copy(const ProtobufCMessage *message, uint32_t by) {
        size_t size = protobuf_c_message_get_packed_size(message);
        _cleanup_(freep) uint8_t *bytes = malloc(size + 1);

        if (!bytes)
                return NULL;
        protobuf_c_message_pack(message, bytes);
        ProtobufCMessage *copy = protobuf_c_message_unpack(message->descriptor, NULL, size, bytes);
        if (copy && copy->descriptor == &wire__status_member__descriptor) {
                ((Wire__StatusMember *)copy)->rank += by;
                ((Wire__StatusMember *)copy)->local_rank += by;
                ((Wire__StatusMember *)copy)->member += by;
        } else if (copy) {
                ((Wire__StatusWait *)copy)->rank += by;
        }
        return copy;
}

/* Appends `n` rows for a row that stands for as many. */
static int snapshot_push_alike(void *array, size_t *n_array, ProtobufCMessage *message, uint32_t n) {
        const size_t first = *n_array;
        int r = n > LIMIT_WORLD ? -EPROTO : 0;

        if (r < 0)
                protobuf_c_message_free_unpacked(message, NULL);
        else
                r = snapshot_push(array, n_array, message);
        for (uint32_t i = 1; i < n && r == 0; i++) {
                ProtobufCMessage *copy = snapshot_copy((*(ProtobufCMessage ***)array)[first], i);

                r = copy ? snapshot_push(array, n_array, copy) : -ENOMEM;
        }
        return r;
}

static int snapshot_push_member(struct snapshot_job *job, ProtobufCMessage *message) {
        Wire__StatusMember *member = (Wire__StatusMember *)message;
        uint32_t places = member->places;

        member->has_places = false;
        member->places = 0;
        return snapshot_push_alike(&job->member, &job->n_members, message, places);
}

static int snapshot_push_wait(struct snapshot_job *job, ProtobufCMessage *message) {
        Wire__StatusWait *wait = (Wire__StatusWait *)message;
        uint32_t ranks = wait->ranks;

        wait->has_ranks = false;
        wait->ranks = 0;
        return snapshot_push_alike(&job->wait, &job->n_waits, message, ranks);
}

static int snapshot_take_end(struct snapshot *snapshot, ProtobufCMessage *message) {
        if (snapshot->end)
                protobuf_c_message_free_unpacked(&snapshot->end->base, NULL);
        snapshot->end = (Wire__StatusEnd *)message;
        snapshot->found = snapshot->found || snapshot->end->found;
        return 1;
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
        case WIRE__MESSAGE_TYPE__STATUS_MEMBER: return snapshot_push_member(job, message);
        case WIRE__MESSAGE_TYPE__STATUS_PLAN: return snapshot_push(&job->plan, &job->n_plans, message);
        case WIRE__MESSAGE_TYPE__STATUS_WAIT: return snapshot_push_wait(job, message);
        default: return snapshot_take_end(snapshot, message);
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
        if (snapshot->end)
                protobuf_c_message_free_unpacked(&snapshot->end->base, NULL);
        free(snapshot->path);
        *snapshot = (struct snapshot){ 0 };
}

/* Fetches one piece of the answer; it begins where the piece before it has ended. */
static enum talk_result snapshot_fetch_piece(struct talk *talk, const char *job, struct snapshot *snapshot) {
        Wire__Status request = WIRE__STATUS__INIT;
        struct talk_reply reply;
        int fed = 0;

        request.job = (char *)job;
        request.from = snapshot->end ? snapshot->end->next : NULL;
        enum talk_result r = talk_send(talk, WIRE__MESSAGE_TYPE__STATUS, &request.base);
        talk->answered = snapshot->daemon != NULL;
        while (!r && fed == 0) {
                r = talk_receive(talk, &reply);
                if (!r)
                        fed = snapshot_feed(snapshot, reply.type, reply.payload, reply.length);
        }
        if (!r && fed == -EPROTO)
                r = talk_fail(talk, TALK_BROKEN, "the daemon's answer is out of order");
        else if (!r && fed < 0)
                r = talk_fail(talk, TALK_FAILED, "out of memory");
        return r;
}

enum talk_result snapshot_fetch(struct talk *talk, const char *path, const char *job, struct snapshot *ret) {
        enum talk_result r;

        *ret = (struct snapshot){ .path = strdup(path), .found = !job };
        do
                r = snapshot_fetch_piece(talk, job, ret);
        while (!r && ret->end->next);
        if (!r && !ret->path)
                r = talk_fail(talk, TALK_FAILED, "out of memory");
        if (r)
                snapshot_deinit(ret);
        return r;
}
