/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each user with descriptors to close has a lane with two queues: one for descriptors that it has sent, and
 * one for its connections, in which such descriptors may lie unread. The loop thread hands some entries of
 * the queue whose turn it is to a thread that rests, and is told of each entry that is closed. So no lock is
 * needed, and a thread that the kernel does not schedule delays no other thread. At most one thread has
 * entries of a queue.
 *
 * At most ACTIVE threads are active at a time, which leaves the processors to others. A thread that sleeps,
 * or that has closed nothing for long, does not count as active. So as many users as closer_new() was told
 * can block their threads without delaying others.
 *
 * A signal ends most waits: its handler does nothing, but while a signal is pending every interruptible wait
 * is short. If many connections wait for the one that a thread is closing, the thread is sent that signal
 * again and again. Descriptors that lie unread in a connection were never installed, so no file system is
 * asked when they are released, and no wait for them withstands a signal: a connection may be slow to close,
 * but none is stuck.
 */
#include "base/closer.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/flood.h"
#include "base/list.h"
#include "base/log.h"
#include "base/proc.h"
#include "base/user.h"

#define STACK (64u << 10) /* bytes, or the least stack of the system if that is larger */
#define ACTIVE 2u         /* threads that close something at a time, not counting those that wait */
#define BATCH 16u         /* entries that a thread is handed at a time */
#define FAREWELL (200 * USEC_PER_MSEC) /* time for the threads to finish, at the end */
#define TICK (2 * USEC_PER_MSEC)       /* time between two looks at the threads */
#define LONG 25u         /* looks; a thread that has closed nothing in so many is closing something large */
#define HURRIED 4u       /* waiting threads that are sent a signal at each look */
#define BEHIND 64u       /* one more thread is sent a signal for each so many connections that wait */
#define HURRY_NS 1000000 /* time between two signals to the loop thread */
#define HURRY_SIGNAL SIGURG
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { THINGS, CONNECTIONS, QUEUES };

struct closer_thread;

struct closer_queue {
        struct list ready;            /* closer->ready, while it has waiting entries and no worker */
        struct list waiting;          /* entries that no thread has */
        unsigned n;                   /* number of entries, with those of the worker */
        bool hastes;                  /* its worker is sent signals while many entries wait */
        struct closer_thread *worker; /* the thread that has entries of it; NULL if none */
};

struct closer_lane {
        struct user *user;  /* a reference; NULL once the closer is abandoned */
        unsigned entries;   /* number of entries in both queues */
        unsigned overdrawn; /* number of entries beyond the user's quota */
        struct closer_queue queue[QUEUES];
};

struct closer_entry {
        struct list link;          /* queue->waiting */
        struct list all_link;      /* closer->entries */
        struct closer_entry *next; /* the next entry in the list of its thread, then in closer->done */
        struct closer_lane *lane;
        struct closer_queue *queue;
        bool last; /* it is the last entry of those that its thread was handed */
        int fd;
        bool overdrawn;
        struct charge charge;
};

struct closer_thread {
        struct closer *closer;
        pthread_t thread;
        sem_t go;                   /* posted when `first` is set, and when the thread has to end */
        struct closer_entry *first; /* entries to close, until `go` is posted; then the thread's */
        atomic_uint closed;         /* number of entries closed so far */
        atomic_int tid;             /* 0 until the thread has begun */
        /* The next fields are for the loop thread alone. */
        struct closer_queue *queue; /* the queue of its entries; NULL if it rests */
        unsigned seen;              /* value of `closed` at the last look */
        unsigned looks;             /* number of looks since it last closed something */
        bool waits;                 /* it does not count as active */
};

struct closer {
        struct loop *loop;
        struct users *users;
        closer_close_fn close;
        struct list entries; /* entries of all lanes */
        struct list ready;   /* queues with waiting entries and no worker */
        int event;           /* eventfd that is written when `done` is no longer empty */
        struct loop_io *io;
        timer_t timer;
        struct loop_timer *tick;
        bool ticks;
        unsigned n_threads, most, n_busy, n_waiting, turn;
        /* Closed entries, the latest first. Threads push, the loop thread takes all. */
        _Atomic(struct closer_entry *) done;
        atomic_bool stop;
        struct closer *abandoned; /* the closer that was abandoned before this one */
        struct closer_thread thread[];
};

