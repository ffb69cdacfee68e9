/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop thread hands the first entries of a queue to a thread that rests, and is told when all of them are
 * closed. So no lock is needed, and a thread that the kernel does not schedule delays no other thread. At
 * most one thread has entries of a queue. There are few threads as long as nothing takes long: one more is
 * started for each TICK in which queues wait and no thread rests, up to two for each user that may be here.
 *
 * A signal ends most waits: its handler does nothing, but while a signal is pending every interruptible wait
 * is short. If many connections wait for the one that a thread is closing, the thread is sent that signal
 * again and again. Otherwise a client that connects in a loop would take all descriptors of the daemon.
 * Descriptors that lie unread in a connection were never installed, so no file system is asked when they are
 * released, and no wait for them withstands a signal: a connection may be slow to close, but none is stuck.
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
#include "base/log.h"
#include "base/thread.h"
#include "base/user.h"

#define STACK (64u << 10)              /* bytes, or the least stack of the system if that is larger */
#define BATCH 16u                      /* entries that a thread is handed at a time */
#define FAREWELL (200 * USEC_PER_MSEC) /* time for the threads to finish, at the end */
#define TICK (2 * USEC_PER_MSEC) /* time between two signals to a thread, and between starts of threads */
#define HURRIED 32u              /* threads that are sent a signal in each TICK, at most */
#define HURRY_NS 1000000         /* time between two signals to the loop thread */
#define HURRY_SIGNAL SIGURG
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

struct closer_entry {
        struct list link; /* queue->entries */
        int fd;
        bool overdrawn;
        struct charge charge; /* which keeps the user, and so the queue */
};

struct closer_thread {
        struct closer *closer;
        pthread_t thread;
        sem_t go;         /* posted when `fd` and `n` are set */
        int fd[BATCH];    /* descriptors to close */
        unsigned n;       /* number of these; 0: the thread has to end */
        atomic_bool done; /* they are closed, and the loop thread has not noticed it yet */
        /* The queue of its entries, for the loop thread alone; NULL if it rests. */
        struct closer_queue *queue;
};

struct closer {
        struct loop *loop;
        struct users *users;
        closer_close_fn close;
        struct list ready; /* queues with entries of which no thread has any */
        int event;         /* eventfd that is written when a thread is done */
        struct loop_io *io;
        timer_t timer;
        struct loop_timer *tick;
        bool ticks;
        unsigned entries; /* number of entries of all queues */
        unsigned n_threads, most, turn;
        struct closer_thread thread[];
};

/* ---- the threads ---- */

static void *closer_run(void *data) {
        struct closer_thread *thread = data;
        const struct closer *closer = thread->closer;
        uint64_t one = 1;
        sigset_t hurry;

        sigemptyset(&hurry);
        sigaddset(&hurry, HURRY_SIGNAL);
        pthread_sigmask(SIG_UNBLOCK, &hurry, NULL);
        thread_stand_back();
        for (;;) {
                while (sem_wait(&thread->go) < 0) /* EINTR: a signal came late */
                        ;
                if (thread->n == 0)
                        return NULL;
                for (unsigned i = 0; i < thread->n; i++)
                        closer->close(thread->fd[i]);
                atomic_store(&thread->done, true);
                while (write(closer->event, &one, sizeof(one)) < 0 && errno == EINTR)
                        ;
        }
}

static int closer_start_thread(struct closer *closer) {
        struct closer_thread *thread = &closer->thread[closer->n_threads];
        long least = sysconf(_SC_THREAD_STACK_MIN);
        size_t stack = least > (long)STACK ? (size_t)least : STACK;

        thread->closer = closer;
        sem_init(&thread->go, 0, 0);
        int r = thread_start(&thread->thread, "gs-closer", stack, closer_run, thread);
        if (r < 0)
                sem_destroy(&thread->go);
        else
                closer->n_threads++;
        return r;
}

/* ---- handing entries to threads ---- */

static void closer_arm(struct closer *closer) {
        if (!closer->ticks)
                closer->ticks = loop_timer_arm(closer->tick, TICK) == 0;
}

static struct closer_entry *queue_first(const struct closer_queue *queue) {
        return list_entry(queue->entries.next, struct closer_entry, link);
}

/* Whether the thread that has entries of this queue is sent signals. */
static bool queue_hastes(const struct closer_queue *queue) {
        return queue->of_connections && queue->n > CLOSER_SLACK + 1;
}

