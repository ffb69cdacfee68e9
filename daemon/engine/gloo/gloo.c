/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gloo/gloo.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/proc.h"
#include "engine/gloo/errand.h"
#include "proto/names.h"

/*
 * Most nodes among which a lane has several streams. While one collective folds, or waits for its peer,
 * another one uses the network, and each stream has another thread that copies the bytes that come in. Among
 * more nodes a lane has connections enough, and to make twice as many takes its time.
 */
#define STREAMS_UP_TO 8u

#define QUEUE 512u /* packets that wait for a helper: more than all launches ahead and all tables */

/*
 * Each helper is asked once a beat whether it listens. The daemon counts beats, not time: if it was stopped
 * itself, it blames no helper for that.
 */
#define BEAT 250u /* ms */
#define SILENT 3u /* beats without a word of a helper, after which it is named */

_Static_assert(ENGINE_VALUES == ERRAND_VALUES && GLOO_NODES == ERRAND_NODES && ENGINE_TABLE == ERRAND_TABLE,
               "the same on both sides");

extern char **environ;

struct gloo_memory {
        struct list link;
        uint64_t id, bytes;
        unsigned char *address; /* the daemon's mapping */
        int fd;                 /* a copy of the descriptor */
};

/* For a collective that is under way: where the end of its output is copied for the caller. */
struct tail {
        void *to;
        const unsigned char *from;
        uint32_t bytes;
};

struct gloo_packet {
        struct list link;
        int fd; /* sent along, and closed with the packet; -1 if none */
        size_t size;
        unsigned char bytes[];
};

enum comm_state {
        BUILDING,
        WORKING,
        BROKEN,   /* the helper has reported it, or is gone: no collective is done any more */
        ABORTING, /* the helper has been killed, and aborted() is still to come */
        DROPPED,  /* the helper has been killed, and no event is to come */
};

struct gloo;

struct gloo_comm {
        struct list link;
        struct gloo *gloo;
        uint64_t id;
        char *name;
        uint32_t n_nodes, self, n_lanes, n_streams;
        uint32_t *node;
        enum comm_state state;
        pid_t pid;
        int pidfd, sock; /* sock -1: closed */
        uint64_t heard;  /* when the helper last said something, or was started */
        unsigned missed; /* beats since then */
        struct list queue;
        unsigned queued;
        bool reaped;
        struct tail tail[ERRAND_LANES][ENGINE_WINDOW]; /* by sequence number */
};

struct gloo {
        struct engine engine;
        struct gloo_config config;
        char *helper;
        char address[64];
        int epoll, wake; /* wake: an event is due that no other descriptor shows */
        int timer;       /* for the beats, while there are helpers that are asked */
        struct list memories, comms;
};

static struct gloo *gloo_of(const struct engine *engine) {
        return (struct gloo *)engine;
}

static struct gloo_comm *comm_find(const struct gloo *gloo, uint64_t id) {
        struct gloo_comm *comm;

        list_for_each(comm, &gloo->comms, link)
                if (comm->id == id && comm->state != DROPPED)
                        return comm;
        return NULL;
}

/* The only writer of the state, which changes only to a later one. */
static void gloo_comm_set_state(struct gloo_comm *comm, enum comm_state state) {
        if (state > comm->state)
                comm->state = state;
}

/* ---- to the helper ---- */

static void gloo_packet_drop(struct gloo_packet *packet) {
        list_remove(&packet->link);
        if (packet->fd >= 0)
                close(packet->fd);
        free(packet);
}

