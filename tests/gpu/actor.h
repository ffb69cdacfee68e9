/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An actor is one process of one fact. The fact's own process asks the question and writes the answer; it may
 * start peers, which it talks to over a socket, one message at a time, in an order that both know. A call
 * that fails where it should not ends the fact with the answer "error" and the name of the call; there is
 * nothing to clean up, because the probe ends all processes of a fact.
 */
#pragma once

#include "board.h"
#include "driver.h"
#include "options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct actor {
        const struct options *options;
        struct board *board;
        int board_fd;
        unsigned place;
        unsigned peers; /* started so far */
        int channel;    /* to the process that started this one; -1: the probe did */
        struct driver cu;
        CUdevice device;
        CUfunction kernel[KERNELS];
};

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

/* Runs a role: never returns. */
typedef void actor_run(struct actor *actor);

/* Plays the role that the options name, with `run`. */
_Noreturn void actor_play(const struct options *options, actor_run *run);

/* Notes what this process is about to do. If it hangs or crashes there, the answer says so. NULL: its own
 * code again. */
void actor_doing(struct actor *actor, const char *what);

/* Adds to the fact's detail. */
void actor_note(struct actor *actor, const char *format, ...) __attribute__((format(printf, 2, 3)));

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

/* Starts a peer. With `other_uid` it is another user from its first instruction; only root can do that:
 * "skipped" otherwise. */
struct peer peer_start(struct actor *actor, const char *role, bool other_uid);

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