/* Hands the thread the first entries of the queue whose turn it is. */
static void thread_give(struct closer_thread *thread) {
        struct closer *closer = thread->closer;
        struct closer_queue *queue = list_entry(closer->ready.next, struct closer_queue, ready);
        const struct closer_entry *entry;

        list_remove(&queue->ready);
        thread->queue = queue;
        thread->n = 0;
        list_for_each(entry, &queue->entries, link) {
                thread->fd[thread->n++] = entry->fd;
                if (thread->n == BATCH)
                        break;
        }
        if (queue_hastes(queue))
                closer_arm(closer);
        sem_post(&thread->go);
}

static void closer_dispatch(struct closer *closer) {
        for (unsigned i = 0; i < closer->n_threads && !list_empty(&closer->ready); i++)
                if (closer->thread[i].queue == NULL)
                        thread_give(&closer->thread[i]);
        if (!list_empty(&closer->ready) && closer->n_threads < closer->most)
                closer_arm(closer);
}

/* Frees the first entries of a queue, and releases their charges. If these are all, the user may go, too. */
static void closer_forget(struct closer *closer, struct closer_queue *queue, unsigned n) {
        for (; n > 0; n--) {
                struct closer_entry *entry = queue_first(queue);

                closer->entries--;
                entry->charge.user->lane.overdrawn -= entry->overdrawn;
                queue->n--;
                list_remove(&entry->link);
                charge_release(&entry->charge);
                free(entry);
        }
}

static void thread_rest(struct closer_thread *thread) {
        struct closer_queue *queue = thread->queue;

        thread->queue = NULL;
        if (queue->n > thread->n)
                list_append(&thread->closer->ready, &queue->ready);
        closer_forget(thread->closer, queue, thread->n);
}

static void closer_on_done(void *data, int fd, unsigned events) {
        struct closer *closer = data;
        uint64_t count;

        if (read(fd, &count, sizeof(count)) < 0)
                assert(errno == EAGAIN || errno == EINTR);
        for (unsigned i = 0; i < closer->n_threads; i++)
                if (atomic_exchange(&closer->thread[i].done, false))
                        thread_rest(&closer->thread[i]);
        closer_dispatch(closer);
}

/* ---- what takes long ---- */

static void closer_on_signal(int signal) {}

/* Sends the signal to threads for which more than a few connections wait, by turns, because signals to all of
 * them at once would take the processors from others. Returns whether there are such threads. */
static bool closer_hurry(struct closer *closer) {
        unsigned left = HURRIED;
        bool any = false;

        for (unsigned i = 0; i < closer->n_threads && left > 0; i++) {
                const struct closer_thread *thread = &closer->thread[closer->turn++ % closer->n_threads];

                if (thread->queue == NULL || !queue_hastes(thread->queue))
                        continue;
                pthread_kill(thread->thread, HURRY_SIGNAL);
                any = true;
                left--;
        }
        return any;
}

/* Starts one more thread if queues wait for one. */
static void closer_grow(struct closer *closer) {
        if (list_empty(&closer->ready) || closer->n_threads == closer->most)
                return;
        const struct closer_queue *queue = list_entry(closer->ready.next, struct closer_queue, ready);
        int r = closer_start_thread(closer);
        if (r < 0 && flood_admits(FLOOD_FAILED, queue_first(queue)->charge.user->uid, clock_now()))
                log_error("no thread can be started to close descriptors that clients have sent: %s",
                          strerror(-r));
}

