/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may coordinate: a candidate that holds leases from a majority of the listed daemons, each of which
 * grants one lease at a time. A term names its candidate, so that two candidates never have the same one; and
 * a candidate that starts anew begins above all terms that it can have had before.
 *
 * Beside the lease the listed daemons keep the latest generation that a coordinator was about to make. A
 * candidate that takes over learns of it from any majority, and does not go on from an older one that
 * happened to answer first.
 */
#pragma once

#include "rendezvous/effects.h"

/* A daemon's promise: nobody else gets a lease from it before `until`. */
struct voter {
        uint64_t term;
        uint32_t holder;
        uint64_t until;
        struct generation record;
        struct nodeset record_set;
};

struct tenure {
        uint32_t self, n; /* address, and length of the list */
        struct machine_times times;
        struct outlet out;
        struct voter voter;
        uint64_t floor; /* terms of this run are above it */
        uint64_t seen;  /* the highest term heard of */
        uint64_t term;  /* asked for or held */
        bool seeking, serving;
        uint64_t asked, retry;
        uint64_t granted[LIMIT_CANDIDATES]; /* the latest own stamp that was granted; 0: none in this term */
        struct generation recorded[LIMIT_CANDIDATES]; /* what that voter has on record */
        struct generation record;                     /* what the others are asked to put on record */
        struct nodeset record_set;
};

/* The memory: TENURE_SETS sets for addresses below `nodes`. The caller gives it before anything else, and may
 * give more between two calls: what is on record stays. */
#define TENURE_SETS 2u
void tenure_move(struct tenure *tenure, uint64_t *word, uint32_t nodes);
/* Begins anew, in the memory that it has. `floor`: the largest counter of a term (term >> 8) that any earlier
 * run of this candidate has asked for or granted. It comes from where it outlives the process, and from no
 * clock. */
void tenure_init(struct tenure *tenure, uint32_t self, uint32_t n, const struct machine_times *times,
                 uint64_t floor, uint64_t now, const struct outlet *out);
void tenure_tick(struct tenure *tenure, uint64_t now);
/* Nothing is known of the time since then: a promise made before counts anew. */
void tenure_slept(struct tenure *tenure, uint64_t since, uint64_t now);
void tenure_receive(struct tenure *tenure, uint64_t now, const struct message *message);
/* Until when the leases last: 0 if there is no majority. */
uint64_t tenure_until(const struct tenure *tenure);
/* Somebody has a higher term: the next one of this candidate is above it, and it does not serve in the
 * present one. */
void tenure_exceeded(struct tenure *tenure, uint64_t term, uint64_t now);
/* Asks a majority to remember this generation. */
void tenure_put(struct tenure *tenure, struct generation generation, struct nodeset set, uint64_t now);
bool tenure_has_put(const struct tenure *tenure);
