/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of one process of a fact: its place on the board, its peers, and its end.
 */
#include "actor.h"

#include "clock.h"
#include "spawn.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

_Noreturn void actor_play(const struct options *options, actor_run *run) {
        static struct actor actor; /* lives as long as the process */
        struct board *board = board_open(options->board);

        if (board == NULL || options->place >= BOARD_PLACES) {
                fprintf(stderr, "probe: --board %d --place %d: no such place on a board\n", options->board,
                        options->place);
                exit(2);
        }
        actor = (struct actor){
                .options = options,
                .board = board,
                .board_fd = options->board,
                .place = (unsigned)options->place,
                .channel = options->channel,
        };
        signal(SIGPIPE, SIG_IGN);
        snprintf(board->place[actor.place].role, BOARD_ROLE, "%s", options->role);
        board_doing(board, actor.place, NULL);
        board->place[actor.place].taken = 1;
        run(&actor);
        actor_fail(&actor, "%s ended without an answer", options->role);
}

void actor_doing(struct actor *actor, const char *what) {
        board_doing(actor->board, actor->place, what);
}

void actor_note(struct actor *actor, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        board_note(actor->board, format, arguments);
        va_end(arguments);
}

static void actor_set_answer(struct actor *actor, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        board_answer(actor->board, format, arguments);
        va_end(arguments);
}

_Noreturn void actor_end(struct actor *actor) {
        actor_doing(actor, "its end");
        _exit(0);
}

_Noreturn void actor_answer(struct actor *actor, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        board_answer(actor->board, format, arguments);
        va_end(arguments);
        actor_end(actor);
}

_Noreturn void actor_fail(struct actor *actor, const char *format, ...) {
        va_list arguments;

        if (!board_answered(actor->board)) {
                va_start(arguments, format);
                board_note(actor->board, format, arguments);
                va_end(arguments);
                actor_set_answer(actor, "error");
        }
        actor_doing(actor, "its end");
        _exit(3);
}

void actor_decide(struct actor *actor, const char *decided) {
        actor_set_answer(actor, "%s", decided);
}

void actor_spin(struct actor *actor, unsigned turn) {
        if (turn % 1024 != 1023)
                return;
        if (board_answered(actor->board))
                _exit(3); /* another process of the fact could not go on */
        sched_yield();
}

_Noreturn void actor_skip(struct actor *actor, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        board_note(actor->board, format, arguments);
        va_end(arguments);
        actor_set_answer(actor, "skipped");
        _exit(0);
}

_Noreturn void actor_stay(struct actor *actor) {
        actor_doing(actor, NULL);
        for (;;)
                pause();
}

struct peer peer_start(struct actor *actor, const char *role, bool other_uid) {
        struct peer peer = { .role = role, .place = ++actor->peers };
        int ends[2];
        struct spawn spawn = {
                .role = role,
                .board = actor->board,
                .board_fd = actor->board_fd,
                .place = peer.place,
                .other_uid = other_uid,
        };

        if (other_uid && geteuid() != 0)
                actor_skip(actor, "only root can start a process of another user");
        if (peer.place >= BOARD_PLACES)
                actor_fail(actor, "%s: no place on the board is left", role);
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                actor_fail(actor, "socketpair: %s", strerror(errno));
        spawn.channel = ends[1];
        peer.channel = ends[0];
        peer.pid = spawn_role(actor->options, &spawn);
        close(ends[1]);
        if (peer.pid < 0)
                actor_fail(actor, "starting %s: %s", role, strerror(-peer.pid));
        return peer;
}

/* Waits until a child has ended and returns its status. */
static int peer_await_end(struct actor *actor, const struct peer *peer) {
        int status = 0;

        actor_doing(actor, "waiting for the end of a peer");
        while (waitpid(peer->pid, &status, 0) < 0 && errno == EINTR)
                ;
        actor_doing(actor, NULL);
        return status;
}

void peer_kill(struct actor *actor, struct peer *peer) {
        int status;

        kill(peer->pid, SIGKILL);
        status = peer_await_end(actor, peer);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
                actor_fail(actor, "%s was to be killed, and had ended before", peer->role);
        actor_note(actor, "%s was killed", peer->role);
}

