/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legacy CUDA IPC handles of cuMemAlloc memory, by which a trainer shares its own allocations. The facts tell
 * which processes can open a handle, what it exposes, and what becomes of it when its exporter dies or frees
 * first.
 */
#include "facts.h"
#include "vmm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
        MIB = 1 << 20,
        SIZE = 4 * MIB,  /* of what is shared */
        BLOCK = 2 * MIB, /* that small allocations share */
        SMALL = 64 << 10,
        SMALLS = 64,    /* tried until two share one */
        FIRST = 0x1111, /* pattern of the first MiB, */
        REST = 0x2222,  /* of the others, */
        AGAIN = 0x3333, /* and of memory that is allocated in place of freed one */
};

static void send_handle(struct actor *actor, int channel, cuda_address address, size_t offset) {
        struct message message = { .word = "handle", .number = { offset } };
        struct cuda_ipc handle;

        CU(actor, ipc_get, &handle, address);
        _Static_assert(sizeof handle <= sizeof message.bytes, "a handle fits into a message");
        memcpy(message.bytes, &handle, sizeof handle);
        channel_send(actor, channel, &message, -1);
}

static cuda_result open_handle(struct actor *actor, const struct message *message, cuda_address *address) {
        struct cuda_ipc handle;

        memcpy(&handle, message->bytes, sizeof handle);
        return CU_TRY(actor, ipc_open, address, handle, CUDA_IPC_LAZY_PEER_ACCESS);
}

/* Memory whose first MiB differs from the rest. */
static cuda_address allocate(struct actor *actor, cuda_stream stream) {
        cuda_address address;

        CU(actor, allocate, &address, SIZE);
        driver_fill(actor, stream, address, MIB, FIRST);
        driver_fill(actor, stream, address + MIB, SIZE - MIB, REST);
        return address;
}

static bool holds(struct actor *actor, cuda_stream stream, cuda_address address) {
        return driver_read32(actor, stream, address) == FIRST &&
               driver_read32(actor, stream, address + SIZE - 4) == REST;
}

/* Opens the handle that it is sent, and says what came of it. */
static void role_ipc_importer(struct actor *actor) {
        struct message opened = { .word = "opened" }, message;
        cuda_address address = 0;
        cuda_stream stream;
        cuda_result result;

        driver_open(actor);
        stream = driver_stream(actor);
        message = channel_receive(actor, "handle", NULL);
        result = open_handle(actor, &message, &address);
        opened.number[0] = (uint64_t)result;
        if (result == CUDA_OK)
                opened.number[1] = holds(actor, stream, address);
        channel_send(actor, actor->channel, &opened, -1);
        actor_stay(actor);
}

/* Allocates, sends the handle, frees when told to, and allocates the same again. */
static void role_ipc_exporter(struct actor *actor) {
        struct message freed = { .word = "freed" };
        cuda_address address, again;
        cuda_stream stream;

        driver_open(actor);
        stream = driver_stream(actor);
        address = allocate(actor, stream);
        send_handle(actor, actor->channel, address, 0);
        channel_receive(actor, "free", NULL);
        freed.number[0] = (uint64_t)CU_TRY(actor, free, address);
        channel_send(actor, actor->channel, &freed, -1);
        channel_receive(actor, "allocate", NULL);
        CU(actor, allocate, &again, SIZE);
        driver_fill(actor, stream, again, SIZE, AGAIN);
        freed.number[0] = again == address;
        snprintf(freed.word, sizeof freed.word, "allocated");
        channel_send(actor, actor->channel, &freed, -1);
        actor_stay(actor);
}

/* A peer opens what this process has allocated. */
static bool peer_can_open(struct actor *actor, cuda_stream stream, struct peer *importer, bool other_uid) {
        struct message opened;
        bool good;

        send_handle(actor, importer->channel, allocate(actor, stream), 0);
        opened = peer_receive(actor, importer, "opened", NULL);
        good = opened.number[0] == CUDA_OK && opened.number[1];
        actor_note(actor, "exporter uid %u, importer uid %u: %s%s", (unsigned)geteuid(),
                   (unsigned)(other_uid ? OTHER_UID : geteuid()),
                   driver_name(actor, (cuda_result)opened.number[0]),
                   opened.number[0] == CUDA_OK && !opened.number[1] ? ", but it holds something else" : "");
        return good;
}

/* This process opens what a peer has allocated. */
static bool can_open_peers(struct actor *actor, cuda_stream stream, struct peer *exporter) {
        struct message message = peer_receive(actor, exporter, "handle", NULL);
        cuda_address address = 0;
        cuda_result result = open_handle(actor, &message, &address);

        actor_note(actor, "exporter uid %u, importer uid %u: %s", (unsigned)OTHER_UID, (unsigned)geteuid(),
                   driver_name(actor, result));
        return result == CUDA_OK && holds(actor, stream, address);
}

void fact_ipc_same_uid(struct actor *actor) {
        struct peer importer = peer_start(actor, "ipc.importer", role_ipc_importer, false);
        cuda_stream stream;

        driver_open(actor);
        stream = driver_stream(actor);
        actor_answer(actor, peer_can_open(actor, stream, &importer, false) ? "yes" : "no");
}

