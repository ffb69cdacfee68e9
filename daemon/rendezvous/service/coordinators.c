/* SPDX-License-Identifier: Apache-2.0 */
/* Coordinators by job, and the messages between them and the nodes in this process. */
#include "rendezvous/service/coordinators.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/machine/coordinator.h"

#define NEVER (UINT64_C(1) << 60) /* in a time that is counted from now */
#define FIRST_MEMBERS 4u          /* for which there is room from the beginning */
#define AGAIN 100000u             /* us between looks at a coordinator that is overdue and waits */
#define LETTERS 256u              /* of one node in a second; further ones are dropped */

/* A table that the engine of a node has published: kept for nodes that cannot be reached just then. */
struct publication {
        struct list link; /* the coordination's */
        uint32_t from;
        struct generation comm;
        struct charge charge;
        size_t bytes;
        unsigned char table[];
};

struct coordination {
        struct list link; /* the table's */
        struct coordinators *table;
        struct list nodes;        /* their attachments, in the order of their addresses */
        struct list publications; /* for the latest communicator that any of them builds */
        uid_t uid;
        uint64_t incarnation, number;
        struct sha256 token;
        uint32_t n_nodes;
        uint64_t due, ticked;
        struct charge self, charge; /* this struct; the coordinator's memory: */
        void *memory;
        struct coordinator coordinator;
        char name[];
};

struct coordinators {
        struct hub hub;
        struct coordinators_config config;
        struct coordinators_cluster cluster;
        struct list list;
        struct effects effects; /* of all coordinators */
        uint64_t due, last;     /* number */
};

static struct coordinators *table_of(struct hub *hub) {
        return list_entry(hub, struct coordinators, hub);
}

/* Within this daemon nothing is lost or late, so none of the machine's own times plays a part; only members'
 * waits do. */
static const struct machine_times times = { NEVER, NEVER, NEVER, NEVER, NEVER, NEVER };

static void coordination_deliver(const struct effect *effect) {
        struct coordination *coordination = effect->owner;
        struct attachment *attachment;

        list_for_each(attachment, &coordination->nodes, link)
                if (attachment->address == effect->order->to) {
                        attachment->receive(attachment, effect->order);
                        return;
                }
}

static void coordinators_set_due(struct coordinators *table) {
        struct coordination *coordination;
        uint64_t soonest = UINT64_MAX;

        list_for_each(coordination, &table->list, link)
                if (coordination->due < soonest)
                        soonest = coordination->due;
        if (soonest == table->due)
                return;
        table->due = soonest;
        table->config.due(table->config.data, soonest);
}

/* After each call of the coordinator. */
static void coordination_run(struct coordination *coordination) {
        uint64_t soonest = coordination->ticked + AGAIN, due;

        due = coordinator_deadline(&coordination->coordinator);
        coordination->due = due > soonest ? due : soonest;
        effects_drain(&coordination->table->effects, coordination_deliver);
        coordinators_set_due(coordination->table);
}

static int coordination_allocate(struct coordination *coordination, const struct coordinator_config *config,
                                 void **ret, struct charge *charge, struct refusal *refusal) {
        size_t bytes = coordinator_bytes(config);
        int r = charge_take(charge, coordination->table->config.accounts, coordination->uid, ACCOUNT_OWN,
                            bytes, refusal);

        if (r != 0)
                return r;
        *ret = malloc(bytes);
        if (*ret == NULL)
                charge_release(charge);
        return *ret != NULL ? 0 : -ENOMEM;
}

static void coordination_begin(struct coordination *coordination, struct coordinator_config config) {
        struct coordinators *table = coordination->table;
        struct outlet outlet = { .effects = &table->effects, .owner = coordination };
        uint64_t now = table->config.clock();

        config.floor = table->config.term(table->config.data) - 1;
        config.first = table->cluster.begun == 0 || now > table->cluster.begun + config.times.abandon;
        coordinator_init(&coordination->coordinator, &config, now, &outlet);
}