/* Called every TICK as long as queues wait for another thread, or connections for a signal. */
static void closer_on_tick(void *data) {
        struct closer *closer = data;

        closer->ticks = false;
        closer_grow(closer);
        if (closer_hurry(closer))
                closer_arm(closer);
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

static void closer_set_timer(struct closer *closer, long ns) {
        struct itimerspec time = { .it_interval = { .tv_nsec = ns }, .it_value = { .tv_nsec = ns } };

        timer_settime(closer->timer, 0, &time, NULL);
}

void closer_close_at_once(struct closer *closer, int fd) {
        closer_set_timer(closer, HURRY_NS);
        fd_close(fd);
        closer_set_timer(closer, 0);
}

/* ---- the closer ---- */

int closer_new(struct loop *loop, struct users *users, unsigned at_once, closer_close_fn fn,
               struct closer **ret) {
        unsigned most = 2 * at_once; /* for sent descriptors, and for connections */
        struct closer *closer = calloc(1, sizeof(*closer) + most * sizeof(closer->thread[0]));

        if (closer == NULL)
                return -ENOMEM;
        *closer = (struct closer){ .loop = loop, .users = users, .most = most, .close = fn };
        list_init(&closer->ready);
        int r = closer_open_timer(closer);
        if (r < 0) {
                free(closer);
                return r;
        }
        closer->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        r = closer->event < 0
                    ? -errno
                    : loop_io_new(loop, closer->event, LOOP_READ, closer_on_done, closer, &closer->io);
        if (r == 0)
                r = loop_timer_new(loop, closer_on_tick, closer, &closer->tick);
        if (r == 0)
                r = closer_start_thread(closer);
        if (r < 0) {
                closer_free(closer);
                return r;
        }
        *ret = closer;
        return 0;
}

/* Waits a moment for all entries to be closed. Returns whether they are. */
static bool closer_finish(struct closer *closer) {
        struct pollfd done = { .fd = closer->event, .events = POLLIN };
        uint64_t until = clock_now() + FAREWELL;

        while (closer->entries > 0) {
                if (clock_now() >= until)
                        return false;
                poll(&done, 1, TICK / USEC_PER_MSEC);
                closer_on_done(closer, closer->event, LOOP_READ);
                closer_on_tick(closer);
        }
        return true;
}

static void closer_end_threads(struct closer *closer) {
        for (unsigned i = 0; i < closer->n_threads; i++) {
                closer->thread[i].n = 0;
                sem_post(&closer->thread[i].go);
        }
        for (unsigned i = 0; i < closer->n_threads; i++) {
                pthread_join(closer->thread[i].thread, NULL);
                sem_destroy(&closer->thread[i].go);
        }
}

static void closer_forget_all(struct closer *closer) {
        struct closer_queue *queue, *spare;

        list_for_each_safe(queue, spare, &closer->ready, ready) {
                list_remove(&queue->ready);
                closer_forget(closer, queue, queue->n);
        }
        for (unsigned i = 0; i < closer->n_threads; i++)
                if (closer->thread[i].queue != NULL)
                        closer_forget(closer, closer->thread[i].queue, closer->thread[i].queue->n);
}

struct closer *closer_free(struct closer *closer) {
        if (closer == NULL)
                return NULL;
        bool all = closer_finish(closer);

        loop_io_free(closer->io);
        loop_timer_free(closer->tick);
        timer_delete(closer->timer);
        closer_forget_all(closer);
        if (!all)
                return NULL; /* its threads still use it */
        closer_end_threads(closer);
        fd_close(closer->event);
        free(closer);
        return NULL;
}

/* Puts an entry that is charged into the queue of its user. Closes `fd` at once if there was no memory for
 * the entry or for its charge: nothing better can be done then. */
static void closer_enqueue(struct closer *closer, struct closer_entry *entry, int fd, bool connection) {
        if (entry == NULL || entry->charge.user == NULL) {
                free(entry);
                closer_close_at_once(closer, fd);
                return;
        }
        struct closer_lane *lane = &entry->charge.user->lane;
        struct closer_queue *queue = connection ? &lane->connections : &lane->sent;
        if (queue->n++ == 0) {
                queue->of_connections = connection;
                list_init(&queue->entries);
                list_append(&closer->ready, &queue->ready);
        }
        entry->fd = fd;
        list_append(&queue->entries, &entry->link);
        closer->entries++;
        if (queue_hastes(queue))
                closer_arm(closer);
        closer_dispatch(closer);
}

/* Charges the entry, beyond the quota if need be. Returns 0, or QUOTA if the user is far beyond. */
static int entry_charge(struct closer_entry *entry, struct users *users, uid_t uid, struct refusal *refusal) {
        int r = charge_take(&entry->charge, users, uid, ACCOUNT_FDS, 1, refusal);

        if (r <= 0)
                return 0;
        charge_force(&entry->charge, users, uid, ACCOUNT_FDS, 1);
        if (entry->charge.user == NULL)
                return 0;
        entry->overdrawn = true;
        return ++entry->charge.user->lane.overdrawn > CLOSER_SLACK ? r : 0;
}

int closer_take(struct closer *closer, int fd, uid_t uid, struct refusal *refusal) {
        struct closer_entry *entry = calloc(1, sizeof(*entry));
        int r = entry != NULL ? entry_charge(entry, closer->users, uid, refusal) : 0;

        closer_enqueue(closer, entry, fd, false);
        return r;
}

void closer_hang_up(struct closer *closer, int sock, uid_t uid) {
        struct closer_entry *entry = calloc(1, sizeof(*entry));

        shutdown(sock, SHUT_RDWR); /* the client sees the end now, and sends nothing more */
        if (entry != NULL)
                charge_force(&entry->charge, closer->users, uid, ACCOUNT_FDS, 1);
        closer_enqueue(closer, entry, sock, true);
}

bool closer_is_overdrawn(const struct user *user) {
        return user->lane.overdrawn > CLOSER_SLACK;
}
