/* SPDX-License-Identifier: Apache-2.0 */
/* Orders and reports with something in every field, by chance: valid ones of each kind. */
#pragma once

#include "unit.h"

#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/machine/message.h"

static uint64_t seed = 1;

static inline uint64_t noise(void) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return seed * UINT64_C(0x9E3779B97F4A7C15);
}

/* Small numbers, large ones and all between. */
static inline uint64_t any(void) {
        return noise() >> noise() % 64;
}

static inline uint64_t number(void) {
        return any() & (LIMIT_NUMBER - 1);
}

/* A member of that node. */
static inline uint64_t member_for(uint32_t node) {
        return member_id(node, any(), any() | 1);
}

static inline uint32_t below(uint32_t n) {
        return (uint32_t)((noise() >> 32) * n >> 32);
}

static inline struct generation any_generation(void) {
        return (struct generation){ number(), 1 + (uint32_t)any() % LIMIT_GENERATION, (uint32_t)any() };
}

static inline struct tag any_tag(void) {
        return (struct tag){ any(), any(), (uint32_t)any(), number(), below(2), any() };
}

static inline struct report_member any_member(const struct report *m) {
        uint32_t most = 1 + below(LIMIT_WORLD);
        bool inside = m->world > 0 && below(2) == 0;

        return (struct report_member){
                .request = { .member = member_for(m->from),
                             .pid = (int32_t)any(),
                             .min_world = 1 + below(most),
                             .max_world = most,
                             .has_rank = below(2),
                             .has_slot = below(2),
                             .rank = below(LIMIT_WORLD),
                             .slot = below(LIMIT_WORLD),
                             .spare = below(2),
                             .returns = below(2),
                             .incarnation = any(),
                             .timeout = number(),
                             .last_call = number(),
                             .grace = number(),
                             .host = m->host,
                             .device = m->device,
                             .identity = any(),
                             .instance = any(),
                             .node = m->from },
                .tag = any_tag(),
                .rank = inside ? below(m->world) : (uint32_t)any(),
                .slot = below(LIMIT_WORLD),
                .id = any(),
                .in = inside,
                .behind = below(2),
                .leaving = below(2),
        };
}

/* Of 0 to `most`, often none and often all. */
static inline uint32_t some(uint32_t most) {
        uint32_t kind = below(4);

        return kind == 0 ? 0 : kind == 1 ? most : kind == 2 ? below(9) % (most + 1) : below(most + 1);
}

static inline void any_refusal(struct refusal *ret, uint32_t code) {
        *ret = (struct refusal){
                .code = code, .has_culprit = below(2), .rank = (uint32_t)any(), .pid = (int32_t)any()
        };
        memset(ret->text, 't', some(sizeof(ret->text) - 1));
        memset(ret->parameter, 'p', some(LIMIT_NAME));
}

static inline void any_facts(struct plan_facts *ret) {
        *ret = (struct plan_facts){ .prefix = any(),
                                    .n_params = some(LIMIT_PARAMS),
                                    .n_buckets = some(LIMIT_BUCKETS),
                                    .reduce = below(WIRE__REDUCE__PROD + 1),
                                    .voids = below(2),
                                    .placed = below(2),
                                    .dtype = below(WIRE__DTYPE__U8 + 1),
                                    .dims = some(LIMIT_DIMS),
                                    .bucket = (uint32_t)any(),
                                    .bytes = any(),
                                    .rank = (uint32_t)any(),
                                    .pid = (int32_t)any() };
        ret->index = below(facts_entries(ret) + 1);
        for (uint32_t i = 0; i < ret->dims; i++)
                ret->shape[i] = any();
        if (ret->index < ret->n_params)
                memset(ret->name, 'n', 1 + below(LIMIT_NAME));
}