static int coordination_new(struct coordinators *table, const struct hub_job *job, struct coordination **ret,
                            struct refusal *refusal) {
        size_t size = sizeof(struct coordination) + strlen(job->name) + 1;
        struct coordination *coordination = calloc(1, size);
        struct coordinator_config config = {
                .nonce = table->config.nonce,
                .key = table->config.key,
                .uid = job->uid,
                .incarnation = job->incarnation,
                .alone = table->config.cluster == NULL,
                .times = table->config.cluster != NULL ? table->cluster.times : times,
                .most_nodes = table->config.cluster != NULL ? table->cluster.most_nodes : 0,
                .room = { .members = FIRST_MEMBERS, .tracks = TRACK_STEP + 1, .nodes = 1 }
        };

        if (coordination == NULL)
                return -ENOMEM;
        coordination->table = table;
        coordination->uid = job->uid;
        coordination->incarnation = job->incarnation;
        coordination->token = job->token;
        coordination->due = UINT64_MAX;
        config.name = strcpy(coordination->name, job->name);
        list_init(&coordination->nodes);
        list_init(&coordination->publications);
        int r = charge_take(&coordination->self, table->config.accounts, job->uid, ACCOUNT_OWN, size,
                            refusal);
        if (r == 0)
                r = coordination_allocate(coordination, &config, &coordination->memory, &coordination->charge,
                                          refusal);
        if (r != 0) {
                charge_release(&coordination->self);
                free(coordination);
                return r;
        }
        config.room.memory = coordination->memory;
        coordination_begin(coordination, config);
        coordination->number = ++table->last;
        list_append(&table->list, &coordination->link);
        *ret = coordination;
        return 0;
}

static void publication_free(struct publication *publication) {
        list_remove(&publication->link);
        charge_release(&publication->charge);
        free(publication);
}

/* Forgets the tables of older communicators, and an earlier one of that node: they are of no use any more. */
static void coordination_forget(struct coordination *coordination, const struct generation *comm,
                                uint32_t from) {
        struct publication *publication, *spare;

        list_for_each_safe(publication, spare, &coordination->publications, link)
                if (!generation_equal(publication->comm, *comm) || publication->from == from)
                        publication_free(publication);
}

static void coordination_free(struct coordination *coordination) {
        assert(list_empty(&coordination->nodes) && !coordination->table->effects.draining);
        coordination_forget(coordination, &(struct generation){ 0 }, HUB_UNKNOWN);
        list_remove(&coordination->link);
        free(coordination->memory);
        charge_release(&coordination->charge);
        charge_release(&coordination->self);
        free(coordination);
}

/* Doubled, so that it is not asked for often. */
static uint32_t room_for(uint32_t room, uint32_t wanted, uint32_t most) {
        while (room < wanted)
                room *= 2;
        return room < most ? room : most;
}

static int coordination_grow(struct coordination *coordination, uint32_t members, uint32_t tracks,
                             uint32_t nodes, struct refusal *refusal) {
        struct coordinator_config config = coordination->coordinator.config;
        struct room *room = &config.room;
        struct charge charge = { 0 };

        if (members <= room->members && tracks <= room->tracks && nodes <= room->nodes)
                return 0;
        room->members = room_for(room->members, members, LIMIT_SEATS);
        room->tracks = room_for(room->tracks, tracks, LIMIT_TRACKS);
        room->nodes = room_for(room->nodes, nodes, LIMIT_NODES);
        int r = coordination_allocate(coordination, &config, &room->memory, &charge, refusal);
        if (r != 0)
                return r;
        coordinator_move(&coordination->coordinator, room);
        free(coordination->memory);
        charge_release(&coordination->charge);
        coordination->memory = room->memory;
        coordination->charge = charge;
        return 0;
}