/* In both directions: root as the exporter, and as the importer. */
void fact_ipc_other_uid(struct actor *actor) {
        struct peer importer = peer_start(actor, "ipc.importer", role_ipc_importer, true);
        struct peer exporter = peer_start(actor, "ipc.exporter", role_ipc_exporter, true);
        cuda_stream stream;
        bool out, in;

        driver_open(actor);
        stream = driver_stream(actor);
        out = peer_can_open(actor, stream, &importer, true);
        in = can_open_peers(actor, stream, &exporter);
        actor_answer(actor, out && in ? "yes" : out ? "only from root" : in ? "only to root" : "no");
}

/* Opens the handle that an exporter has sent. */
static cuda_address opened_from(struct actor *actor, struct peer *exporter, struct message *message) {
        cuda_address address = 0;
        cuda_result result;

        *message = peer_receive(actor, exporter, "handle", NULL);
        result = open_handle(actor, message, &address);
        if (result != CUDA_OK)
                actor_fail(actor, "cuIpcOpenMemHandle: %s", driver_name(actor, result));
        return address;
}

/* The documentation leaves this undefined, so the fact asks what the driver does. */
void fact_ipc_exporter_frees_first(struct actor *actor) {
        struct peer exporter = peer_start(actor, "ipc.exporter", role_ipc_exporter, false);
        struct message message, reply;
        cuda_address address;
        cuda_stream stream;
        cuda_result result;
        uint32_t word = 0;
        bool kept;

        driver_open(actor);
        stream = driver_stream(actor);
        address = opened_from(actor, &exporter, &message);
        channel_say(actor, exporter.channel, "free");
        reply = peer_receive(actor, &exporter, "freed", NULL);
        result = driver_read32_try(actor, stream, address, &word);
        kept = result == CUDA_OK && word == FIRST;
        actor_note(actor, "the exporter's free: %s; a read after it: %s, %s",
                   driver_name(actor, (cuda_result)reply.number[0]), driver_name(actor, result),
                   word == FIRST ? "the old contents" : "something else");
        channel_say(actor, exporter.channel, "allocate");
        reply = peer_receive(actor, &exporter, "allocated", NULL);
        result = driver_read32_try(actor, stream, address, &word);
        kept = kept && result == CUDA_OK && word == FIRST;
        actor_note(actor, "after the exporter allocated as much again (%s address) and wrote there: %s, %s",
                   reply.number[0] ? "the same" : "another", driver_name(actor, result),
                   word == AGAIN   ? "the importer sees the new contents"
                   : word == FIRST ? "still the old contents"
                                   : "something else");
        actor_note(actor, "the answer is whether the importer keeps the old contents");
        actor_decide(actor, kept ? "yes" : "no");
        actor_note(actor, "close: %s", driver_name(actor, CU_TRY(actor, ipc_close, address)));
        actor_end(actor);
}

/* Two small allocations in one block of 2 MiB, which is what a handle is of. Sends the handle of the first
 * and the distance to the second, and says what is in that one when asked. */
static void role_ipc_neighbours(struct actor *actor) {
        struct message word = { .word = "word" };
        cuda_address address[SMALLS];
        cuda_stream stream;
        unsigned n = 0;

        driver_open(actor);
        stream = driver_stream(actor);
        do
                CU(actor, allocate, &address[n++], SMALL);
        while (n < SMALLS && (n < 2 || address[n - 1] / BLOCK != address[n - 2] / BLOCK));
        if (address[n - 1] / BLOCK != address[n - 2] / BLOCK)
                actor_skip(actor, "of %d allocations of %d bytes no two have lain in one block", SMALLS,
                           SMALL);
        driver_fill(actor, stream, address[n - 2], SMALL, FIRST);
        driver_fill(actor, stream, address[n - 1], SMALL, REST);
        send_handle(actor, actor->channel, address[n - 2], address[n - 1] - address[n - 2]);
        channel_receive(actor, "look", NULL);
        word.number[0] = driver_read32(actor, stream, address[n - 1]);
        channel_send(actor, actor->channel, &word, -1);
        actor_stay(actor);
}

/* Can the importer of the first allocation reach the second? A copy is checked by the library, a kernel only
 * by the GPU; it may fault, and then this process has no GPU any more. */
void fact_ipc_neighbour(struct actor *actor) {
        struct peer exporter = peer_start(actor, "ipc.neighbours", role_ipc_neighbours, false);
        cuda_address address, base = 0, other;
        struct message message;
        cuda_stream stream;
        cuda_result kernel;
        uint32_t word = 0;
        size_t size = 0;

        driver_open(actor);
        stream = driver_stream(actor);
        address = opened_from(actor, &exporter, &message);
        other = address + message.number[0];
        CU(actor, address_range, &base, &size, address);
        actor_note(actor, "the importer is told of %zu bytes, its address is %" PRIu64 " into them", size,
                   (uint64_t)(address - base));
        actor_note(actor, "the other allocation lies %+" PRId64 " bytes away; a copy from there: %s",
                   (int64_t)message.number[0],
                   driver_name(actor, driver_read32_try(actor, stream, other, &word)));
        kernel = driver_bump(actor, stream, other, sizeof word);
        channel_say(actor, exporter.channel, "look");
        message = peer_receive(actor, &exporter, "word", NULL);
        actor_note(actor, "a kernel there: %s; the other allocation is %s", driver_name(actor, kernel),
                   message.number[0] == REST ? "as it was" : "changed");
        actor_note(actor, "the answer is whether a handle exposes an allocation beside its own");
        actor_answer(actor, message.number[0] == REST + 1 ? "yes" : "no");
}