/* Sends a packet. 0 or a negative errno. */
static int gloo_packet_go(int sock, const struct gloo_packet *packet) {
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control = { 0 };
        struct iovec part = { (void *)packet->bytes, packet->size };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

        if (packet->fd >= 0) {
                message.msg_control = control.bytes;
                message.msg_controllen = sizeof(control.bytes);
                struct cmsghdr *header = CMSG_FIRSTHDR(&message);
                header->cmsg_level = SOL_SOCKET;
                header->cmsg_type = SCM_RIGHTS;
                header->cmsg_len = CMSG_LEN(sizeof(int));
                memcpy(CMSG_DATA(header), &packet->fd, sizeof(int));
        }
        return sendmsg(sock, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

static void comm_watch(struct gloo_comm *comm) {
        struct epoll_event event = { .events = EPOLLIN | (list_empty(&comm->queue) ? 0 : EPOLLOUT),
                                     .data.ptr = comm };

        if (comm->sock >= 0)
                epoll_ctl(comm->gloo->epoll, EPOLL_CTL_MOD, comm->sock, &event);
}

static void comm_flush(struct gloo_comm *comm) {
        while (comm->sock >= 0 && !list_empty(&comm->queue)) {
                struct gloo_packet *packet = list_entry(comm->queue.next, struct gloo_packet, link);
                int r = gloo_packet_go(comm->sock, packet);

                if (r == -EINTR)
                        continue;
                if (r < 0)
                        break; /* the socket is full, or the helper is gone, as its end of file shows */
                gloo_packet_drop(packet);
                comm->queued--;
        }
        comm_watch(comm);
}

static int comm_say(struct gloo_comm *comm, const struct errand *errand, const void *more, size_t more_bytes,
                    int fd) {
        struct gloo_packet *packet;
        int copy = -1;

        if (comm->queued == QUEUE)
                return -ENOBUFS;
        packet = malloc(sizeof(*packet) + sizeof(*errand) + more_bytes);
        if (packet == NULL)
                return -ENOMEM;
        if (fd >= 0) {
                copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
                if (copy < 0) {
                        free(packet);
                        return -errno;
                }
        }
        packet->fd = copy;
        packet->size = sizeof(*errand) + more_bytes;
        memcpy(packet->bytes, errand, sizeof(*errand));
        if (more_bytes > 0)
                memcpy(packet->bytes + sizeof(*errand), more, more_bytes);
        list_append(&comm->queue, &packet->link);
        comm->queued++;
        comm_flush(comm);
        return 0;
}

static int comm_say_memory(struct gloo_comm *comm, const struct gloo_memory *memory) {
        struct errand errand = { .kind = ERRAND_MEMORY,
                                 .memory = memory->id,
                                 .memory_of = { .bytes = memory->bytes } };

        return comm_say(comm, &errand, NULL, 0, memory->fd);
}

/* ---- the process ---- */

static int comm_spawn(struct gloo_comm *comm) {
        struct gloo *gloo = comm->gloo;
        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attributes;
        char *arguments[] = { gloo->helper, comm->name, NULL };
        sigset_t none;
        int pair[2], r;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        /* The helper's end may have that number already, and would be closed on exec then. */
        int end = fcntl(pair[1], F_DUPFD_CLOEXEC, ERRAND_SOCKET + 1);
        close(pair[1]);
        if (end < 0) {
                close(pair[0]);
                return -errno;
        }
        sigemptyset(&none);
        posix_spawn_file_actions_init(&actions);
        posix_spawnattr_init(&attributes);
        posix_spawn_file_actions_adddup2(&actions, end, ERRAND_SOCKET);
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
        r = -posix_spawn(&comm->pid, gloo->helper, &actions, &attributes, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
        posix_spawnattr_destroy(&attributes);
        close(end);
        if (r < 0) {
                log_warning("job %s: %s, which exchanges data with other nodes, cannot be started: %s",
                            comm->name, gloo->helper, strerror(-r));
                close(pair[0]);
                comm->pid = 0;
                return r;
        }
        comm->sock = pair[0];
        comm->pidfd = (int)syscall(SYS_pidfd_open, comm->pid, 0);
        return comm->pidfd < 0 ? -errno : 0;
}

static int comm_register(struct gloo_comm *comm) {
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = comm };

        if (epoll_ctl(comm->gloo->epoll, EPOLL_CTL_ADD, comm->sock, &event) < 0 ||
            epoll_ctl(comm->gloo->epoll, EPOLL_CTL_ADD, comm->pidfd, &event) < 0)
                return -errno;
        return 0;
}

static void comm_close_socket(struct gloo_comm *comm) {
        if (comm->sock >= 0)
                close(comm->sock);
        comm->sock = -1;
}

static void comm_free(struct gloo_comm *comm) {
        while (!list_empty(&comm->queue))
                gloo_packet_drop(list_entry(comm->queue.next, struct gloo_packet, link));
        comm_close_socket(comm);
        if (comm->pidfd >= 0)
                close(comm->pidfd);
        list_remove(&comm->link);
        free(comm->name);
        free(comm->node);
        free(comm);
}

static void comm_kill(struct gloo_comm *comm) {
        comm_close_socket(comm);
        if (!comm->reaped)
                kill(comm->pid, SIGKILL);
}

/* ---- from the helper ---- */

/* Turns ranks into addresses. Returns their number. */
static uint32_t comm_nodes(const struct gloo_comm *comm, const struct errand *errand, uint32_t *ret) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < errand->nodes.n && i < GLOO_NODES; i++)
                if (errand->nodes.rank[i] < comm->n_nodes && errand->nodes.rank[i] != comm->self)
                        ret[n++] = comm->node[errand->nodes.rank[i]];
        return n;
}