/* One that is at its end belongs to nodes whose members have not left yet. */
static struct coordination *coordinators_find(struct coordinators *table, const struct hub_job *job) {
        struct coordination *coordination;

        list_for_each(coordination, &table->list, link)
                if (coordination->uid == job->uid && coordination->incarnation == job->incarnation &&
                    strcmp(coordination->name, job->name) == 0 &&
                    !coordinator_is_over(&coordination->coordinator))
                        return coordination;
        return NULL;
}

/* Another tenant's job of that name, in any incarnation, is not for this node's members. */
static int coordinators_check_token(struct coordinators *table, const struct hub_job *job,
                                    struct refusal *refusal) {
        struct coordination *coordination;

        list_for_each(coordination, &table->list, link)
                if (coordination->uid == job->uid && strcmp(coordination->name, job->name) == 0 &&
                    !coordinator_is_over(&coordination->coordinator) &&
                    !sha256_equal(&coordination->token, &job->token))
                        return refuse(
                                refusal, WIRE__CODE__DENIED,
                                "job '%s' of uid %u has another token on other daemons than here, or "
                                "only one of them has one: set the token of the job's other members, or "
                                "choose another name",
                                job->name, (unsigned)job->uid);
        return 0;
}

/* The place of the node in the list; NULL if another one has its address. Without a cluster its address is
 * the lowest free one. */
static struct list *coordination_find_place(struct coordination *coordination, bool any, uint32_t *address) {
        struct attachment *attachment;

        if (any)
                *address = 0;
        list_for_each(attachment, &coordination->nodes, link) {
                if (!any && attachment->address == *address)
                        return NULL;
                if (attachment->address > *address)
                        return &attachment->link;
                if (any)
                        *address = attachment->address + 1;
        }
        return &coordination->nodes;
}

/* Gives the node the tables that the other nodes have published. */
static void coordination_tell(struct coordination *coordination, struct attachment *attachment) {
        struct publication *publication;

        list_for_each(publication, &coordination->publications, link)
                if (publication->from != attachment->address)
                        attachment->learn(attachment, &publication->comm, publication->from,
                                          publication->table, publication->bytes);
}

static int coordinators_attach(struct hub *hub, struct attachment *attachment, const struct hub_job *job,
                               struct refusal *refusal) {
        struct coordinators *table = table_of(hub);
        struct coordination *coordination = coordinators_find(table, job);
        int r = coordinators_check_token(table, job, refusal);

        if (r == 0 && coordination == NULL)
                r = coordination_new(table, job, &coordination, refusal);
        if (r != 0)
                return r;
        if (table->config.cluster != NULL && job->address == HUB_UNKNOWN)
                attachment->address = table->cluster.self;
        else
                attachment->address = job->address;
        struct list *at =
                coordination_find_place(coordination, table->config.cluster == NULL, &attachment->address);
        if (at == NULL)
                r = refuse(refusal, WIRE__CODE__STATE,
                           "job '%s': its coordinator still has the node of an earlier job of that name on "
                           "this host, which has not ended there yet; try again",
                           job->name);
        else if (coordination->n_nodes == HUB_NODES)
                r = refuse(refusal, WIRE__CODE__JOB_FULL, "job '%s' is on %u nodes: no more can", job->name,
                           HUB_NODES);
        if (r == 0)
                r = coordination_grow(coordination, 0, 0, attachment->address + 1, refusal);
        if (r != 0) {
                if (list_empty(&coordination->nodes))
                        coordination_free(coordination);
                return r;
        }
        attachment->host = table->cluster.host;
        attachment->times = coordination->coordinator.config.times;
        attachment->hub = hub;
        attachment->coordination = coordination;
        coordination->n_nodes++;
        list_insert(at, &attachment->link);
        coordination_tell(coordination, attachment);
        return 0;
}