void channel_send(struct actor *actor, int channel, const struct message *message, int fd) {
        struct iovec data = { .iov_base = (void *)message, .iov_len = sizeof *message };
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control = { 0 };
        struct msghdr packet = { .msg_iov = &data, .msg_iovlen = 1 };

        if (fd >= 0) {
                struct cmsghdr *rights;

                packet.msg_control = control.bytes;
                packet.msg_controllen = sizeof control.bytes;
                rights = CMSG_FIRSTHDR(&packet);
                rights->cmsg_level = SOL_SOCKET;
                rights->cmsg_type = SCM_RIGHTS;
                rights->cmsg_len = CMSG_LEN(sizeof fd);
                memcpy(CMSG_DATA(rights), &fd, sizeof fd);
        }
        /* A peer that is gone shows when its answer is waited for. */
        if (sendmsg(channel, &packet, MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
                actor_fail(actor, "sending \"%s\": %s", message->word, strerror(errno));
}

void channel_say(struct actor *actor, int channel, const char *word) {
        struct message message = { 0 };

        snprintf(message.word, sizeof message.word, "%s", word);
        channel_send(actor, channel, &message, -1);
}

/* The message and its descriptor. Returns false at the end of the channel. */
static bool channel_read(struct actor *actor, int channel, struct message *message, int *fd) {
        struct iovec data = { .iov_base = message, .iov_len = sizeof *message };
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control;
        struct msghdr packet = {
                .msg_iov = &data,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof control.bytes,
        };
        struct cmsghdr *rights;
        ssize_t n;

        do
                n = recvmsg(channel, &packet, MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
                return false;
        if (n != (ssize_t)sizeof *message)
                actor_fail(actor, "receiving: %s", n < 0 ? strerror(errno) : "a message of another size");
        *fd = -1;
        rights = CMSG_FIRSTHDR(&packet);
        if (rights != NULL && rights->cmsg_type == SCM_RIGHTS)
                memcpy(fd, CMSG_DATA(rights), sizeof *fd);
        return true;
}

/* A message is what its receiver expects, or the two disagree about the order of things. */
static void channel_check(struct actor *actor, struct message *message, int with, const char *word, int *fd) {
        actor_doing(actor, NULL);
        message->word[sizeof message->word - 1] = '\0';
        if (strcmp(message->word, word) != 0)
                actor_fail(actor, "expected \"%s\", received \"%s\"", word, message->word);
        if ((with >= 0) != (fd != NULL))
                actor_fail(actor, "\"%s\" came %s a descriptor", word, with >= 0 ? "with" : "without");
        if (fd != NULL)
                *fd = with;
}

static void actor_wait_for(struct actor *actor, const char *word) {
        char doing[BOARD_DOING];

        snprintf(doing, sizeof doing, "waiting for \"%s\"", word);
        actor_doing(actor, doing);
}

struct message channel_receive(struct actor *actor, const char *word, int *fd) {
        struct message message;
        int with;

        actor_wait_for(actor, word);
        if (!channel_read(actor, actor->channel, &message, &with))
                _exit(0); /* the fact is over, or its own process tells why not */
        channel_check(actor, &message, with, word, fd);
        return message;
}

/* How a peer ended that was still needed. */
static _Noreturn void peer_ended(struct actor *actor, const struct peer *peer) {
        const char *doing = actor->board->place[peer->place].doing;
        char where[BOARD_DOING];
        int status;

        snprintf(where, sizeof where, "%s", doing[0] ? doing : "no call");
        status = peer_await_end(actor, peer);
        if (!board_answered(actor->board)) {
                if (WIFSIGNALED(status)) {
                        actor_note(actor, "%s was killed by signal %d (%s) in %s", peer->role,
                                   WTERMSIG(status), strsignal(WTERMSIG(status)), where);
                        actor_set_answer(actor, "crash");
                } else {
                        actor_note(actor, "%s ended with %d in %s", peer->role, WEXITSTATUS(status), where);
                        actor_set_answer(actor, "error");
                }
        }
        _exit(3);
}

struct message peer_receive(struct actor *actor, struct peer *peer, const char *word, int *fd) {
        struct message message;
        int with;

        actor_wait_for(actor, word);
        if (!channel_read(actor, peer->channel, &message, &with))
                peer_ended(actor, peer);
        channel_check(actor, &message, with, word, fd);
        return message;
}