/* Closers that threads may still use until the process ends. They are kept here so that a leak checker finds
 * them. */
static struct closer *volatile abandoned;

/* ---- the threads ---- */

/* Reports an entry as closed. The loop thread owns it from then on. */
static void closer_tell_done(struct closer *closer, struct closer_entry *entry) {
        struct closer_entry *before = atomic_load_explicit(&closer->done, memory_order_relaxed);
        uint64_t one = 1;

        do
                entry->next = before;
        while (!atomic_compare_exchange_weak_explicit(&closer->done, &before, entry, memory_order_release,
                                                      memory_order_relaxed));
        if (before != NULL)
                return; /* the loop thread has been woken for `before`, and has not looked yet */
        while (write(closer->event, &one, sizeof(one)) < 0 && errno == EINTR)
                ;
}

static void *closer_run(void *data) {
        struct closer_thread *thread = data;
        struct closer *closer = thread->closer;

        atomic_store(&thread->tid, (int)syscall(SYS_gettid));
        for (;;) {
                while (sem_wait(&thread->go) < 0) /* EINTR: a signal came late */
                        ;
                if (atomic_load(&closer->stop))
                        return NULL;
                for (struct closer_entry *entry = thread->first, *next; entry != NULL; entry = next) {
                        next = entry->next;
                        closer->close(entry->fd);
                        atomic_fetch_add_explicit(&thread->closed, 1, memory_order_relaxed);
                        closer_tell_done(closer, entry);
                }
        }
}

/* Starts a thread. It blocks all signals, which are for the loop thread, except the signal that ends
 * waits. */
static int closer_start_thread(struct closer *closer) {
        struct closer_thread *thread = &closer->thread[closer->n_threads];
        pthread_attr_t attributes;
        long least = sysconf(_SC_THREAD_STACK_MIN);
        sigset_t all, before;
        int r = -pthread_attr_init(&attributes);

        if (r < 0)
                return r;
        r = -pthread_attr_setstacksize(&attributes, least > (long)STACK ? (size_t)least : STACK);
        sigfillset(&all);
        sigdelset(&all, HURRY_SIGNAL);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        thread->closer = closer;
        sem_init(&thread->go, 0, 0);
        if (r == 0)
                r = -pthread_create(&thread->thread, &attributes, closer_run, thread);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
        if (r < 0) {
                sem_destroy(&thread->go);
                return r;
        }
        pthread_setname_np(thread->thread, "gs-closer");
        closer->n_threads++;
        return 0;
}

/* ---- handing entries to threads ---- */

static struct closer_thread *closer_resting(struct closer *closer) {
        for (unsigned i = 0; i < closer->n_threads; i++)
                if (closer->thread[i].queue == NULL)
                        return &closer->thread[i];
        return NULL;
}

/* Hands the thread the first entries of the queue whose turn it is. */
static void thread_give(struct closer_thread *thread) {
        struct closer *closer = thread->closer;
        struct closer_queue *queue = list_entry(closer->ready.next, struct closer_queue, ready);
        struct closer_entry *entry = NULL, **end = &thread->first;

        for (unsigned i = 0; i < BATCH && !list_empty(&queue->waiting); i++) {
                entry = list_entry(queue->waiting.next, struct closer_entry, link);
                list_remove(&entry->link);
                *end = entry;
                end = &entry->next;
        }
        *end = NULL;
        entry->last = true;
        list_remove(&queue->ready);
        queue->worker = thread;
        thread->queue = queue;
        thread->seen = atomic_load_explicit(&thread->closed, memory_order_relaxed);
        thread->looks = 0;
        closer->n_busy++;
        sem_post(&thread->go);
}

static void closer_arm(struct closer *closer) {
        if (!closer->ticks)
                closer->ticks = loop_timer_arm(closer->tick, TICK) == 0;
}

static bool thread_is_in_a_hurry(const struct closer_thread *thread) {
        const struct closer_queue *queue = thread->queue;

        return queue != NULL && queue->hastes && queue->n > CLOSER_SLACK + 1;
}

