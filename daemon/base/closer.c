/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each user that has something to close has a lane: its descriptors in their order, one of them in work.
 * Threads take lanes by turns, and there are as many threads as have had something to do at the same time, so
 * a user that makes one thread wait delays the others only when all threads wait. Everything is under one
 * lock, except charges and the list of all entries, which belong to the loop thread.
 *
 * The hurry is a timer that sends a signal to the loop thread. Its handler does nothing, but a pending signal
 * keeps every interruptible wait short, and it stays pending until the kernel has closed everything that the
 * system call had to close.
 */
#include "base/closer.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/flood.h"
#include "base/list.h"
#include "base/log.h"
#include "base/user.h"

#define THREADS 32u
#define STACK (64u << 10) /* or more, where that is too little */
#define FAREWELL 200      /* milliseconds for the threads to finish, at the end */
#define HURRY_NS 1000000
#define HURRY_SIGNAL SIGURG
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

struct closer_lane {
        struct user *user;   /* a reference; NULL once the closer is abandoned */
        unsigned entries;    /* all: loop thread */
        unsigned overdrawn;  /* entries beyond the quota: loop thread */
        struct list ready;   /* closer->ready, while no thread works on it */
        struct list waiting; /* not begun */
        bool busy;           /* a thread works on it, or it is ready */
};

struct closer_entry {
        struct list link;     /* lane->waiting, then closer->done */
        struct list all_link; /* closer->entries */
        struct closer_lane *lane;
        int fd;
        bool overdrawn;
        struct charge charge;
};

struct closer {
        struct loop *loop;
        struct users *users;
        closer_close_fn close;
        struct list entries; /* of all lanes: loop thread */
        int event;           /* something is done */
        struct loop_io *io;
        timer_t timer;
        pthread_mutex_t lock;
        pthread_cond_t work, ended;
        struct list ready, done;
        pthread_t thread[THREADS];
        unsigned n_threads, n_ended, n_busy, n_ready;
        bool stop;
        struct closer *abandoned; /* the one that was abandoned before this one */
};

/* What threads may still use until the process ends. It is kept here so that a leak checker finds it. */
static struct closer *volatile abandoned;

/* The next entry of the lane whose turn it is. */
static struct closer_entry *closer_begin(struct closer *closer) {
        struct closer_lane *lane = list_entry(closer->ready.next, struct closer_lane, ready);
        struct closer_entry *entry = list_entry(lane->waiting.next, struct closer_entry, link);

        list_remove(&lane->ready);
        closer->n_ready--;
        closer->n_busy++;
        list_remove(&entry->link);
        return entry;
}

static void closer_make_ready(struct closer *closer, struct closer_lane *lane) {
        lane->busy = true;
        list_append(&closer->ready, &lane->ready);
        closer->n_ready++;
}

static void closer_end(struct closer *closer, struct closer_entry *entry) {
        struct closer_lane *lane = entry->lane;
        uint64_t one = 1;

        closer->n_busy--;
        list_append(&closer->done, &entry->link);
        if (list_empty(&lane->waiting))
                lane->busy = false;
        else
                closer_make_ready(closer, lane);
        while (write(closer->event, &one, sizeof(one)) < 0 && errno == EINTR)
                ;
}

static void *closer_run(void *data) {
        struct closer *closer = data;

        pthread_mutex_lock(&closer->lock);
        while (!list_empty(&closer->ready) || !closer->stop) {
                struct closer_entry *entry;

                if (list_empty(&closer->ready)) {
                        pthread_cond_wait(&closer->work, &closer->lock);
                        continue;
                }
                entry = closer_begin(closer);
                pthread_mutex_unlock(&closer->lock);
                closer->close(entry->fd);
                pthread_mutex_lock(&closer->lock);
                closer_end(closer, entry);
        }
        closer->n_ended++;
        pthread_cond_signal(&closer->ended);
        pthread_mutex_unlock(&closer->lock);
        return NULL;
}

/* Signals are the loop thread's. */
static int closer_start_thread(struct closer *closer) {
        pthread_attr_t attributes;
        long least = sysconf(_SC_THREAD_STACK_MIN);
        sigset_t all, before;
        int r = -pthread_attr_init(&attributes);

        if (r < 0)
                return r;
        r = -pthread_attr_setstacksize(&attributes, least > (long)STACK ? (size_t)least : STACK);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        if (r == 0)
                r = -pthread_create(&closer->thread[closer->n_threads], &attributes, closer_run, closer);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
        if (r == 0)
                pthread_setname_np(closer->thread[closer->n_threads++], "gs-closer");
        return r;
}

/* The lane of the user, or a new one. NULL: no memory. */
static struct closer_lane *lane_of(struct closer *closer, uid_t uid) {
        struct user *user = user_get(closer->users, uid);
        struct closer_lane *lane = user != NULL ? user->lane : NULL;

        if (user == NULL || lane != NULL)
                return lane;
        lane = calloc(1, sizeof(*lane));
        if (lane == NULL)
                return NULL;
        list_init(&lane->ready);
        list_init(&lane->waiting);
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

        lane->overdrawn -= entry->overdrawn;
        lane->entries--;
        charge_release(&entry->charge);
        list_remove(&entry->all_link);
        list_remove(&entry->link);
        free(entry);
        lane_free_unused(lane);
}

/* Gives back the charges of what has been closed. */
static void closer_settle(struct closer *closer) {
        struct list done = LIST_INIT(done);
        uint64_t count;

        if (read(closer->event, &count, sizeof(count)) < 0)
                assert(errno == EAGAIN || errno == EINTR);
        pthread_mutex_lock(&closer->lock);
        while (!list_empty(&closer->done)) {
                struct list *link = closer->done.next;

                list_remove(link);
                list_append(&done, link);
        }
        pthread_mutex_unlock(&closer->lock);
        while (!list_empty(&done))
                entry_free(list_entry(done.next, struct closer_entry, link));
}