/* Logs a failure. The list is " node 3, node 5", with as many nodes as there is room for. */
static void comm_log(const struct gloo_comm *comm, const struct errand *errand, const uint32_t *nodes,
                     uint32_t n) {
        bool building = comm->state == BUILDING;
        char list[128] = "";
        size_t at = 0;

        for (uint32_t i = 0; i < n && at + 16 < sizeof(list); i++)
                at += (size_t)snprintf(list + at, sizeof(list) - at, "%s node %u", i > 0 ? "," : "",
                                       nodes[i]);
        log_warning("job %s: Gloo%s%s: %.*s", comm->name,
                    n == 0     ? ""
                    : building ? " does not reach"
                               : " has lost",
                    list, (int)strnlen(errand->nodes.text, ERRAND_TEXT), errand->nodes.text);
}

static uint32_t comm_others(const struct gloo_comm *comm, uint32_t *ret) {
        uint32_t n = 0;

        for (uint32_t rank = 0; rank < comm->n_nodes; rank++)
                if (rank != comm->self)
                        ret[n++] = comm->node[rank];
        return n;
}

/* Reports the end of a communicator. `n` 0: no rank is known to be the cause, so all others are out of
 * reach. */
static void comm_break(struct gloo_comm *comm, uint32_t *nodes, uint32_t n) {
        struct gloo *gloo = comm->gloo;
        const struct engine_events *events = gloo->engine.events;
        bool building = comm->state == BUILDING;

        gloo_comm_set_state(comm, BROKEN);
        if (n == 0)
                n = comm_others(comm, nodes);
        if (building)
                events->built(gloo->engine.owner, comm->id, nodes, n);
        else
                events->unreachable(gloo->engine.owner, comm->id, nodes, n);
}

static void helper_on_built(struct gloo_comm *comm, const struct errand *errand) {
        const struct engine *engine = &comm->gloo->engine;
        uint32_t nodes[GLOO_NODES], n = comm_nodes(comm, errand, nodes);

        if (comm->state != BUILDING)
                return;
        if (errand->nodes.text[0] != '\0') {
                comm_log(comm, errand, nodes, n);
                comm_break(comm, nodes, n);
                return;
        }
        gloo_comm_set_state(comm, WORKING);
        engine->events->built(engine->owner, comm->id, NULL, 0);
}

