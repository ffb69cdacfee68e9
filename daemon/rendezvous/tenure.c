/* SPDX-License-Identifier: Apache-2.0 */
/* Leases: what a voter promises, and what a candidate makes of a majority of promises. */
#include "rendezvous/tenure.h"

#include <string.h>

#include "rendezvous/planted.h"

#define APART 0xffffffu /* mask: terms that are left out */

/* Candidates ask one after the other, each after the answers to the one before: else all would promise
 * themselves. */
static uint64_t turn(const struct tenure *tenure) {
        return tenure->n > 1 ? (tenure->self + 1) * 3 * tenure->times.heartbeat : 0;
}

void tenure_move(struct tenure *tenure, uint64_t *word, uint32_t nodes) {
        struct nodeset voted = { word, nodeset_words(nodes) }, asked = { word + voted.words, voted.words };

        nodeset_copy(voted, tenure->voter.record_set);
        nodeset_copy(asked, tenure->record_set);
        tenure->voter.record_set = voted;
        tenure->record_set = asked;
}

void tenure_init(struct tenure *tenure, uint32_t self, uint32_t n, const struct machine_times *times,
                 uint64_t floor, uint64_t now, const struct outlet *out) {
        *tenure = (struct tenure){ .voter.record_set = tenure->voter.record_set,
                                   .record_set = tenure->record_set };
        nodeset_clear(tenure->voter.record_set);
        nodeset_clear(tenure->record_set);
        tenure->self = self;
        tenure->n = n;
        tenure->times = *times;
        tenure->out = *out;
        tenure->floor = floor;
        tenure->voter.holder = self;
        if (n == 1)
                return;
        tenure->voter.until = now + times->lease; /* what an earlier run may have promised */
        tenure->voter.term = floor << 8;
        tenure->retry = tenure->voter.until + turn(tenure);
}

/* Adopts what was asked, if the promise allows it. */
static bool voter_grants(struct voter *voter, const struct message *ask, uint64_t now, uint64_t lease) {
        if (ask->term < voter->term)
                return false;
        if (ask->from != voter->holder && !planted(PLANTED_TERM_TWICE) &&
            (ask->term == voter->term || now < voter->until))
                return false;
        voter->term = ask->term;
        voter->holder = ask->from;
        voter->until = now + lease;
        if (generation_compare(ask->generation, voter->record) > 0) {
                voter->record = ask->generation;
                nodeset_copy(voter->record_set, message_set(ask));
        }
        return true;
}

static void answer(struct tenure *tenure, uint64_t now, const struct message *ask) {
        bool granted = voter_grants(&tenure->voter, ask, now, tenure->times.lease);
        struct message reply;

        message_clear(&reply);
        reply.kind = granted ? LEASE_GRANT : LEASE_DENY;
        reply.from = tenure->self;
        reply.to = ask->from;
        reply.term = granted ? ask->term : tenure->voter.term;
        reply.stamp = ask->stamp;
        reply.generation = tenure->voter.record;
        message_name_nodes(&reply, tenure->voter.record_set, (struct nodeset){ 0 });
        reply.instance = ask->instance;
        if (ask->from == tenure->self)
                tenure_receive(tenure, now, &reply);
        else
                effects_send(&tenure->out, &reply);
}

static void ask(struct tenure *tenure, uint64_t now) {
        struct message message;

        message_clear(&message);
        message.kind = LEASE_ASK;
        message.from = tenure->self;
        message.term = tenure->term;
        message.stamp = now;
        message.instance = tenure->floor;
        message.generation = tenure->record;
        message_name_nodes(&message, tenure->record_set, (struct nodeset){ 0 });
        tenure->asked = now;
        for (uint32_t to = 0; to < tenure->n; to++) {
                message.to = to;
                if (to == tenure->self)
                        answer(tenure, now, &message);
                else
                        effects_send(&tenure->out, &message);
        }
}

/* Where others were in later terms than this coordinator can have from its own disk, its state was lost, or
 * an older copy of it was put back. Another such run may follow the same term, so the next one is apart from
 * that by what tells the runs apart. */