static void closer_on_done(void *data, int fd, unsigned events) {
        closer_settle(data);
}

static void closer_on_hurry(int signal) {}

static int closer_open_timer(struct closer *closer) {
        struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = HURRY_SIGNAL };
        struct sigaction action = { .sa_handler = closer_on_hurry }; /* without SA_RESTART */
        sigset_t set;

        event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
        sigemptyset(&set);
        sigaddset(&set, HURRY_SIGNAL);
        if (sigaction(HURRY_SIGNAL, &action, NULL) < 0)
                return -errno;
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
        return timer_create(CLOCK_MONOTONIC, &event, &closer->timer) < 0 ? -errno : 0;
}

static void closer_init_lock(struct closer *closer) {
        pthread_condattr_t attributes;

        pthread_mutex_init(&closer->lock, NULL);
        pthread_cond_init(&closer->work, NULL);
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(&closer->ended, &attributes);
        pthread_condattr_destroy(&attributes);
}

static void closer_deinit(struct closer *closer) {
        pthread_cond_destroy(&closer->work);
        pthread_cond_destroy(&closer->ended);
        pthread_mutex_destroy(&closer->lock);
        fd_close(closer->event);
        free(closer);
}

int closer_new(struct loop *loop, struct users *users, closer_close_fn fn, struct closer **ret) {
        struct closer *closer = calloc(1, sizeof(*closer));

        if (closer == NULL)
                return -ENOMEM;
        closer->loop = loop;
        closer->users = users;
        closer->close = fn;
        list_init(&closer->entries);
        list_init(&closer->ready);
        list_init(&closer->done);
        closer_init_lock(closer);
        closer->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        int r = closer->event < 0 ? -errno : closer_open_timer(closer);
        if (r == 0) {
                r = loop_io_new(loop, closer->event, LOOP_READ, closer_on_done, closer, &closer->io);
                if (r < 0)
                        timer_delete(closer->timer);
        }
        if (r < 0) {
                closer_deinit(closer);
                return r;
        }
        *ret = closer;
        return 0;
}

/* Whether all threads have ended within a moment. */
static bool closer_await_threads(struct closer *closer) {
        struct timespec until;

        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += FAREWELL * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&closer->lock);
        closer->stop = true;
        pthread_cond_broadcast(&closer->work);
        while (closer->n_ended < closer->n_threads &&
               pthread_cond_timedwait(&closer->ended, &closer->lock, &until) != ETIMEDOUT)
                ;
        /* else no thread could be had */
        bool all = closer->n_ended == closer->n_threads && list_empty(&closer->ready);
        pthread_mutex_unlock(&closer->lock);
        return all;
}

/* Threads still use it, so it stays as it is, except for charges and users. */
static void closer_abandon(struct closer *closer) {
        struct closer_entry *entry;

        for (unsigned i = 0; i < closer->n_threads; i++)
                pthread_detach(closer->thread[i]);
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
        loop_io_free(closer->io);
        timer_delete(closer->timer);
        if (!closer_await_threads(closer)) {
                closer_abandon(closer);
                return NULL;
        }
        for (unsigned i = 0; i < closer->n_threads; i++)
                pthread_join(closer->thread[i], NULL);
        closer_settle(closer);
        assert(list_empty(&closer->entries));
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

int closer_take(struct closer *closer, int fd, uid_t uid, struct refusal *refusal) {
        struct closer_lane *lane = lane_of(closer, uid);
        struct closer_entry *entry = lane != NULL ? calloc(1, sizeof(*entry)) : NULL;
        int started = 0;

        if (entry == NULL) {
                if (lane != NULL)
                        lane_free_unused(lane);
                closer_hang_up(closer, fd); /* nothing better can be done without memory */
                return 0;
        }
        *entry = (struct closer_entry){ .lane = lane, .fd = fd };
        list_init(&entry->link);
        list_append(&closer->entries, &entry->all_link);
        lane->entries++;
        int r = entry_charge(closer, entry, uid, refusal);
        pthread_mutex_lock(&closer->lock);
        list_append(&lane->waiting, &entry->link);
        if (!lane->busy)
                closer_make_ready(closer, lane);
        if (closer->n_ready > closer->n_threads - closer->n_busy && closer->n_threads < THREADS)
                started = closer_start_thread(closer);
        pthread_cond_signal(&closer->work);
        pthread_mutex_unlock(&closer->lock);
        if (started < 0 && flood_admits(FLOOD_FAILED, uid, clock_now()))
                log_error("no thread can be started to close descriptors that clients have sent: %s",
                          strerror(-started));
        return r;
}

bool closer_is_overdrawn(const struct closer *closer, uid_t uid) {
        const struct user *user = user_find(closer->users, uid);

        return user != NULL && user->lane != NULL && user->lane->overdrawn > CLOSER_SLACK;
}

static void closer_set_timer(struct closer *closer, long ns) {
        struct itimerspec time = { .it_interval = { .tv_nsec = ns }, .it_value = { .tv_nsec = ns } };

        timer_settime(closer->timer, 0, &time, NULL);
}

void closer_hurry(struct closer *closer) {
        closer_set_timer(closer, HURRY_NS);
}

void closer_calm(struct closer *closer) {
        closer_set_timer(closer, 0);
}

void closer_hang_up(struct closer *closer, int sock) {
        closer_hurry(closer);
        fd_close(sock);
        closer_calm(closer);
}