/* One that takes over hears of members node by node, and of a world that may be larger at once. */
static int coordinators_reserve(struct attachment *attachment, uint32_t members, uint32_t world,
                                uint32_t tracks, struct refusal *refusal) {
        struct coordination *coordination = attachment->coordination;
        const struct coordinator *coordinator = &coordination->coordinator;
        uint32_t all = coordinator_members(coordinator, attachment->address, members);

        if (all - coordinator->membership.n_others > LIMIT_SEATS || /* those were turned away, and make way */
            world > LIMIT_SEATS)
                return refuse(
                        refusal, WIRE__CODE__JOB_FULL,
                        "job '%s' has as many members on all its daemons together as a job can have: %u",
                        coordination->name, LIMIT_WORLD);
        return coordination_grow(coordination, world > all ? world : all, tracks, 0, refusal);
}

/* A node begins anew. A coordinator that has no other node begins anew as well. */
static void coordinators_renew(struct attachment *attachment) {
        struct coordination *coordination = attachment->coordination;

        if (coordination->nodes.next == coordination->nodes.prev)
                coordination_begin(coordination, coordination->coordinator.config);
        else
                coordinator_lose(&coordination->coordinator, coordination->table->config.clock(),
                                 attachment->address);
        coordination_run(coordination);
}

static void coordinators_send(struct attachment *attachment, const struct report *report) {
        struct coordination *coordination = attachment->coordination;

        coordinator_receive(&coordination->coordinator, coordination->table->config.clock(), report);
        coordination_run(coordination);
}

/* If there is no memory for the table, the other nodes wait for this node in vain, and it is expelled by
 * name. */
static void coordination_keep(struct coordination *coordination, const struct generation *comm, uint32_t from,
                              const void *table, size_t bytes) {
        struct publication *publication = malloc(sizeof(*publication) + bytes);

        if (publication == NULL)
                return;
        *publication = (struct publication){ .from = from, .comm = *comm, .bytes = bytes };
        if (charge_take(&publication->charge, coordination->table->config.accounts, coordination->uid,
                        ACCOUNT_OWN, sizeof(*publication) + bytes, NULL) != 0) {
                free(publication);
                return;
        }
        if (bytes > 0)
                memcpy(publication->table, table, bytes);
        list_append(&coordination->publications, &publication->link);
}

static bool coordination_is_late(const struct coordination *coordination, const struct generation *comm) {
        struct publication *publication;

        list_for_each(publication, &coordination->publications, link)
                if (generation_compare(*comm, publication->comm) < 0)
                        return true;
        return false;
}

static void coordinators_publish(struct attachment *from, const struct generation *comm, const void *table,
                                 size_t bytes) {
        struct coordination *coordination = from->coordination;
        struct attachment *attachment;

        if (bytes > HUB_TABLE || coordination_is_late(coordination, comm))
                return;
        coordination_forget(coordination, comm, from->address);
        coordination_keep(coordination, comm, from->address, table, bytes);
        list_for_each(attachment, &coordination->nodes, link)
                if (attachment != from)
                        attachment->learn(attachment, comm, from->address, table, bytes);
}

static struct hub_job coordination_job(const struct coordination *coordination) {
        return (struct hub_job){ .uid = coordination->uid,
                                 .name = coordination->name,
                                 .incarnation = coordination->incarnation,
                                 .number = coordination->number,
                                 .address = HUB_UNKNOWN };
}

static void coordination_pass(const struct coordination *coordination, uint32_t from,
                              const struct hub_letter *letter) {
        const struct coordinators_config *config = &coordination->table->config;
        const struct hub_letter passed = { from, letter->bytes, letter->size };
        const struct hub_job job = coordination_job(coordination);
        struct attachment *attachment;

        if (letter->node == HUB_COORDINATOR && config->posted != NULL)
                config->posted(config->data, &job, &passed);
        list_for_each(attachment, &coordination->nodes, link)
                if (attachment->address == letter->node ||
                    (letter->node == HUB_ALL && attachment->address != from))
                        attachment->posted(attachment, &passed);
}