/* In as many words as the bitmaps need, or more; the node is in the first one. */
static inline uint32_t fill_nodes(uint32_t node, uint64_t set[NODESET_WORDS], uint64_t links[NODESET_WORDS]) {
        uint32_t n = some(NODESET_WORDS);

        n += n == 0;
        for (uint32_t i = 0; i < n; i++) {
                set[i] = below(2) == 0 ? any() : UINT64_MAX;
                links[i] = below(2) == 0 ? 0 : any();
        }
        set[0] |= UINT64_C(1) << node;
        return n;
}

/* ---- orders ---- */

/* By rank. */
static inline void order_fill_members(struct order *m) {
        if (m->n_members > 0 && m->world < m->n_members)
                m->world = LIMIT_WORLD;
        for (uint32_t i = 0; i < m->n_members; i++)
                m->member_of[i] = (struct order_member){ .member = member_for(m->to),
                                                         .tag = any_tag(),
                                                         .rank = i * (m->world / m->n_members),
                                                         .slot = below(LIMIT_WORLD),
                                                         .id = any(),
                                                         .behind = below(2) };
}

static inline void order_fill_plans(struct order *m) {
        m->n_plans = some(LIMIT_PLANS);
        for (uint32_t i = 0; i < m->n_plans; i++) {
                m->plan[i] = (struct order_plan){ .digest = any(),
                                                  .ordinal = (uint32_t)any(),
                                                  .track = below(2) ? TRACK_STEP + i : 0,
                                                  .open = below(2),
                                                  .kept = below(2),
                                                  .before = number() };
                if (!m->plan[i].open || !track_is_step(m->plan[i].track) || m->plan[i].track >= m->n_tracks)
                        continue;
                m->plan[i].unit = 1 + any() / 4;
                m->plan[i].turn = (any() >> 8) * 64 + i + 1;
        }
}

static inline void order_fill_tail(struct order *m) {
        switch (m->kind) {
        case ORDER_NEWGEN:
                m->n_members = some(LIMIT_WORLD);
                order_fill_members(m);
                for (unsigned i = 0; i < sizeof(m->secret) && below(2); i++)
                        m->secret.byte[i] = (uint8_t)any();
                break;
        case ORDER_REFUSE: any_refusal(&m->refusal, m->end != JOB_END_NONE ? (uint32_t)any() | 1 : 0); break;
        case ORDER_REJECT:
                m->ordinal = (uint32_t)any();
                any_refusal(&m->refusal, (uint32_t)any() | 1);
                break;
        case ORDER_EXPLAIN:
                m->note = below(2) ? NOTE_FACTS : NOTE_LACKS;
                m->ordinal = (uint32_t)any();
                m->index = (uint32_t)any();
                break;
        case ORDER_PLACES:
                m->places = (struct order_places){ .places.grace = number(), .n_waiting = some(LIMIT_SEATS) };
                for (uint32_t i = 0; i < LIMIT_VACANT / 64; i++)
                        m->places.places.vacant[i] = any();
                for (uint32_t i = 0; i < m->places.n_waiting; i++)
                        m->places.waiting[i] = member_for(m->to);
                break;
        default: break;
        }
}

/* A valid one of that kind, with something in every field. The rest is 0. */
static inline void make_order(struct order *m, enum order_kind kind) {
        memset(m, 0, sizeof(*m));
        m->kind = kind;
        m->to = below(64);
        m->instance = any();
        m->term = number() | 1;
        m->round = number();
        m->stamp = number() | 1;
        m->generation = any_generation();
        m->comm = any_generation();
        for (uint32_t lane = some(LIMIT_LANES); lane-- > 0;)
                m->seq[lane] = number();
        for (uint32_t lane = some(LIMIT_LANES); lane-- > 0;)
                m->go[lane] = number();
        m->history = any_tag();
        m->behind = below(2);
        m->torn = below(2);
        m->world = 1 + below(LIMIT_WORLD);
        m->source = below(m->world);
        m->end = below(N_JOB_ENDS);
        m->loss = (struct membership_loss){ any(), (uint32_t)any(), (int32_t)any(), (uint32_t)any() };
        m->member = member_for(m->to);
        m->next_plan = (uint32_t)any();
        m->n_tracks = some(LIMIT_TRACKS);
        for (uint32_t i = 0; i < m->n_tracks; i++)
                m->mark[i] = number();
        m->n_words = fill_nodes(m->to, m->set, m->links);
        order_fill_plans(m);
        order_fill_tail(m);
        assert_true(order_valid(m));
}

