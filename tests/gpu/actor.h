/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An actor is one process of one fact. The fact's own process asks the question and writes the answer; it may
 * start peers, which it talks to over a socket, one message at a time, in an order that both know. A call
 * that fails where it should not ends the fact with the answer "error" and the name of the call; there is
 * nothing to clean up, because the probe ends all processes of a fact.
 *
 * They share a board. Each process writes there what it is about to do, so that a hang or a crash has a
 * place, and one of them writes the answer. The probe itself never calls into CUDA; it reads the board.
 */
#pragma once

#include "driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
        BOARD_PLACES = 6, /* processes of a fact, at most */
        BOARD_ROLE = 32,
        BOARD_DOING = 64,
        BOARD_ANSWER = 96,
        BOARD_DETAIL = 2048,
        OTHER_UID = 65534, /* the other user's */
};

struct board {
        int32_t answered;          /* 0 no answer, 1 a process writes one, 2 it is there */
        char answer[BOARD_ANSWER]; /* one word, or a figure with its unit */
        char detail[BOARD_DETAIL]; /* grows by notes, separated by "; "; what does not fit is cut off */
        struct {
                int32_t taken;
                int64_t since_ns; /* CLOCK_MONOTONIC, when `doing` began */
                char role[BOARD_ROLE];
                char doing[BOARD_DOING]; /* call or wait; empty: its own code */
        } place[BOARD_PLACES];
};

/* NULL with errno. The caller unmaps it. */
struct board *board_new(void);
bool board_answered(const struct board *board);
/* Lists the processes that are in a call or a wait, such as "importer in cuMemMap for 3.0 s". */
void board_where(const struct board *board, char *text, size_t size);

struct actor {
        const char *root; /* folder that stands for / where files describe the machine */
        const char *role;
        struct board *board;
        unsigned place; /* 0: the fact's own process */
        unsigned peers; /* started so far */
        int channel;    /* to the process that started this one; -1: the probe did */
        struct driver cu;
        cuda_device device;
        cuda_function kernel[KERNELS];
        bool opened; /* the driver: it does not survive a fork */
};

/* Runs a role: never returns. */
typedef void actor_run(struct actor *actor);

enum {
        ACTOR_HARDENED = 1, /* PR_SET_NO_NEW_PRIVS and PR_SET_MDWE, as a hardened unit has them; inherited */
        ACTOR_OTHER_UID = 2,
};

/* Starts a process that is this actor. That of place 0 has a process group of its own, in which its peers
 * stay. Returns its pid, or a negative errno. */
pid_t actor_start(const struct actor *actor, actor_run *run, unsigned flags);

/* Notes what this process is about to do. If it hangs or crashes there, the answer says so. NULL: its own
 * code again. */
void actor_doing(struct actor *actor, const char *what);

/* Adds to the fact's detail. */
void actor_note(struct actor *actor, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds "what: p50 ... us, p99 ... us, worst ... us of n" to the detail, and returns the p50 in microseconds.
 * The samples are nanoseconds, n > 0 of them, and are sorted. */
double actor_note_latency(struct actor *actor, const char *what, int64_t *samples, size_t n);

/* Ends this process with the fact's answer, or with "error" and a reason that is added to the detail. */
_Noreturn void actor_answer(struct actor *actor, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
_Noreturn void actor_fail(struct actor *actor, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sets the answer before something that may not come back; notes can still be added, until actor_end(). */
void actor_decide(struct actor *actor, const char *answer);
_Noreturn void actor_end(struct actor *actor);

/* Called in every turn of a loop that spins: lets others run at times, and ends with the fact. */
void actor_spin(struct actor *actor, unsigned turn);

/* A fact that cannot be asked here: "skipped", and why. */
_Noreturn void actor_skip(struct actor *actor, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ends a peer whose part is over: it stays, with all that it holds, until it is killed. */
_Noreturn void actor_stay(struct actor *actor);

struct peer {
        const char *role;
        pid_t pid;
        int channel;
        unsigned place;
};

enum {
        MESSAGE_WORD = 24,
        MESSAGE_NUMBERS = 6,
        MESSAGE_BYTES = 128,
};

struct message {
        char word[MESSAGE_WORD]; /* what this is; the receiver says which word it expects */
        uint64_t number[MESSAGE_NUMBERS];
        unsigned char bytes[MESSAGE_BYTES];
};

/* Starts a peer, before this process opens the driver. With `other_uid` it is another user from its first
 * instruction; only root can do that: "skipped" otherwise. */
struct peer peer_start(struct actor *actor, const char *role, actor_run *run, bool other_uid);

/* SIGKILL, and waits until it is gone; the detail tells of it. */
void peer_kill(struct actor *actor, struct peer *peer);

/* Messages over a channel (actor->channel or peer->channel). A descriptor goes along if fd >= 0; its sender
 * keeps it. */
void channel_send(struct actor *actor, int channel, const struct message *message, int fd);
void channel_say(struct actor *actor, int channel, const char *word);

/* Wait for the message that begins with `word`, from the process that started this one, or from a peer. A
 * descriptor that comes along is the caller's (fd NULL: none may come). If the starter is gone, a peer just
 * ends; if a peer is gone, the fact is a "crash". */
struct message channel_receive(struct actor *actor, const char *word, int *fd);
struct message peer_receive(struct actor *actor, struct peer *peer, const char *word, int *fd);