static bool coordinators_pass(struct attachment *from, const struct hub_letter *letter) {
        const struct coordination *coordination = from->coordination;
        uint64_t now = coordination->table->config.clock();

        if (token_bucket_take(&from->letters, LETTERS, now) &&
            (letter->node != HUB_ALL || letter->size <= HUB_WANTS))
                coordination_pass(coordination, from->address, letter);
        return true;
}

static void coordinators_detach(struct attachment *attachment) {
        struct coordination *coordination = attachment->coordination;
        struct coordinators *table = coordination->table;

        list_remove(&attachment->link);
        coordination->n_nodes--;
        if (list_empty(&coordination->nodes)) {
                coordination_free(coordination);
                coordinators_set_due(table);
                return;
        }
        if (attachment->stays)
                return;
        coordinator_lose(&coordination->coordinator, table->config.clock(), attachment->address);
        coordination_run(coordination);
}

static const struct hub_ops coordinators_ops = {
        .attach = coordinators_attach,
        .reserve = coordinators_reserve,
        .renew = coordinators_renew,
        .send = coordinators_send,
        .publish = coordinators_publish,
        .post = coordinators_pass,
        .detach = coordinators_detach,
};

int coordinators_new(const struct coordinators_config *config, struct coordinators **ret) {
        struct coordinators *table = calloc(1, sizeof(*table));

        if (table == NULL)
                return -ENOMEM;
        table->hub.ops = &coordinators_ops;
        table->config = *config;
        if (config->cluster != NULL)
                table->cluster = *config->cluster;
        table->due = UINT64_MAX;
        list_init(&table->list);
        if (effects_init(&table->effects, EFFECTS_ROOM) < 0) {
                free(table);
                return -ENOMEM;
        }
        *ret = table;
        return 0;
}

struct coordinators *coordinators_free(struct coordinators *table) {
        if (table == NULL)
                return NULL;
        assert(list_empty(&table->list));
        effects_deinit(&table->effects);
        free(table);
        return NULL;
}

struct hub *coordinators_hub(struct coordinators *table) {
        return &table->hub;
}

void coordinators_tick(struct coordinators *table) {
        uint64_t now = table->config.clock();
        struct coordination *coordination;

        table->due = UINT64_MAX;
        list_for_each(coordination, &table->list, link) {
                if (coordination->due > now)
                        continue;
                coordination->ticked = now;
                coordinator_tick(&coordination->coordinator, now);
                coordination_run(coordination);
        }
        coordinators_set_due(table);
}

bool coordinators_is_over(const struct attachment *attachment) {
        const struct coordination *coordination = attachment->coordination;

        return coordinator_is_over(&coordination->coordinator);
}

void coordinators_repeat(struct attachment *attachment) {
        coordination_tell(attachment->coordination, attachment);
}

void coordinators_each(const struct coordinators *table, void (*fn)(void *to, const struct hub_job *job),
                       void *to) {
        const struct coordination *coordination;

        list_for_each(coordination, &table->list, link) {
                const struct hub_job job = coordination_job(coordination);

                if (!coordinator_is_over(&coordination->coordinator))
                        fn(to, &job);
        }
}

void coordinators_post(struct coordinators *table, const struct hub_job *job,
                       const struct hub_letter *letter) {
        const struct coordination *coordination = coordinators_find(table, job);

        if (coordination != NULL)
                coordination_pass(coordination, HUB_COORDINATOR, letter);
}

void coordinators_each_node(struct coordinators *table, const struct hub_job *job, hub_node_fn *fn,
                            void *to) {
        const struct coordination *coordination = coordinators_find(table, job);
        const struct attachment *attachment;

        if (coordination == NULL)
                return;
        list_for_each(attachment, &coordination->nodes, link)
                fn(to, attachment->address, attachment->sight);
}
