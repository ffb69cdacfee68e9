/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who belongs to a job, with which rank, in which generation: decided here and nowhere else, as a pure state
 * machine. Requests, deaths and the time go in; a changed state and refusals come out. No socket, no clock,
 * no allocation (the memory is the caller's), so that the same object can be driven by a daemon, by a
 * simulator or by a coordinator on another host.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/frame.h"

enum membership_state {
        MEMBERSHIP_FORMING,   /* collecting members; ranks are not assigned yet */
        MEMBERSHIP_FORMED,    /* ranks are assigned and final for this generation */
        MEMBERSHIP_REPLACING, /* the generation has lost a member: nothing can be committed in it any more;
                                 places are kept for those who come back, and the next generation forms with
                                 them, or without */
        MEMBERSHIP_BROKEN,    /* there will be no next generation */
};

struct membership_request {
        uint64_t member; /* stable id, chosen by the caller, never reused */
        int32_t pid;     /* for people */
        uint32_t min_world, max_world;
        bool has_rank, has_slot;
        uint32_t rank, slot; /* granted or refused, never replaced */
        bool spare;          /* waits for a place where there is none; asks for no rank and no slot */
        bool returns; /* comes back to `rank`, for which it need not have asked, if that place is vacant */
        uint64_t incarnation;
        uint64_t timeout;   /* us; 0: wait for ever */
        uint64_t last_call; /* us to wait for more members once min_world are there */
        uint64_t grace;     /* us that the place of a lost member is kept; the first member's counts */
        bool adapts;        /* can go on in another generation; in a job with one who cannot there is none */
        uint32_t host, device; /* where it lives; ranks go by host, device, slot. 0 in a job of one node */
        uint64_t identity;     /* who it is across restarts of its process; 0: nobody in particular */
        uint64_t instance;     /* of that identity: the newer one fences the older */
        uint32_t node;         /* the caller's; not looked at here */
};

struct membership_member {
        struct membership_request request;
        uint64_t id;         /* stable: whoever takes over a place inherits it */
        uint64_t deadline;   /* of the wait for the others; UINT64_MAX: none */
        uint32_t rank, slot; /* once formed */
        bool lost;           /* REPLACING: gone; its place is kept until: */
        uint64_t kept;
        bool fresh; /* took a lost one's place over, or waits behind the others: belongs to no generation yet
                     */
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
        uint64_t incarnation;
        uint32_t min_world, max_world;
        uint64_t grace;
        bool busy;     /* REPLACING: set by the loss; the caller clears it once nobody holds anything of the
                          old generation any more */
        bool boundary; /* FORMED: set by the caller while no step is open, so that the world may grow */
        uint32_t n;    /* members, lost ones whose place is kept included */
        uint32_t n_waiting; /* behind them in member[], in order of arrival: spares, and who came after the
                               job had formed */
        uint32_t most;      /* … both together; at most LIMIT_LOCAL */
        struct membership_member *member; /* in order of arrival while forming, by rank afterwards */
        uint64_t last_call; /* when forming ends with spares, or fewer than max_world; UINT64_MAX: not called
                               yet */
        struct membership_loss loss; /* REPLACING and BROKEN: the first one lost */
        uint64_t fenced; /* the member whom the last join has fenced, a newer instance of the same identity;
                            0: nobody */
};

enum membership_event {
        MEMBERSHIP_NOTHING,
        MEMBERSHIP_HAS_FORMED, /* ranks are in member[] */
        MEMBERSHIP_EXPIRED,    /* a member's wait has ended: it is removed, and the refusal says whom it
                                  missed */
        MEMBERSHIP_HAS_BROKEN, /* nobody came back in time, and too few are left */
};

/* The memory, with room for `most` members. The caller gives it before anything else, and may give more
 * between two calls: whoever is there stays. */
void membership_move(struct membership *m, struct membership_member *member, uint32_t most);
/* Begins anew, in the memory that it has. */
void membership_init(struct membership *m, const char *name, uint64_t incarnation);

/* INVALID if no job could grant what is asked for. */
int membership_check(const char *name, const struct membership_request *request, struct refusal *refusal);

/* 0: taken in (membership_tick() tells whether that completed the job). INVALID, RANK_TAKEN, JOB_FULL or
 * STALE otherwise. The caller has checked 1 <= min_world <= max_world <= LIMIT_LOCAL. Whatever becomes of the
 * join: if `fenced` is set, that older process of the same identity has been removed as if lost. */
int membership_join(struct membership *m, const struct membership_request *request, uint64_t now,
                    struct refusal *refusal);

/* Lets time pass; call after every join and when membership_deadline() has come, until it returns
 * MEMBERSHIP_NOTHING. */
enum membership_event membership_tick(struct membership *m, uint64_t now, uint64_t *ret_member,
                                      struct refusal *refusal);
uint64_t membership_deadline(const struct membership *m); /* UINT64_MAX: none */

/* The member has gone, whatever the cause. While forming it just makes room. In a formed job it ends the
 * generation: true then, `loss` is set, and the state says whether another one can follow. A later loss in
 * the same generation gives false; it may still break what was to follow, which membership_tick() tells. */
bool membership_remove(struct membership *m, uint64_t member, uint32_t cause, uint64_t now);

/* The whole generation ends, through no member's fault (SUPERSEDED, SHUTDOWN). True if that broke it. */
bool membership_end(struct membership *m, uint32_t cause);

/* A job that is known from its members' reports, to a coordinator that has just taken over: `world` places in
 * a generation that goes on, with those of `member` (request, id, rank and slot are set) in theirs. The other
 * places are vacant, and kept for the grace from `now` on. */
void membership_restore(struct membership *m, uint32_t generation, uint32_t world,
                        const struct membership_member *member, uint32_t n, uint64_t now);

/* Places that are kept for lost members. */
uint32_t membership_vacant(const struct membership *m);
/* How many of those who wait a larger world has room for. The others wait for somebody to be lost. */
uint32_t membership_fitting(const struct membership *m);

/* Whoever has a place, or waits for one. */
const struct membership_member *membership_find(const struct membership *m, uint64_t member);
/* The member has none: it waits behind the others. */
bool membership_waits(const struct membership *m, uint64_t member);
