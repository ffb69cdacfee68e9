/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/wire/post.h"

#include <errno.h>

#include "post.pb-c.h"
#include "proto/names.h"

#define DAY (UINT64_C(86400) * 1000000)

/* Fields that are one value in both structs, for encoding and decoding. */
/* clang-format off */
#define FIELDS_TIMES(X) \
        X(times.heartbeat, heartbeat) X(times.patience, patience) X(times.death, death) \
        X(times.abandon, abandon) X(times.drain, drain) X(times.build, build)
#define FIELDS_ARRIVAL(X) X(device, device) X(has_address, has_address) X(address, address)
#define FIELDS_PLACE(X) X(address, address) X(host, host) FIELDS_TIMES(X)
#define FIELDS_ATTACH(X) X(uid, uid) X(incarnation, incarnation)
#define FIELDS_TABLE(X) \
        X(comm.term, term) X(comm.number, number) X(comm.nonce, nonce) X(from, from)
/* clang-format on */
#define PUT(ours, theirs) to.theirs = from->ours;
#define TAKE(ours, theirs) ret->ours = said->theirs;

_Static_assert(sizeof(struct machine_times) == 48, "a time that is new belongs into FIELDS_TIMES");

bool post_times_valid(const struct machine_times *times) {
        return times->heartbeat > 0 && times->heartbeat < times->patience && times->patience < times->death &&
               times->death > 2 * times->heartbeat && times->death < times->abandon &&
               times->abandon <= DAY && times->drain > 0 && times->drain <= DAY && times->build > 0 &&
               times->build <= DAY;
}

ssize_t post_encode_arrival(const struct post_arrival *from, uint8_t out[POST_MAX]) {
        Post__Arrival to = POST__ARRIVAL__INIT;

        FIELDS_ARRIVAL(PUT)
        to.host = (char *)from->host;
        to.name = (char *)from->name;
        return (ssize_t)post__arrival__pack(&to, out);
}

ssize_t post_encode_place(const struct post_place *from, uint8_t out[POST_MAX]) {
        Post__Place to = POST__PLACE__INIT;

        FIELDS_PLACE(PUT)
        return (ssize_t)post__place__pack(&to, out);
}

ssize_t post_encode_attach(const struct post_attach *from, uint8_t out[POST_MAX]) {
        Post__Attach to = POST__ATTACH__INIT;

        FIELDS_ATTACH(PUT)
        to.job = (char *)from->job;
        if (!sha256_is_none(&from->token))
                to.token = (ProtobufCBinaryData){ sizeof(from->token.byte), (uint8_t *)from->token.byte };
        return (ssize_t)post__attach__pack(&to, out);
}

ssize_t post_encode_refused(const struct refusal *from, uint8_t out[POST_MAX]) {
        Post__Refused to = POST__REFUSED__INIT;

        to.code = (uint32_t)from->code;
        to.text = (char *)from->text;
        return (ssize_t)post__refused__pack(&to, out);
}

ssize_t post_encode_table(const struct post_table *from, uint8_t out[POST_MAX]) {
        Post__Table to = POST__TABLE__INIT;

        if (from->bytes > HUB_TABLE)
                return -EMSGSIZE;
        FIELDS_TABLE(PUT)
        to.table = (ProtobufCBinaryData){ from->bytes, (uint8_t *)from->table };
        return (ssize_t)post__table__pack(&to, out);
}

ssize_t post_encode_letter(const struct hub_letter *from, uint8_t out[POST_MAX]) {
        Post__Letter to = POST__LETTER__INIT;

        if (from->size > HUB_LETTER)
                return -EMSGSIZE;
        to.node = from->node;
        to.frames = (ProtobufCBinaryData){ from->size, (uint8_t *)from->bytes };
        return (ssize_t)post__letter__pack(&to, out);
}

static bool text_take(char *to, size_t size, const char *from) {
        size_t length = strlen(from);

        if (length >= size || !utf8_valid(from, length))
                return false;
        memcpy(to, from, length + 1);
        return true;
}

static const char malformed[] = "it is malformed";

const char *post_decode_arrival(struct scratch *scratch, const void *bytes, size_t length,
                                struct post_arrival *ret) {
        const Post__Arrival *said = post__arrival__unpack(scratch_begin(scratch), length, bytes);

        if (said == NULL)
                return malformed;
        FIELDS_ARRIVAL(TAKE)
        if (!name_valid(said->host) || !text_take(ret->host, sizeof(ret->host), said->host) ||
            !name_valid(said->name) || !text_take(ret->name, sizeof(ret->name), said->name))
                return "its host has no id or name, or one that is too long or not printable";
        if (ret->has_address && ret->address >= LIMIT_NODES)
                return "it claims too high an address";
        return NULL;
}

const char *post_decode_place(struct scratch *scratch, const void *bytes, size_t length,
                              struct post_place *ret) {
        const Post__Place *said = post__place__unpack(scratch_begin(scratch), length, bytes);

        if (said == NULL)
                return malformed;
        FIELDS_PLACE(TAKE)
        if (ret->address >= LIMIT_NODES || ret->host >= LIMIT_NODES)
                return "it names too high an address";
        return post_times_valid(&ret->times) ? NULL : "its times contradict each other";
}

const char *post_decode_attach(struct scratch *scratch, const void *bytes, size_t length,
                               struct post_attach *ret) {
        const Post__Attach *said = post__attach__unpack(scratch_begin(scratch), length, bytes);

        if (said == NULL)
                return malformed;
        FIELDS_ATTACH(TAKE)
        if (!text_take(ret->job, sizeof(ret->job), said->job) || !name_valid_job(ret->job))
                return "it does not name a job";
        ret->token = (struct sha256){ 0 };
        if (said->token.len != 0 && said->token.len != sizeof(ret->token.byte))
                return "a token's digest has another length";
        if (said->token.len != 0)
                memcpy(ret->token.byte, said->token.data, sizeof(ret->token.byte));
        return NULL;
}

const char *post_decode_refused(struct scratch *scratch, const void *bytes, size_t length,
                                struct refusal *ret) {
        const Post__Refused *said = post__refused__unpack(scratch_begin(scratch), length, bytes);

        if (said == NULL)
                return malformed;
        *ret = (struct refusal){ .code = said->code };
        return text_take(ret->text, sizeof(ret->text), said->text) ? NULL
                                                                   : "its text is too long, or not UTF-8";
}

const char *post_decode_table(struct scratch *scratch, const void *bytes, size_t length,
                              struct post_table *ret) {
        const Post__Table *said = post__table__unpack(scratch_begin(scratch), length, bytes);

        if (said == NULL)
                return malformed;
        FIELDS_TABLE(TAKE)
        if (ret->from >= LIMIT_NODES || ret->comm.number == 0)
                return "it is of no node, or for no communicator";
        if (said->table.len > HUB_TABLE)
                return "it is too long";
        ret->table = said->table.data;
        ret->bytes = said->table.len;
        return NULL;
}

const char *post_decode_letter(struct scratch *scratch, const void *bytes, size_t length,
                               struct hub_letter *ret) {
        const Post__Letter *said = post__letter__unpack(scratch_begin(scratch), length, bytes);

        if (said == NULL)
                return malformed;
        if (said->frames.len > HUB_LETTER)
                return "it is too long";
        *ret = (struct hub_letter){ said->node, said->frames.data, said->frames.len };
        return NULL;
}