/* Hands entries to threads that rest, and starts another thread if none rests. 0, or a negative errno if no
 * thread can be started. */
static int closer_dispatch(struct closer *closer) {
        bool hurry = false;
        int r = 0;

        while (r == 0 && !list_empty(&closer->ready) && closer->n_busy - closer->n_waiting < ACTIVE) {
                struct closer_thread *thread = closer_resting(closer);

                if (thread != NULL) {
                        thread_give(thread);
                        hurry |= thread_is_in_a_hurry(thread);
                } else if (closer->n_threads == closer->most)
                        break;
                else
                        r = closer_start_thread(closer);
        }
        if (hurry || !list_empty(&closer->ready))
                closer_arm(closer);
        return r;
}

/* Returns the lane of the user, and makes it if there is none. NULL: no memory. */
static struct closer_lane *lane_of(struct closer *closer, uid_t uid) {
        struct user *user = user_get(closer->users, uid);
        struct closer_lane *lane = user != NULL ? user->lane : NULL;

        if (user == NULL || lane != NULL)
                return lane;
        lane = calloc(1, sizeof(*lane));
        if (lane == NULL)
                return NULL;
        for (unsigned i = 0; i < QUEUES; i++) {
                list_init(&lane->queue[i].ready);
                list_init(&lane->queue[i].waiting);
        }
        lane->queue[CONNECTIONS].hastes = true;
        lane->user = user;
        user_ref(user);
        user->lane = lane;
        return lane;
}

static void lane_leave_user(struct closer_lane *lane) {
        struct user *user = lane->user;

        user->lane = NULL;
        lane->user = NULL;
        user_unref(user);
}

static void lane_free_unused(struct closer_lane *lane) {
        if (lane->entries > 0)
                return;
        lane_leave_user(lane);
        free(lane);
}

static void entry_free(struct closer_entry *entry) {
        struct closer_lane *lane = entry->lane;

        entry->queue->n--;
        lane->overdrawn -= entry->overdrawn;
        lane->entries--;
        charge_release(&entry->charge);
        list_remove(&entry->all_link);
        list_remove(&entry->link);
        free(entry);
        lane_free_unused(lane);
}

static void thread_rest(struct closer_thread *thread) {
        struct closer *closer = thread->closer;
        struct closer_queue *queue = thread->queue;

        closer->n_waiting -= thread->waits;
        closer->n_busy--;
        thread->waits = false;
        thread->queue = NULL;
        queue->worker = NULL;
        if (!list_empty(&queue->waiting))
                list_append(&closer->ready, &queue->ready);
}

/* Frees entries that have been closed, and releases their charges. */
static void closer_settle(struct closer *closer) {
        struct closer_entry *entry, *next;
        uint64_t count;

        if (read(closer->event, &count, sizeof(count)) < 0)
                assert(errno == EAGAIN || errno == EINTR);
        for (entry = atomic_exchange_explicit(&closer->done, NULL, memory_order_acquire); entry != NULL;
             entry = next) {
                next = entry->next;
                if (entry->last)
                        thread_rest(entry->queue->worker);
                entry_free(entry);
        }
        closer_dispatch(closer); /* an error is no loss: a thread rests, or a busy one comes back here */
}

static void closer_on_done(void *data, int fd, unsigned events) {
        closer_settle(data);
}

static void closer_on_signal(int signal) {}

static bool thread_sleeps(struct closer_thread *thread) {
        int tid = atomic_load(&thread->tid);

        return tid != 0 && strcmp(proc_state(tid), "running") != 0;
}

/* Notes whether the thread waits. A thread that waited, and has closed nothing since, is in the same wait
 * still. */
static void thread_look(struct closer_thread *thread) {
        struct closer *closer = thread->closer;
        unsigned closed = atomic_load_explicit(&thread->closed, memory_order_relaxed);
        bool same = closed == thread->seen;

        thread->seen = closed;
        thread->looks = same ? thread->looks + 1 : 0;
        if (same && thread->waits)
                return;
        closer->n_waiting -= thread->waits;
        thread->waits = thread->looks >= LONG || thread_sleeps(thread);
        closer->n_waiting += thread->waits;
}