static void helper_on_done(struct gloo_comm *comm, const struct errand *errand) {
        const struct engine *engine = &comm->gloo->engine;
        const struct tail *tail = &comm->tail[errand->lane][errand->sequence % ENGINE_WINDOW];

        if (tail->bytes > 0)
                memcpy(tail->to, tail->from, tail->bytes);
        engine->events->done(engine->owner, comm->id, errand->lane, errand->sequence, errand->done.value);
}

static void helper_take(struct gloo_comm *comm, const struct errand *errand, const unsigned char *more,
                        size_t more_bytes) {
        const struct engine *engine = &comm->gloo->engine;
        uint32_t nodes[GLOO_NODES], n;

        switch (errand->kind) {
        case ERRAND_PUBLISH:
                if (comm->state == BUILDING && errand->publish.bytes == more_bytes)
                        engine->events->publish(engine->owner, comm->id, more, more_bytes);
                break;
        case ERRAND_BUILT: helper_on_built(comm, errand); break;
        case ERRAND_DONE:
                if (comm->state == WORKING)
                        helper_on_done(comm, errand);
                break;
        case ERRAND_NOTE:
                log_warning("job %s: Gloo: %.*s", comm->name, (int)strnlen(errand->nodes.text, ERRAND_TEXT),
                            errand->nodes.text);
                break;
        case ERRAND_BROKEN:
                if (comm->state > WORKING)
                        break;
                n = comm_nodes(comm, errand, nodes);
                comm_log(comm, errand, nodes, n);
                comm_break(comm, nodes, n);
                break;
        default: break;
        }
}

static void helper_note_heard(struct gloo_comm *comm) {
        if (comm->missed >= SILENT && comm->state <= WORKING)
                log_info("job %s: the helper process %d of Gloo answers again", comm->name, (int)comm->pid);
        comm->missed = 0;
        comm->heard = clock_now();
}

static void helper_hear(struct gloo_comm *comm) {
        static unsigned char room[sizeof(struct errand) + ERRAND_TABLE];
        struct errand errand;

        while (comm->sock >= 0) {
                ssize_t n = recv(comm->sock, room, sizeof(room), MSG_DONTWAIT);

                /* The helper has ended with packets unread. Its own packets come after that error. */
                if (n < 0 && (errno == EINTR || errno == ECONNRESET))
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return;
                if (n < (ssize_t)sizeof(errand)) { /* the end of the process shows why */
                        epoll_ctl(comm->gloo->epoll, EPOLL_CTL_DEL, comm->sock, NULL);
                        comm_close_socket(comm);
                        return;
                }
                memcpy(&errand, room, sizeof(errand));
                helper_note_heard(comm);
                helper_take(comm, &errand, room + sizeof(errand), (size_t)n - sizeof(errand));
        }
}

