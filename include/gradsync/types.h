/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results, element types and reductions of gradsync.h, which includes this file and is the manual. A
 * program includes <gradsync/gradsync.h>.
 */
#ifndef GRADSYNC_TYPES_H
#define GRADSYNC_TYPES_H

#define GRADSYNC_VERSION_MAJOR 0
#define GRADSYNC_VERSION_MINOR 1

enum gradsync_result { /* equal to enum Code of the protocol */
                       GRADSYNC_OK = 0,
                       /* nothing is wrong; call again */
                       GRADSYNC_AGAIN = 1,       /* non-blocking handle: not finished yet */
                       GRADSYNC_INTERRUPTED = 2, /* a signal handler ran during the wait: call again */
                       GRADSYNC_TIMEOUT = 3,     /* others did not come in time; the text names them */
                       /* outcome of a step */
                       GRADSYNC_VOID_RETRY = 10,  /* no member committed it: compute it again, from the
                                                     same samples */
                       GRADSYNC_VOID_BEHIND = 11, /* the same, and a new member has no state: first
                                                     gradsync_sync_state() */
                       /* this call */
                       GRADSYNC_INVALID = 20, /* an argument is wrong */
                       GRADSYNC_STATE = 21,   /* right arguments, wrong moment: for example ready
                                                 twice, or finish before ready */
                       GRADSYNC_NO_MEMORY = 22,
                       GRADSYNC_FORKED = 23,      /* the handle belongs to the parent process */
                       GRADSYNC_UNSUPPORTED = 24, /* this version cannot do it; the text says what */
                       GRADSYNC_QUOTA = 25,       /* more than the daemon grants this user */
                       GRADSYNC_SYSTEM = 26,      /* a system call failed; the text names it */
                       /* the job */
                       GRADSYNC_PLAN_MISMATCH = 30, /* members disagree; the text names the rank and the first
                                                       parameter */
                       GRADSYNC_OPERATION_MISMATCH = 31, /* members made different calls; the text names a
                                                            rank and both calls */
                       GRADSYNC_RANK_TAKEN = 32,         /* the text names the process that has it */
                       GRADSYNC_JOB_FULL = 33,
                       GRADSYNC_STALE = 34,       /* an older incarnation or generation than the job's */
                       GRADSYNC_MEMBER_LOST = 35, /* the job is over; the text names the member that it lost,
                                                     and why */
                       GRADSYNC_DEADLOCK = 36,    /* the job is over: members waited for each other; the text
                                                     says which, and each in what */
                       /* the connection */
                       GRADSYNC_NO_DAEMON = 40, /* no daemon listens; the text names every socket tried */
                       GRADSYNC_DENIED = 41,    /* no permission */
                       GRADSYNC_VERSION = 42,   /* daemon and library have no protocol version in common */
                       GRADSYNC_PROTOCOL = 43,
                       GRADSYNC_DAEMON_LOST = 44
};

/*
 * Element types. f16 is IEEE binary16, bf16 the upper half of an f32; both are stored as uint16_t
 * and added in f32.
 */
enum gradsync_dtype {
        GRADSYNC_F32 = 1,
        GRADSYNC_F64 = 2,
        GRADSYNC_F16 = 3,
        GRADSYNC_BF16 = 4,
        GRADSYNC_I32 = 5,
        GRADSYNC_I64 = 6,
        GRADSYNC_U8 = 7
};

/*
 * How the members' elements are combined, in the order of ranks. Floating-point types: AVG
 * multiplies each input by 1/divisor before it adds; MIN and MAX give NaN where an input has one.
 * Integers wrap; AVG of integers is refused.
 */
enum gradsync_reduce {
        GRADSYNC_AVG = 1,
        GRADSYNC_SUM = 2,
        GRADSYNC_MIN = 3,
        GRADSYNC_MAX = 4,
        GRADSYNC_PROD = 5
};

#endif