/* ---- reports ---- */

static inline void report_fill_members(struct report *m) {
        for (uint32_t i = 0; i < m->n_members; i++)
                m->member_of[i] = any_member(m);
}

static inline void report_fill_plans(struct report *m) {
        m->n_plans = some(LIMIT_PLANS);
        for (uint32_t i = 0; i < m->n_plans; i++) {
                m->plan[i] = (struct report_plan){ .digest = any(),
                                                   .ordinal = (uint32_t)any(),
                                                   .track = below(2) ? TRACK_STEP + i : 0,
                                                   .open = below(2),
                                                   .voids = below(2),
                                                   .before = number() };
                if (!m->plan[i].open || !track_is_step(m->plan[i].track) || m->plan[i].track >= m->n_tracks)
                        continue;
                m->plan[i].unit = m->committed[m->plan[i].track] + 1;
                m->plan[i].turn = below(2) ? (any() >> 8) * 64 + i + 1 : 0;
        }
}

static inline void report_fill_note(struct report *m) {
        m->note = below(N_NOTES);
        m->ordinal = (uint32_t)any();
        if (m->note == NOTE_FACTS)
                any_facts(&m->about.facts);
        else if (m->note == NOTE_LACKS || m->note == NOTE_FAILED)
                any_refusal(&m->about.refusal, (uint32_t)any() | 1);
        else if (m->note == NOTE_LATE)
                m->about.waited = number() | 1;
}

/* On some lanes launches are agreed on. */
static inline void report_fill_lanes(struct report *m) {
        for (uint32_t lane = some(LIMIT_LANES); lane-- > 0;)
                m->seq[lane] = number();
        for (uint32_t lane = some(LIMIT_LANES); lane-- > 0;) {
                m->go[lane] = m->seq[lane] + below(3);
                m->ready[lane] = m->go[lane] + below(LIMIT_WINDOW - 1);
        }
}

static inline void make_report(struct report *m, enum report_kind kind) {
        memset(m, 0, sizeof(*m));
        m->kind = kind;
        m->from = below(64);
        m->instance = any();
        m->term = number() | 1;
        m->round = number();
        m->stamp = number() | 1;
        m->generation = any_generation();
        m->comm = any_generation();
        report_fill_lanes(m);
        m->history = any_tag();
        m->host = (uint32_t)any();
        m->device = (uint32_t)any();
        m->engine = (uint32_t)any();
        m->origin = below(N_ORIGINS);
        m->running = below(2);
        m->wait = below(2);
        m->away = below(2);
        m->behind = below(2);
        m->torn = below(2);
        m->cause = (uint32_t)any();
        m->world = 1 + below(LIMIT_WORLD);
        m->end = below(N_JOB_ENDS);
        m->next_plan = (uint32_t)any();
        m->n_tracks = some(LIMIT_TRACKS);
        for (uint32_t i = 0; i < m->n_tracks; i++) {
                m->mark[i] = number();
                m->committed[i] = number();
                m->prepared[i] = m->committed[i] + below(2);
        }
        m->n_words = fill_nodes(m->from, m->set, m->links);
        report_fill_plans(m);
        m->n_members = some(LIMIT_SEATS);
        report_fill_members(m);
        m->n_gone = some(LIMIT_LOCAL);
        for (uint32_t i = 0; i < m->n_gone; i++)
                m->gone[i] = (struct report_gone){ member_for(m->from), (uint32_t)any() };
        report_fill_note(m);
        assert_true(report_valid(m));
}
