/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The members of a job, their ranks, and its generations: they are decided here and nowhere else, by a pure
 * state machine. Requests, deaths and the time go in; a changed state and refusals come out. No socket, no
 * clock, no allocation (the memory is the caller's), so that the same object can be driven by a daemon, by a
 * simulator or by a coordinator on another host.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/frame.h"
#include "rendezvous/machine/nodeset.h"

enum membership_state {
        MEMBERSHIP_FORMING,   /* collecting members; ranks are not assigned yet */
        MEMBERSHIP_FORMED,    /* ranks are assigned and final for this generation */
        MEMBERSHIP_REPLACING, /* the generation has lost a member: nothing can be committed in it any more;
                                 places are kept for members that come back, and the next generation forms
                                 with them, or without */
        MEMBERSHIP_BROKEN,    /* there will be no next generation */
};

struct membership_request {
        uint64_t member; /* chosen by its node: see member_id() */
        int32_t pid;     /* for people */
        uint32_t min_world, max_world;
        bool has_rank, has_slot;
        uint32_t rank, slot; /* granted or refused, never replaced */
        bool spare;          /* waits for a place where there is none; asks for no rank and no slot */
        bool returns; /* comes back to `rank`, for which it need not have asked, if that place is vacant */
        uint64_t incarnation;
        uint64_t timeout;      /* us; 0: wait for ever */
        uint64_t last_call;    /* us to wait for more members once min_world are there */
        uint64_t grace;        /* us that the place of a lost member is kept; the first member's counts */
        uint32_t host, device; /* where it lives; ranks go by host, device, slot. 0 in a job of one node */
        uint64_t identity;     /* the same across restarts of its process; 0: it has none */
        uint64_t instance;     /* of that identity: the newer one fences the older */
        uint32_t node;         /* the caller's; not looked at here */
};

/* How much a member's state holds: the generation that committed its last step, and how many steps of the job
 * were committed by then. All 0: nothing. */
struct tag {
        uint64_t incarnation, term;
        uint32_t generation;
        uint64_t step;
        bool checkpoint; /* read from a file: counts only if all have the same, or else rank 0's state does */
        uint64_t plans;  /* tells apart nodes that left a generation with steps of different plans; 0 on one
                            node */
};

/* How a member stands. The first four have no place and wait for none. */
enum seat_state {
        SEAT_ASKS,    /* is reported, and has no answer yet */
        SEAT_CLAIMS,  /* is reported as a member of its generation, to a coordinator that has just begun */
        SEAT_REFUSED, /* is not taken, or no longer */
        SEAT_FENCED,  /* is not taken, because a newer process of its identity has come */
        SEAT_WAITING, /* a spare, or one that came after the job had formed: for a place, or a larger world */
        SEAT_HELD,    /* has a place, in the generation that there is, or was last */
        SEAT_TAKEN,   /* has taken a lost one's place over: belongs to no generation yet */
        SEAT_LOST,    /* is gone; its place is kept */
        SEAT_GONE,    /* is gone; no member can take its place, because there is no next generation */
        N_SEAT_STATES,
};

/* Everything that is known of a member. */
struct seat {
        struct membership_request request;
        struct tag tag;
        uint64_t id;       /* stable: a member that takes over a place inherits it */
        uint64_t deadline; /* of the wait for the others; UINT64_MAX: none */
        uint64_t kept;     /* of the place of a lost member: until when */
        uint32_t rank, slot;
        enum seat_state state;
        bool in;     /* belongs to the generation of its node, as that has said last */
        bool behind; /* has to take another member's state, and has not reported that it has */
};

struct membership_loss {
        uint64_t member;
        uint32_t rank;
        int32_t pid;
        uint32_t cause; /* WIRE__CAUSE__… */
};

struct membership {
        enum membership_state state;
        const char *name;    /* of the job, for refusals; the caller's */
        uint32_t generation; /* 0 while forming for the first time */
        /* The highest id of a place so far. After a take-over it is the highest reported one: the id of a
         * place that was given up before may come again. */
        uint64_t last_id;
        uint64_t incarnation;
        uint32_t min_world, max_world;
        uint64_t grace;
        bool busy;     /* REPLACING: set by the loss; the caller clears it once nothing of the old generation
                          is held any more */
        bool boundary; /* FORMED: set by the caller while no step is open, so that the world may grow */
        uint32_t n;    /* places, those that are kept included */
        uint32_t n_waiting; /* after them in seat[], in order of arrival */
        uint32_t most;      /* limit of both together; at most LIMIT_WORLD */
        uint32_t noted;     /* the seat after the one that was noted last: members are reported in order */
        uint32_t n_others;  /* after those: members without a place, the latest first */
        struct seat *seat;  /* most + 1; places in order of arrival while forming, by rank afterwards */
        uint64_t last_call; /* when forming ends with spares, or fewer than max_world; UINT64_MAX: not called
                               yet */
        struct membership_loss
                loss;    /* that has ended the generation: of its first lost member. All 0: none; the caller
                            clears it when the next generation is under way */
        uint64_t fenced; /* the member that the last join has fenced, as an older instance of its identity; 0:
                            none */
};

enum membership_event {
        MEMBERSHIP_NOTHING,
        MEMBERSHIP_HAS_FORMED, /* ranks are in member[] */
        MEMBERSHIP_EXPIRED,    /* a member's wait has ended: it is removed, and the refusal names those that
                                  it missed */
        MEMBERSHIP_HAS_BROKEN, /* no member came back in time, and too few are left */
};

/* The memory: most + 1 seats. The caller gives it before anything else, and may give more between two calls:
 * the members that are there stay. */
void membership_move(struct membership *m, struct seat *seat, uint32_t most);
/* Begins anew, in the memory that it has. */
void membership_init(struct membership *m, const char *name, uint64_t incarnation);

/* INVALID if no job could grant what is asked for. */
int membership_check(const char *name, const struct membership_request *request, struct refusal *refusal);

/* Refuses a member that ASKS, for a reason of the caller's. */
void membership_turn_away(struct membership *m, uint64_t member);

/* Notes that the member is reported. Returns its seat, or a new one that ASKS. Returns NULL if there is no
 * room, as if the member had not been reported. */
struct seat *membership_note(struct membership *m, const struct membership_request *request);

/* 0: taken in (membership_tick() shows whether that completed the job). INVALID, RANK_TAKEN, JOB_FULL or
 * STALE otherwise. The caller has checked 1 <= min_world <= max_world <= LIMIT_WORLD. A member that was noted
 * keeps its seat if it is refused. If `fenced` is set, that older process of the same identity has been
 * removed as if lost, even if the join is refused. */
int membership_join(struct membership *m, const struct membership_request *request, uint64_t now,
                    struct refusal *refusal);

/* Lets time pass; call after every join and when membership_deadline() has come, until it returns
 * MEMBERSHIP_NOTHING. */
enum membership_event membership_tick(struct membership *m, uint64_t now, uint64_t *ret_member,
                                      struct refusal *refusal);
uint64_t membership_deadline(const struct membership *m); /* UINT64_MAX: none */

/* The member has gone, whatever the cause. While forming it just makes room. In a formed job it ends the
 * generation: true then, `loss` is set, and the state says whether another one can follow. A later loss in
 * the same generation gives false; it may still break what was to follow, which membership_tick() shows. */
bool membership_remove(struct membership *m, uint64_t member, uint32_t cause, uint64_t now);

/* Notes the loss that the generation ends for, unless it has lost a member before. */
void membership_note_loss(struct membership *m, struct membership_loss loss);
/* The whole generation ends, through no member's fault (SUPERSEDED, SHUTDOWN). True if that broke it. */
bool membership_end(struct membership *m, uint32_t cause);

/* No member that is here has a place any more; each asks for one. */
void membership_disperse(struct membership *m);
/* A job that is known from its members' reports, to a coordinator that has just taken over: `world` places in
 * a generation that goes on. Members that claim a place (tag, id, rank and slot are set) have it; the other
 * places are vacant. Those whose ranks are in `abandoned` were left; the others are kept for the grace from
 * `now` on. */
void membership_restore(struct membership *m, uint32_t generation, uint32_t world, struct nodeset abandoned,
                        uint64_t now);

/* Places that are kept for lost members. */
uint32_t membership_vacant(const struct membership *m);
/* Returns how many of the waiting members a larger world has room for. The others wait for a member to be
 * lost. */
uint32_t membership_fitting(const struct membership *m);

/* Returns the seat of a member that is here, in any state; NULL: it has none. */
struct seat *membership_find(const struct membership *m, uint64_t member);
uint32_t membership_all(const struct membership *m); /* seats */
/* The only writer of that state. */
void seat_set_state(struct seat *seat, enum seat_state state);