/* Looks at all busy threads. Returns the number of connections in queues whose worker is in a hurry. */
static unsigned closer_look(struct closer *closer) {
        unsigned behind = 0;

        for (unsigned i = 0; i < closer->n_threads; i++) {
                struct closer_thread *thread = &closer->thread[i];

                if (thread->queue != NULL)
                        thread_look(thread);
                if (thread_is_in_a_hurry(thread))
                        behind += thread->queue->n;
        }
        return behind;
}

/* Sends the signal to some of the threads that wait while more than a few connections wait for them, by
 * turns. The more connections wait, the more threads get it. Signals to all threads at once would take the
 * processors from others. */
static void closer_hurry(struct closer *closer, unsigned behind) {
        unsigned left = HURRIED + behind / BEHIND;

        for (unsigned i = 0; i < closer->n_threads && left > 0; i++) {
                const struct closer_thread *thread = &closer->thread[closer->turn++ % closer->n_threads];

                if (thread->waits && thread_is_in_a_hurry(thread)) {
                        pthread_kill(thread->thread, HURRY_SIGNAL);
                        left--;
                }
        }
}

/* Called every TICK as long as queues wait for a thread, or connections for a signal. */
static void closer_on_tick(void *data) {
        struct closer *closer = data;

        closer->ticks = false;
        unsigned behind = closer_look(closer);
        if (behind > 0) {
                closer_hurry(closer, behind);
                closer_arm(closer);
        }
        closer_dispatch(closer);
}

static int closer_open_timer(struct closer *closer) {
        struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = HURRY_SIGNAL };
        struct sigaction action = { .sa_handler = closer_on_signal }; /* without SA_RESTART */
        sigset_t set;

        event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
        sigemptyset(&set);
        sigaddset(&set, HURRY_SIGNAL);
        if (sigaction(HURRY_SIGNAL, &action, NULL) < 0)
                return -errno;
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
        return timer_create(CLOCK_MONOTONIC, &event, &closer->timer) < 0 ? -errno : 0;
}

static void closer_deinit(struct closer *closer) {
        fd_close(closer->event);
        free(closer);
}

int closer_new(struct loop *loop, struct users *users, unsigned at_once, closer_close_fn fn,
               struct closer **ret) {
        unsigned most = QUEUES * at_once;
        struct closer *closer = calloc(1, sizeof(*closer) + most * sizeof(closer->thread[0]));

        if (closer == NULL)
                return -ENOMEM;
        closer->loop = loop;
        closer->users = users;
        closer->most = most;
        closer->close = fn;
        list_init(&closer->entries);
        list_init(&closer->ready);
        closer->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        int r = closer->event < 0 ? -errno : closer_open_timer(closer);
        if (r == 0) {
                r = loop_io_new(loop, closer->event, LOOP_READ, closer_on_done, closer, &closer->io);
                if (r == 0)
                        r = loop_timer_new(loop, closer_on_tick, closer, &closer->tick);
                if (r < 0) {
                        loop_io_free(closer->io);
                        timer_delete(closer->timer);
                }
        }
        if (r < 0) {
                closer_deinit(closer);
                return r;
        }
        *ret = closer;
        return 0;
}

/* Waits a moment for all entries to be closed. Returns whether they are. */
static bool closer_finish(struct closer *closer) {
        struct pollfd done = { .fd = closer->event, .events = POLLIN };
        uint64_t until = clock_now() + FAREWELL;

        while (!list_empty(&closer->entries)) {
                uint64_t now = clock_now();

                if (now >= until)
                        return false;
                poll(&done, 1, TICK / USEC_PER_MSEC);
                closer_settle(closer);
                closer_look(closer);
                closer_dispatch(closer);
        }
        return true;
}

static void closer_end_threads(struct closer *closer) {
        atomic_store(&closer->stop, true);
        for (unsigned i = 0; i < closer->n_threads; i++)
                sem_post(&closer->thread[i].go);
        for (unsigned i = 0; i < closer->n_threads; i++) {
                pthread_join(closer->thread[i].thread, NULL);
                sem_destroy(&closer->thread[i].go);
        }
}

/* Gives up a closer that threads still use. It stays allocated; only its charges and its references to users
 * are released. */
