/* SPDX-License-Identifier: Apache-2.0 */
/* From part to part, and from thing to thing in it: see walk.h. */
#include "session/walk.h"

#include "base/cleanup.h"
#include "session/status.h"

/* Added to the handle of a job that has its coordinator here, but no node: no other job has such a handle. */
#define FAR_JOBS (UINT32_C(1) << 31)

/* The owners of the things in a part: an operator finds its own things first. */
enum whose { WHOSE_ALL, WHOSE_OWN, WHOSE_OTHERS };

struct walk {
        struct answer *answer;
        struct place *place;
        enum whose whose;
        bool found;
};

static bool walk_admits(const struct walk *walk, uid_t uid) {
        const struct session *viewer = walk->answer->viewer;

        if (!session_sees(viewer, uid))
                return false;
        return walk->whose == WHOSE_ALL || (uid == viewer->peer.uid) == (walk->whose == WHOSE_OWN);
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
        status_send_daemon(walk->answer);
        walk_end(walk);
}

static uint64_t walk_until_client(const struct answer *answer) {
        return answer->sessions->next_id;
}

/* A viewer who asks for a job is shown the clients that are in it. */
static bool walk_shows_client(const struct walk *walk, const struct session *client) {
        const char *asked = walk->answer->asked;
        const struct member *member;

        if (!walk_admits(walk, client->peer.uid) || client->state != SESSION_OPEN)
                return false;
        if (status_asks_for_all(asked))
                return true;
        list_for_each(member, &client->members, owner_link)
                if (status_asks_for(asked, member->job->uid, member->job->name))
                        return true;
        return false;
}

static void walk_clients(struct walk *walk) {
        const struct session *client;

        list_for_each(client, &walk->answer->sessions->list, link) {
                if (!walk_is_due(walk, client->id) || !walk_shows_client(walk, client))
                        continue;
                walk_begin(walk, client->id);
                status_send_client(walk->answer, client);
                walk_end(walk);
        }
}

/* All links are one thing, since they have no numbers. */
static void walk_links(struct walk *walk) {
        const struct sessions_cluster *cluster = &walk->answer->sessions->cluster;

        walk_begin(walk, 0);
        if (cluster->links != NULL)
                cluster->links(cluster->data, status_send_link, walk->answer);
        walk_end(walk);
}

static uint64_t walk_until_job(const struct answer *answer) {
        return answer->sessions->config.jobs->next_job;
}

static void walk_jobs(struct walk *walk) {
        struct answer *answer = walk->answer;
        struct job *job;

        list_for_each(job, &answer->sessions->config.jobs->list, link) {
                if (!walk_is_due(walk, job->id) || !walk_admits(walk, job->uid) ||
                    !status_asks_for(answer->asked, job->uid, job->name))
                        continue;
                walk->found = true;
                walk_begin(walk, job->id);
                status_send_whole_job(answer, job);
                walk_end(walk);
        }
}

static void walk_note_far_job(void *to, const struct hub_job *job) {
        uint64_t *newest = to;

        *newest = job->number;
}

static uint64_t walk_until_far_job(const struct answer *answer) {
        const struct sessions_cluster *cluster = &answer->sessions->cluster;
        uint64_t newest = 0;

        if (cluster->each != NULL)
                cluster->each(cluster->data, walk_note_far_job, &newest);
        return newest;
}

static void walk_on_far_job(void *to, const struct hub_job *job) {
        struct walk *walk = to;
        struct answer *answer = walk->answer;

        if (!walk_is_due(walk, job->number) || !walk_admits(walk, job->uid) ||
            !status_asks_for(answer->asked, job->uid, job->name) ||
            peers_find_job(answer->sessions, job) != NULL)
                return;
        struct view *view = views_find(answer->sessions->views, job, VIEW_OTHERS, 0);
        if (view == NULL)
                return;
        walk_begin(walk, job->number);
        walk->found |= peer_rows_send_job(view, FAR_JOBS | (uint32_t)job->number, answer_row, answer);
        walk_end(walk);
}

/* Those with their coordinator here, and no node. */
static void walk_far_jobs(struct walk *walk) {
        const struct sessions_cluster *cluster = &walk->answer->sessions->cluster;

        if (walk->answer->whole && cluster->each != NULL)
                cluster->each(cluster->data, walk_on_far_job, walk);
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
        { walk_far_jobs, walk_until_far_job, WHOSE_OWN },
        { walk_far_jobs, walk_until_far_job, WHOSE_OTHERS },
};

bool walk(struct answer *answer, struct place *place, bool *ret_found) {
        struct walk walk = { .answer = answer, .place = place, .found = status_asks_for_all(answer->asked) };

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
