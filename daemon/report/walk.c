/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of things in an answer to STATUS, and the place where a piece of it begins. The daemon remembers
 * nothing between pieces: the client brings the place. Within each part things come by number. Things that
 * are newer than the beginning of the part are left out, so a walk ends, and a thing that is there all the
 * time comes once.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "report/private.h"

#define PIECE_BYTES (96u << 10) /* of frames; the piece ends with the one that goes beyond */
#define PIECE_TIME 500u         /* us; the same */

/* Added to the handle of a job that has its coordinator here, but no node: no other job has such a handle. */
#define COORDINATED_JOBS (UINT32_C(1) << 31)

/* The owners of the things in a part: an operator finds its own things first. */
enum whose { WHOSE_ALL, WHOSE_OWN, WHOSE_OTHERS };

struct place {
        uint32_t part, row;
        uint64_t thing, until;
};

struct walk {
        struct answer *answer;
        struct place *place;
        enum whose whose;
        bool found;
};

static bool walk_takes(const struct walk *walk, uid_t uid) {
        return walk->whose == WHOSE_ALL ||
               (uid == walk->answer->query->viewer.uid) == (walk->whose == WHOSE_OWN);
}

static bool walk_is_due(const struct walk *walk, uint64_t thing) {
        const struct place *place = walk->place;

        return !walk->answer->full && thing >= place->thing && thing <= place->until;
}

/* The rows that follow belong to this thing. */
static void walk_begin(struct walk *walk, uint64_t thing) {
        struct place *place = walk->place;

        answer_begin(walk->answer, thing == place->thing ? place->row : 0);
        place->thing = thing;
}

static void walk_end(struct walk *walk) {
        walk->place->row = walk->answer->at;
}

static uint64_t walk_until_here(const struct answer *answer) {
        return 0;
}

static void walk_daemon(struct walk *walk) {
        walk_begin(walk, 0);
        daemon_rows_send(walk->answer);
        walk_end(walk);
}

static uint64_t walk_until_client(const struct answer *answer) {
        return answer->query->reports->last_client;
}

/* A viewer who asks for a job is shown the clients that are in it. */
static bool walk_shows_client(const struct walk *walk, const struct client *client) {
        const struct query *query = walk->answer->query;
        const struct member *member;

        if (!client->open || !walk_takes(walk, client->uid) || !query_sees(query, client->uid))
                return false;
        if (query_is_for_all(query))
                return true;
        list_for_each(member, &client->members, owner_link)
                if (query_is_for(query, member->job->uid, member->job->name))
                        return true;
        return false;
}

static void walk_clients(struct walk *walk) {
        const struct client *client;

        list_for_each(client, &walk->answer->query->reports->clients, link) {
                if (!walk_is_due(walk, client->id) || !walk_shows_client(walk, client))
                        continue;
                walk_begin(walk, client->id);
                daemon_rows_send_client(walk->answer, client);
                walk_end(walk);
        }
}

/* All links are one thing, since they have no numbers. */
static void walk_links(struct walk *walk) {
        const struct reports_cluster *cluster = &walk->answer->query->reports->cluster;

        walk_begin(walk, 0);
        if (cluster->links != NULL)
                cluster->links(cluster->data, daemon_rows_send_link, walk->answer);
        walk_end(walk);
}

static uint64_t walk_until_job(const struct answer *answer) {
        return answer->query->reports->config.jobs->next_job;
}

static void walk_jobs(struct walk *walk) {
        struct answer *answer = walk->answer;
        struct job *job;

        list_for_each(job, &answer->query->reports->config.jobs->list, link) {
                if (!walk_is_due(walk, job->id) || !walk_takes(walk, job->uid) ||
                    !query_covers(answer->query, job->uid, job->name))
                        continue;
                walk->found = true;
                walk_begin(walk, job->id);
                status_send_job(answer, job);
                walk_end(walk);
        }
}

static void walk_note_coordinated_job(void *to, const struct hub_job *job) {
        uint64_t *newest = to;

        *newest = job->number;
}

static uint64_t walk_until_coordinated_job(const struct answer *answer) {
        const struct reports_cluster *cluster = &answer->query->reports->cluster;
        uint64_t newest = 0;

        if (cluster->each != NULL)
                cluster->each(cluster->data, walk_note_coordinated_job, &newest);
        return newest;
}

static void walk_on_coordinated_job(void *to, const struct hub_job *name) {
        struct walk *walk = to;
        struct answer *answer = walk->answer;

        if (!walk_is_due(walk, name->number) || !walk_takes(walk, name->uid) ||
            !peers_covers_remote(answer->query, name))
                return;
        struct view *view = views_find(answer->query->reports->views, name, VIEW_OTHERS, 0);
        if (view == NULL)
                return;
        walk_begin(walk, name->number);
        walk->found |= peer_rows_send_job(answer, view, COORDINATED_JOBS | (uint32_t)name->number);
        walk_end(walk);
}

/* Those with their coordinator here, and no node. */
static void walk_coordinated_jobs(struct walk *walk) {
        const struct reports_cluster *cluster = &walk->answer->query->reports->cluster;

        if (cluster->each != NULL)
                cluster->each(cluster->data, walk_on_coordinated_job, walk);
}

static const struct {
        void (*tell)(struct walk *walk);
        uint64_t (*until)(const struct answer *answer);
        enum whose whose;
} parts[] = {
        { walk_daemon, walk_until_here, WHOSE_ALL },
        { walk_clients, walk_until_client, WHOSE_OWN },
        { walk_clients, walk_until_client, WHOSE_OTHERS },
        { walk_links, walk_until_here, WHOSE_ALL },
        { walk_jobs, walk_until_job, WHOSE_OWN },
        { walk_jobs, walk_until_job, WHOSE_OTHERS },
        { walk_coordinated_jobs, walk_until_coordinated_job, WHOSE_OWN },
        { walk_coordinated_jobs, walk_until_coordinated_job, WHOSE_OTHERS },
};

/* Fills the answer from that place on. True when there is nothing left, else *place is where the next piece
 * begins. *ret_found is set if the job asked for is in it. */
static bool walk_from(struct place *place, struct answer *answer, bool *ret_found) {
        struct walk walk = { .answer = answer, .place = place, .found = query_is_for_all(answer->query) };

        for (; place->part < array_size(parts); *place = (struct place){ .part = place->part + 1 }) {
                if (place->until == 0)
                        place->until = parts[place->part].until(answer);
                walk.whose = parts[place->part].whose;
                parts[place->part].tell(&walk);
                if (answer->full)
                        break;
        }
        *ret_found = walk.found;
        return !answer->full;
}

static struct place walk_place(const Wire__StatusPlace *from) {
        return (struct place){
                .part = from->part, .row = from->row, .thing = from->thing, .until = from->until
        };
}

void reports_status(const struct query *query, const Wire__StatusPlace *from) {
        struct place place = from != NULL ? walk_place(from) : (struct place){ 0 };
        struct answer answer = answer_to(query);
        Wire__StatusPlace next = WIRE__STATUS_PLACE__INIT;
        Wire__StatusEnd end = WIRE__STATUS_END__INIT;
        bool found;

        answer.whole = true;
        answer.most = PIECE_BYTES;
        answer.end = answer.now + PIECE_TIME;
        if (!walk_from(&place, &answer, &found)) {
                SET(next, part, place.part);
                SET(next, thing, place.thing);
                SET(next, row, place.row);
                SET(next, until, place.until);
                end.next = &next;
        }
        SET(end, found, found);
        query->row(query->data, WIRE__MESSAGE_TYPE__STATUS_END, &end.base);
}
