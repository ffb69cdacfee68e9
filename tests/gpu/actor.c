/* SPDX-License-Identifier: Apache-2.0 */
/* The life of one process of a fact: its place on the board, its peers, and its end. */
#include "actor.h"

#include "clock.h"
#include "tests/fakes/gpu/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65 /* Linux 6.3 */
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

/* ---- the board ---- */

struct board *board_new(void) {
        void *memory =
                mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        return memory == MAP_FAILED ? NULL : memory;
}

static void board_note(struct board *board, const char *format, va_list arguments) {
        size_t used = strnlen(board->detail, sizeof board->detail);

        if (used >= sizeof board->detail - 1)
                return;
        if (used > 0)
                used += (size_t)snprintf(board->detail + used, sizeof board->detail - used, "; ");
        if (used < sizeof board->detail)
                vsnprintf(board->detail + used, sizeof board->detail - used, format, arguments);
}

/* Unless there is an answer: the first one counts. */
static void board_answer(struct board *board, const char *format, va_list arguments) {
        int32_t unanswered = 0;

        if (!__atomic_compare_exchange_n(&board->answered, &unanswered, 1, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE))
                return;
        vsnprintf(board->answer, sizeof board->answer, format, arguments);
        __atomic_store_n(&board->answered, 2, __ATOMIC_RELEASE);
}

bool board_answered(const struct board *board) {
        return __atomic_load_n(&board->answered, __ATOMIC_ACQUIRE) == 2;
}

void board_where(const struct board *board, char *text, size_t size) {
        int64_t now = clock_ns();
        size_t used = 0;

        text[0] = '\0';
        for (unsigned i = 0; i < BOARD_PLACES; i++) {
                if (!board->place[i].taken || board->place[i].doing[0] == '\0' || used >= size)
                        continue;
                used += (size_t)snprintf(text + used, size - used, "%s%s in %s for %.1f s", used ? ", " : "",
                                         board->place[i].role, board->place[i].doing,
                                         (double)(now - board->place[i].since_ns) / 1e9);
        }
        if (text[0] == '\0')
                snprintf(text, size, "in no call");
}

/* ---- what a process says ---- */

/* Around every call into the driver, timed ones included: so it costs as little as it can. */
void actor_doing(struct actor *actor, const char *what) {
        char *doing = actor->board->place[actor->place].doing;
        size_t length = what != NULL ? strnlen(what, BOARD_DOING - 1) : 0;

        doing[length] = '\0';
        if (length > 0) {
                memcpy(doing, what, length);
                actor->board->place[actor->place].since_ns = clock_ns();
        }
}

#define PASS_ON(to, format)                                                                                  \
        do {                                                                                                 \
                va_list arguments;                                                                           \
                va_start(arguments, format);                                                                 \
                to(actor->board, format, arguments);                                                         \
                va_end(arguments);                                                                           \
        } while (0)

void actor_note(struct actor *actor, const char *format, ...) {
        PASS_ON(board_note, format);
}

double actor_note_latency(struct actor *actor, const char *what, int64_t *samples, size_t n) {
        samples_sort(samples, n);
        double median = (double)samples_percentile(samples, n, 50) / 1e3;

        actor_note(actor, "%s: p50 %.1f us, p99 %.1f us, worst %.1f us of %zu", what, median,
                   (double)samples_percentile(samples, n, 99) / 1e3, (double)samples[n - 1] / 1e3, n);
        return median;
}

static void actor_set_answer(struct actor *actor, const char *format, ...) {
        PASS_ON(board_answer, format);
}

_Noreturn void actor_end(struct actor *actor) {
        actor_doing(actor, "its end");
        _exit(0);
}

_Noreturn void actor_answer(struct actor *actor, const char *format, ...) {
        PASS_ON(board_answer, format);
        actor_end(actor);
}

_Noreturn void actor_fail(struct actor *actor, const char *format, ...) {
        if (!board_answered(actor->board)) {
                PASS_ON(board_note, format);
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
        PASS_ON(board_note, format);
        actor_set_answer(actor, "skipped");
        _exit(0);
}

_Noreturn void actor_stay(struct actor *actor) {
        actor_doing(actor, NULL);
        for (;;)
                pause();
}

/* ---- its beginning ---- */

static void actor_harden(struct actor *actor) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                actor_skip(actor, "PR_SET_NO_NEW_PRIVS: %s", strerror(errno));
        if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) < 0)
                actor_skip(actor, "PR_SET_MDWE, which Linux has since 6.3: %s", strerror(errno));
}

/* As if that user had started the program: its files in /proc are its own. */
static void actor_become(struct actor *actor, uid_t uid) {
        if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0 ||
            prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
                actor_fail(actor, "becoming uid %u: %s", (unsigned)uid, strerror(errno));
}