static void helper_on_exit(struct gloo_comm *comm) {
        const struct engine *engine = &comm->gloo->engine;
        uint32_t nodes[GLOO_NODES];
        siginfo_t info = { 0 };
        uint64_t id = comm->id;

        if (waitid(P_PIDFD, (id_t)comm->pidfd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
                return;
        helper_hear(comm); /* packets from before its end */
        comm->reaped = true;
        epoll_ctl(comm->gloo->epoll, EPOLL_CTL_DEL, comm->pidfd, NULL);
        comm_close_socket(comm);
        switch (comm->state) {
        case ABORTING:
                comm_free(comm);
                engine->events->aborted(engine->owner, id);
                break;
        case DROPPED: comm_free(comm); break;
        case BROKEN: break;
        default:
                log_warning(
                        "job %s: the helper process %d of Gloo has ended, %s %d: this node lost the others",
                        comm->name, (int)comm->pid, info.si_code == CLD_EXITED ? "with status" : "by signal",
                        info.si_status);
                comm_break(comm, nodes, 0);
        }
}

/* ---- whether helpers listen ---- */

/* Starts the beats. If they are under way already, they are not put off. */
static void gloo_begin_beats(const struct gloo *gloo) {
        static const struct timespec beat = { .tv_nsec = BEAT * 1000000L };
        struct itimerspec when;

        timerfd_gettime(gloo->timer, &when);
        if (when.it_value.tv_sec == 0 && when.it_value.tv_nsec == 0)
                timerfd_settime(gloo->timer, 0, &(struct itimerspec){ beat, beat }, NULL);
}

/* Returns how long a helper may be silent, in ms. A helper that connects gives up by itself before, and says
 * which node it misses. */
static uint32_t helper_limit(const struct gloo_comm *comm) {
        const struct gloo_config *config = &comm->gloo->config;

        return comm->state == BUILDING ? config->timeout + config->silence / 4 : config->silence;
}

/* Ends a helper that is stopped, or frozen, or has no processor. To other nodes it looks alive, because the
 * kernel acknowledges what they send. */
static void helper_end(struct gloo_comm *comm) {
        uint32_t nodes[GLOO_NODES];

        log_warning(
                "job %s: the helper process %d of Gloo (%s) has not answered for %.1f s, and is ended: this "
                "node lost the others",
                comm->name, (int)comm->pid, proc_state(comm->pid),
                (double)(clock_now() - comm->heard) / USEC_PER_SEC);
        comm_kill(comm);
        comm_break(comm, nodes, 0);
}

static void helper_beat(struct gloo_comm *comm) {
        struct errand ask = { .kind = ERRAND_ASK };

        comm->missed++;
        if (comm->missed == SILENT)
                log_warning("job %s: the helper process %d of Gloo (%s) does not answer", comm->name,
                            (int)comm->pid, proc_state(comm->pid));
        if (comm->missed > SILENT && comm->missed * BEAT >= helper_limit(comm))
                helper_end(comm);
        else if (list_empty(&comm->queue)) /* else it has not read the packets before */
                comm_say(comm, &ask, NULL, 0, -1);
}

static void gloo_beat(struct gloo *gloo) {
        struct gloo_comm *comm, *spare;
        bool asked = false;
        uint64_t n;

        (void)!read(gloo->timer, &n, sizeof(n));
        list_for_each_safe(comm, spare, &gloo->comms, link)
                if (comm->state <= WORKING) {
                        asked = true;
                        helper_beat(comm);
                }
        if (!asked)
                timerfd_settime(gloo->timer, 0, &(struct itimerspec){ 0 }, NULL);
}

/* ---- the table of functions ---- */

static const char *gloo_version(const struct engine *engine) {
        return GLOO_RELEASE;
}

static int gloo_fd(const struct engine *engine) {
        return gloo_of(engine)->epoll;
}

/* Frees communicators that were aborted or dropped after their process had ended, and delivers the aborts. */
static void gloo_deliver_aborts(struct gloo *gloo) {
        struct gloo_comm *comm, *spare;
        uint64_t n;

        (void)!read(gloo->wake, &n, sizeof(n));
        list_for_each_safe(comm, spare, &gloo->comms, link) {
                uint64_t id = comm->id;

                if (!comm->reaped || comm->state < ABORTING)
                        continue;
                bool tell = comm->state == ABORTING;
                comm_free(comm);
                if (tell)
                        gloo->engine.events->aborted(gloo->engine.owner, id);
        }
}

static bool gloo_has(const struct gloo *gloo, const void *which) {
        struct gloo_comm *comm;

        list_for_each(comm, &gloo->comms, link)
                if (comm == which)
                        return true;
        return false;
}

static void gloo_dispatch(struct engine *engine) {
        struct gloo *gloo = gloo_of(engine);
        struct epoll_event events[32];
        int n = epoll_wait(gloo->epoll, events, 32, 0);

        for (int i = 0; i < n; i++) {
                struct gloo_comm *comm = events[i].data.ptr;

                if (comm == NULL) {
                        gloo_deliver_aborts(gloo);
                        continue;
                }
                if (events[i].data.ptr == &gloo->timer) {
                        gloo_beat(gloo);
                        continue;
                }
                if (!gloo_has(gloo, comm)) /* an event delivered before has ended it */
                        continue;
                if (comm->sock >= 0 && (events[i].events & EPOLLOUT))
                        comm_flush(comm);
                if (comm->sock >= 0)
                        helper_hear(comm);
                if (gloo_has(gloo, comm) && !comm->reaped)
                        helper_on_exit(comm);
        }
}

static pid_t gloo_silent(struct engine *engine, uint64_t id, uint64_t *ret_since) {
        const struct gloo_comm *comm = comm_find(gloo_of(engine), id);

        if (comm == NULL || comm->state > WORKING || comm->missed < SILENT)
                return 0;
        *ret_since = comm->heard;
        return comm->pid;
}

static int gloo_share(struct engine *engine, uint64_t id, const struct engine_memory *what) {
        struct gloo *gloo = gloo_of(engine);
        struct gloo_memory *memory = calloc(1, sizeof(*memory));
        struct gloo_comm *comm;

        if (memory == NULL)
                return -ENOMEM;
        *memory = (struct gloo_memory){ .id = id, .bytes = what->bytes, .address = what->address };
        memory->fd = fcntl(what->fd, F_DUPFD_CLOEXEC, 0);
        if (memory->fd < 0) {
                free(memory);
                return -errno;
        }
        list_append(&gloo->memories, &memory->link);
        list_for_each(comm, &gloo->comms, link)
                if (comm->state <= WORKING && comm_say_memory(comm, memory) < 0)
                        comm_kill(comm); /* the helper would miss the memory */
        return 0;
}

static bool gloo_unshare(struct engine *engine, uint64_t id) {
        struct gloo *gloo = gloo_of(engine);
        struct errand errand = { .kind = ERRAND_FORGET, .memory = id };
        struct gloo_memory *memory, *spare;
        struct gloo_comm *comm;

        list_for_each_safe(memory, spare, &gloo->memories, link) {
                if (memory->id != id)
                        continue;
                close(memory->fd);
                list_remove(&memory->link);
                free(memory);
        }
        list_for_each(comm, &gloo->comms, link)
                if (comm->state <= WORKING && comm_say(comm, &errand, NULL, 0, -1) < 0)
                        comm_kill(comm);
        return true;
}

static int comm_begin_helper(struct gloo_comm *comm) {
        struct gloo *gloo = comm->gloo;
        struct errand errand = { .kind = ERRAND_BUILD,
                                 .build = { .n_nodes = comm->n_nodes,
                                            .self = comm->self,
                                            .n_lanes = comm->n_lanes,
                                            .n_streams = comm->n_streams,
                                            .silence = gloo->config.silence,
                                            .timeout = gloo->config.timeout } };
        struct gloo_memory *memory;
        int r;

        comm->heard = clock_now();
        gloo_begin_beats(gloo);
        r = comm_spawn(comm);
        if (r == 0)
                r = comm_register(comm);
        strcpy(errand.build.address, gloo->address);
        if (r == 0)
                r = comm_say(comm, &errand, NULL, 0, -1);
        list_for_each(memory, &gloo->memories, link)
                if (r == 0)
                        r = comm_say_memory(comm, memory);
        return r;
}

/* Returns the number of streams of a lane, which is the same on all nodes. */
static uint32_t streams_of(const struct engine_build *build) {
        return build->n_nodes <= STREAMS_UP_TO ? ERRAND_STREAMS : 1;
}

static int gloo_build(struct engine *engine, const struct engine_build *build) {
        struct gloo *gloo = gloo_of(engine);
        struct gloo_comm *comm;
        int r;

        if (build->n_nodes > GLOO_NODES || build->n_lanes > ERRAND_LANES) {
                log_warning("job %s is on %u nodes: Gloo connects %u at most", build->name, build->n_nodes,
                            GLOO_NODES);
                return -E2BIG;
        }
        comm = calloc(1, sizeof(*comm));
        if (comm == NULL)
                return -ENOMEM;
        *comm = (struct gloo_comm){ .gloo = gloo,
                                    .id = build->comm,
                                    .name = strdup(build->name),
                                    .n_nodes = build->n_nodes,
                                    .self = build->self,
                                    .n_lanes = build->n_lanes,
                                    .n_streams = streams_of(build),
                                    .node = calloc(build->n_nodes, sizeof(*comm->node)),
                                    .pidfd = -1,
                                    .sock = -1 };
        list_init(&comm->queue);
        list_append(&gloo->comms, &comm->link);
        r = comm->name != NULL && comm->node != NULL ? 0 : -ENOMEM;
        if (r == 0) {
                memcpy(comm->node, build->node, build->n_nodes * sizeof(*comm->node));
                r = comm_begin_helper(comm);
        }
        if (r < 0 && comm->pid > 0) {
                kill(comm->pid, SIGKILL);
                waitpid(comm->pid, NULL, 0);
        }
        if (r < 0)
                comm_free(comm);
        return r;
}

static int gloo_learn(struct engine *engine, uint64_t id, uint32_t rank, const void *table, size_t bytes) {
        struct gloo_comm *comm = comm_find(gloo_of(engine), id);
        struct errand errand = { .kind = ERRAND_LEARN, .learn = { .rank = rank, .bytes = (uint32_t)bytes } };

        if (comm == NULL || bytes > ENGINE_TABLE || rank >= comm->n_nodes || rank == comm->self)
                return -EINVAL;
        return comm->state == BUILDING ? comm_say(comm, &errand, table, bytes, -1) : 0;
}

static const struct gloo_memory *shared_memory(const struct gloo *gloo, uint64_t id) {
        const struct gloo_memory *memory;

        list_for_each(memory, &gloo->memories, link)
                if (memory->id == id)
                        return memory;
        return NULL;
}

/* Copies the tail into the memory that the helper shares, and notes where the end of the output will be. */
static int gloo_put_tail(struct gloo_comm *comm, const struct engine_launch *launch) {
        const struct engine_piece *piece = &launch->piece;
        const struct gloo_memory *memory =
                piece->tail_bytes > 0 ? shared_memory(comm->gloo, piece->memory) : NULL;
        struct tail *tail = &comm->tail[launch->lane][launch->sequence % ENGINE_WINDOW];
        uint64_t end = piece->elements * dtype_size(piece->dtype) - piece->tail_bytes;

        *tail = (struct tail){ 0 };
        if (piece->tail_bytes == 0)
                return 0;
        if (memory == NULL)
                return -EINVAL;
        memcpy(memory->address + piece->input + end, piece->tail, piece->tail_bytes);
        *tail = (struct tail){ piece->tail, memory->address + piece->output + end, piece->tail_bytes };
        return 0;
}

static int gloo_launch(struct engine *engine, const struct engine_launch *launch) {
        struct gloo_comm *comm = comm_find(gloo_of(engine), launch->comm);
        const struct engine_piece *piece = &launch->piece;
        struct errand errand = { .kind = ERRAND_LAUNCH,
                                 .lane = launch->lane,
                                 .sequence = launch->sequence,
                                 .memory = piece->memory,
                                 .launch = { .dtype = piece->dtype,
                                             .reduce = piece->reduce,
                                             .root = piece->root,
                                             .input = piece->input,
                                             .output = piece->output,
                                             .elements = piece->elements } };

        if (comm == NULL || launch->lane >= comm->n_lanes || piece->root >= comm->n_nodes)
                return -EINVAL;
        if (comm->state != WORKING)
                return comm->state == BROKEN ? 0 : -EINVAL; /* it is about to be aborted */
        if (piece->elements > 0)
                errand.launch.payload = ERRAND_REDUCE;
        else
                errand.launch.payload = launch->kind == ENGINE_FILLER ? ERRAND_ZERO_VOTE : ERRAND_VOTE;
        memcpy(errand.launch.value, launch->value, sizeof(errand.launch.value));
        int r = gloo_put_tail(comm, launch);
        return r < 0 ? r : comm_say(comm, &errand, NULL, 0, -1);
}

static void gloo_end(struct gloo_comm *comm, enum comm_state state) {
        uint64_t one = 1;

        gloo_comm_set_state(comm, state);
        comm_kill(comm);
        if (comm->reaped) /* the next dispatch does the rest */
                (void)!write(comm->gloo->wake, &one, sizeof(one));
}

static void gloo_drop(struct engine *engine, uint64_t id) {
        struct gloo_comm *comm = comm_find(gloo_of(engine), id);

        if (comm != NULL)
                gloo_end(comm, DROPPED);
}

static void gloo_abort(struct engine *engine, uint64_t id) {
        struct gloo_comm *comm = comm_find(gloo_of(engine), id);

        if (comm != NULL)
                gloo_end(comm, ABORTING);
}

static void gloo_set_address(struct engine *engine, const char *address) {
        snprintf(gloo_of(engine)->address, sizeof(gloo_of(engine)->address), "%s", address);
}

static const struct engine_ops gloo_ops = {
        .name = "gloo",
        .version = gloo_version,
        .silent = gloo_silent,
        .fd = gloo_fd,
        .dispatch = gloo_dispatch,
        .share = gloo_share,
        .unshare = gloo_unshare,
        .set_address = gloo_set_address,
        .build = gloo_build,
        .learn = gloo_learn,
        .launch = gloo_launch,
        .drop = gloo_drop,
        .abort = gloo_abort,
};

int gloo_open(const struct gloo_config *config, struct engine **ret) {
        struct epoll_event event = { .events = EPOLLIN }, late = event;
        struct gloo *gloo = calloc(1, sizeof(*gloo));

        if (gloo == NULL)
                return -ENOMEM;
        gloo->engine.ops = &gloo_ops;
        gloo->config = *config;
        gloo->helper = strdup(config->helper);
        strcpy(gloo->address, "127.0.0.1");
        list_init(&gloo->memories);
        list_init(&gloo->comms);
        gloo->epoll = epoll_create1(EPOLL_CLOEXEC);
        gloo->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        gloo->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        late.data.ptr = &gloo->timer;
        if (gloo->helper != NULL && gloo->epoll >= 0 && gloo->wake >= 0 && gloo->timer >= 0 &&
            epoll_ctl(gloo->epoll, EPOLL_CTL_ADD, gloo->wake, &event) == 0 &&
            epoll_ctl(gloo->epoll, EPOLL_CTL_ADD, gloo->timer, &late) == 0) {
                *ret = &gloo->engine;
                return 0;
        }
        int r = gloo->helper != NULL ? -errno : -ENOMEM;
        gloo_close(&gloo->engine);
        return r;
}

void gloo_close(struct engine *engine) {
        struct gloo *gloo = engine != NULL ? gloo_of(engine) : NULL;
        struct gloo_comm *comm, *spare;

        if (gloo == NULL)
                return;
        list_for_each_safe(comm, spare, &gloo->comms, link) {
                assert(comm->state == DROPPED);
                if (!comm->reaped)
                        waitpid(comm->pid, NULL, 0); /* it has been killed */
                comm_free(comm);
        }
        assert(list_empty(&gloo->memories));
        if (gloo->epoll >= 0)
                close(gloo->epoll);
        if (gloo->wake >= 0)
                close(gloo->wake);
        if (gloo->timer >= 0)
                close(gloo->timer);
        free(gloo->helper);
        free(gloo);
}