static void closer_abandon(struct closer *closer) {
        struct closer_entry *entry;

        for (unsigned i = 0; i < closer->n_threads; i++)
                pthread_detach(closer->thread[i].thread);
        list_for_each(entry, &closer->entries, all_link) {
                if (entry->lane->user != NULL)
                        lane_leave_user(entry->lane);
                charge_release(&entry->charge);
        }
        closer->abandoned = abandoned;
        abandoned = closer;
}

struct closer *closer_free(struct closer *closer) {
        if (closer == NULL)
                return NULL;
        bool all = closer_finish(closer);

        loop_io_free(closer->io);
        loop_timer_free(closer->tick);
        timer_delete(closer->timer);
        if (!all) {
                closer_abandon(closer);
                return NULL;
        }
        closer_end_threads(closer);
        closer_deinit(closer);
        return NULL;
}

static int entry_charge(struct closer *closer, struct closer_entry *entry, uid_t uid,
                        struct refusal *refusal) {
        int r = charge_take(&entry->charge, closer->users, uid, ACCOUNT_FDS, 1, refusal);

        if (r <= 0)
                return 0;
        entry->overdrawn = true;
        entry->lane->overdrawn++;
        charge_force(&entry->charge, closer->users, uid, ACCOUNT_FDS, 1);
        return entry->lane->overdrawn > CLOSER_SLACK ? r : 0;
}

static void closer_set_timer(struct closer *closer, long ns) {
        struct itimerspec time = { .it_interval = { .tv_nsec = ns }, .it_value = { .tv_nsec = ns } };

        timer_settime(closer->timer, 0, &time, NULL);
}

void closer_close_at_once(struct closer *closer, int fd) {
        closer_set_timer(closer, HURRY_NS);
        fd_close(fd);
        closer_set_timer(closer, 0);
}

/* NULL: no memory. */
static struct closer_entry *entry_new(struct closer *closer, int fd, uid_t uid, unsigned queue) {
        struct closer_lane *lane = lane_of(closer, uid);
        struct closer_entry *entry = lane != NULL ? calloc(1, sizeof(*entry)) : NULL;

        if (entry == NULL) {
                if (lane != NULL)
                        lane_free_unused(lane);
                return NULL;
        }
        *entry = (struct closer_entry){ .lane = lane, .queue = &lane->queue[queue], .fd = fd };
        list_init(&entry->link);
        list_append(&closer->entries, &entry->all_link);
        lane->entries++;
        return entry;
}

static void closer_enqueue(struct closer *closer, struct closer_entry *entry, uid_t uid) {
        struct closer_queue *queue = entry->queue;

        if (queue->worker == NULL && list_empty(&queue->waiting))
                list_append(&closer->ready, &queue->ready);
        list_append(&queue->waiting, &entry->link);
        queue->n++;
        int r = closer_dispatch(closer);
        if (queue->worker != NULL && thread_is_in_a_hurry(queue->worker))
                closer_arm(closer);
        if (r < 0 && flood_admits(FLOOD_FAILED, uid, clock_now()))
                log_error("no thread can be started to close descriptors that clients have sent: %s",
                          strerror(-r));
}

int closer_take(struct closer *closer, int fd, uid_t uid, struct refusal *refusal) {
        struct closer_entry *entry = entry_new(closer, fd, uid, THINGS);

        if (entry == NULL) {
                closer_close_at_once(closer, fd); /* nothing better can be done without memory */
                return 0;
        }
        int r = entry_charge(closer, entry, uid, refusal);
        closer_enqueue(closer, entry, uid);
        return r;
}

void closer_hang_up(struct closer *closer, int sock, uid_t uid) {
        struct closer_entry *entry = entry_new(closer, sock, uid, CONNECTIONS);

        if (entry == NULL) {
                closer_close_at_once(closer, sock);
                return;
        }
        shutdown(sock, SHUT_RDWR); /* the client sees the end now, and sends nothing more */
        charge_force(&entry->charge, closer->users, uid, ACCOUNT_FDS, 1);
        closer_enqueue(closer, entry, uid);
}

bool closer_is_overdrawn(const struct user *user) {
        return user->lane != NULL && user->lane->overdrawn > CLOSER_SLACK;
}