static uint64_t next_term(const struct tenure *tenure) {
        uint64_t floor = planted(PLANTED_FORGETS_TERMS) ? 0 : tenure->floor, seen = tenure->seen >> 8,
                 counter = seen > floor ? seen + (floor & APART) : floor;

        return (counter + 1) << 8 | (planted(PLANTED_TERM_TWICE) ? 0 : tenure->self);
}

static void seek(struct tenure *tenure, uint64_t now) {
        tenure->term = next_term(tenure);
        tenure->seen = tenure->term;
        tenure->seeking = true;
        tenure->retry = now + tenure->times.lease + turn(tenure);
        memset(tenure->granted, 0, sizeof(tenure->granted));
        ask(tenure, now);
}

uint64_t tenure_until(const struct tenure *tenure) {
        uint64_t best = 0;

        /* The latest stamp that a majority has granted at least. */
        for (uint32_t i = 0; i < tenure->n; i++) {
                uint32_t as_late = 0;

                for (uint32_t k = 0; k < tenure->n; k++)
                        as_late += tenure->granted[k] >= tenure->granted[i];
                if (as_late * 2 > tenure->n && tenure->granted[i] > best)
                        best = tenure->granted[i];
        }
        return best > 0 ? best + tenure->times.lease : 0;
}

static void step_down(struct tenure *tenure, uint64_t now) {
        tenure->serving = tenure->seeking = false;
        memset(tenure->granted, 0, sizeof(tenure->granted));
        tenure->retry = now + turn(tenure);
}

void tenure_tick(struct tenure *tenure, uint64_t now) {
        if (tenure->serving && now >= tenure_until(tenure))
                step_down(tenure, now);
        if (tenure->serving) {
                if (now >= tenure->asked + tenure->times.heartbeat)
                        ask(tenure, now);
                return;
        }
        if (now < tenure->retry || (tenure->voter.holder != tenure->self && now < tenure->voter.until))
                return;
        seek(tenure, now);
}

static void receive_grant(struct tenure *tenure, uint64_t now, const struct message *grant) {
        if (grant->term != tenure->term || grant->instance != tenure->floor || grant->stamp > now ||
            grant->stamp < tenure->granted[grant->from] || !(tenure->seeking || tenure->serving))
                return;
        tenure->granted[grant->from] = grant->stamp;
        tenure->recorded[grant->from] = grant->generation;
        if (generation_compare(grant->generation, tenure->record) > 0) {
                tenure->record = grant->generation;
                nodeset_copy(tenure->record_set, message_set(grant));
        }
        if (tenure->seeking && now < tenure_until(tenure)) {
                tenure->seeking = false;
                tenure->serving = true;
        }
}

void tenure_slept(struct tenure *tenure, uint64_t since, uint64_t now) {
        if (tenure->n > 1 && tenure->voter.until > since)
                tenure->voter.until = now + tenure->times.lease;
}

void tenure_exceeded(struct tenure *tenure, uint64_t term, uint64_t now) {
        if (term > tenure->seen)
                tenure->seen = term;
        if (term > tenure->term && (tenure->serving || tenure->seeking))
                step_down(tenure, now);
}

void tenure_receive(struct tenure *tenure, uint64_t now, const struct message *message) {
        if (message->from >= tenure->n)
                return;
        if (message->kind == LEASE_ASK) {
                if (message->term > tenure->seen)
                        tenure->seen = message->term;
                answer(tenure, now, message);
        } else if (message->kind == LEASE_GRANT) {
                receive_grant(tenure, now, message);
        } else if (message->kind == LEASE_DENY && tenure->serving) {
                /* A candidate that was cut off has promised itself a term that it cannot serve in: the
                 * others' leases still count. */
                if (message->term > tenure->seen)
                        tenure->seen = message->term;
        } else if (message->kind == LEASE_DENY) {
                tenure_exceeded(tenure, message->term, now);
        }
}

void tenure_put(struct tenure *tenure, struct generation generation, struct nodeset set, uint64_t now) {
        tenure->record = generation;
        nodeset_copy(tenure->record_set, set);
        ask(tenure, now);
}

bool tenure_has_put(const struct tenure *tenure) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < tenure->n; i++)
                n += tenure->granted[i] > 0 && generation_equal(tenure->recorded[i], tenure->record);
        return n * 2 > tenure->n;
}