static _Noreturn void actor_play(const struct actor *told, actor_run *run, unsigned flags, pid_t parent) {
        static struct actor actor; /* lives as long as the process */
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        sigset_t nothing;

        actor = *told;
        if (actor.place == 0)
                setpgid(0, 0);
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        sigemptyset(&nothing);
        sigprocmask(SIG_SETMASK, &nothing, NULL);
        signal(SIGCHLD, SIG_DFL);
        signal(SIGPIPE, SIG_IGN);
        snprintf(actor.board->place[actor.place].role, BOARD_ROLE, "%s", actor.role);
        actor.board->place[actor.place].taken = 1;
        if (flags & ACTOR_HARDENED)
                actor_harden(&actor);
        if (flags & ACTOR_OTHER_UID)
                actor_become(&actor, OTHER_UID);
        prctl(PR_SET_NAME, actor.role);
        /* No other process would end this one if its parent went, or has gone already. Becoming another user
         * resets this. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(126);
        run(&actor);
        actor_fail(&actor, "%s ended without an answer", actor.role);
}

pid_t actor_start(const struct actor *actor, actor_run *run, unsigned flags) {
        pid_t parent = getpid(), pid = fork();

        if (pid == 0)
                actor_play(actor, run, flags, parent);
        if (pid > 0 && actor->place == 0)
                setpgid(pid, pid); /* both do it, so that neither has to wait for the other */
        return pid >= 0 ? pid : -errno;
}

/* ---- peers ---- */

struct peer peer_start(struct actor *actor, const char *role, actor_run *run, bool other_uid) {
        struct peer peer = { .role = role, .place = ++actor->peers };
        struct actor its = { .root = actor->root, .role = role, .board = actor->board, .place = peer.place };
        int ends[2];

        if (other_uid && geteuid() != 0)
                actor_skip(actor, "only root can start a process of another user");
        if (peer.place >= BOARD_PLACES || actor->opened)
                actor_fail(actor, "%s: no place is left, or it comes too late", role);
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                actor_fail(actor, "socketpair: %s", strerror(errno));
        its.channel = ends[1];
        peer.channel = ends[0];
        peer.pid = actor_start(&its, run, other_uid ? ACTOR_OTHER_UID : 0);
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
        kill(peer->pid, SIGKILL);
        int status = peer_await_end(actor, peer);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
                actor_fail(actor, "%s was to be killed, and had ended before", peer->role);
        actor_note(actor, "%s was killed", peer->role);
}

void channel_send(struct actor *actor, int channel, const struct message *message, int fd) {
        struct iovec data = { .iov_base = (void *)message, .iov_len = sizeof *message };

        /* A peer that is gone shows when its answer is waited for. */
        if (packet_send(channel, &data, 1, fd) < 0 && errno != EPIPE && errno != ECONNRESET)
                actor_fail(actor, "sending \"%s\": %s", message->word, strerror(errno));
}

void channel_say(struct actor *actor, int channel, const char *word) {
        struct message message = { 0 };

        snprintf(message.word, sizeof message.word, "%s", word);
        channel_send(actor, channel, &message, -1);
}

/* Waits for that message: it is what its receiver expects, or the two disagree about the order of things.
 * Returns false at the end of the channel. */
static bool channel_read(struct actor *actor, int channel, const char *word, struct message *message,
                         int *fd) {
        struct iovec data = { .iov_base = message, .iov_len = sizeof *message };
        char doing[BOARD_DOING];
        int with;

        snprintf(doing, sizeof doing, "waiting for \"%s\"", word);
        actor_doing(actor, doing);
        ssize_t n = packet_receive(channel, &data, 1, &with);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
                return false;
        actor_doing(actor, NULL);
        if (n != (ssize_t)sizeof *message)
                actor_fail(actor, "receiving: %s", n < 0 ? strerror(errno) : "a message of another size");
        message->word[sizeof message->word - 1] = '\0';
        if (strcmp(message->word, word) != 0)
                actor_fail(actor, "expected \"%s\", received \"%s\"", word, message->word);
        if ((with >= 0) != (fd != NULL))
                actor_fail(actor, "\"%s\" came %s a descriptor", word, with >= 0 ? "with" : "without");
        if (fd != NULL)
                *fd = with;
        return true;
}

struct message channel_receive(struct actor *actor, const char *word, int *fd) {
        struct message message;

        if (!channel_read(actor, actor->channel, word, &message, fd))
                _exit(0); /* the fact is over, or its own process tells why not */
        return message;
}

/* How a peer ended that was still needed. */
static _Noreturn void peer_ended(struct actor *actor, const struct peer *peer) {
        const char *doing = actor->board->place[peer->place].doing;
        char where[BOARD_DOING];

        snprintf(where, sizeof where, "%s", doing[0] ? doing : "no call");
        int status = peer_await_end(actor, peer);
        if (board_answered(actor->board))
                _exit(3);
        if (!WIFSIGNALED(status))
                actor_fail(actor, "%s ended with %d in %s", peer->role, WEXITSTATUS(status), where);
        actor_note(actor, "%s was killed by signal %d (%s) in %s", peer->role, WTERMSIG(status),
                   strsignal(WTERMSIG(status)), where);
        actor_answer(actor, "crash");
}

struct message peer_receive(struct actor *actor, struct peer *peer, const char *word, int *fd) {
        struct message message;

        if (!channel_read(actor, peer->channel, word, &message, fd))
                peer_ended(actor, peer);
        return message;
}
