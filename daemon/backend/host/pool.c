/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lock guards everything except the slices themselves. It is taken once per slice. A worker without work
 * puts itself on the idle list and sleeps on its own semaphore. The thread that takes it from that list posts
 * the semaphore, exactly once, after unlocking.
 *
 * Waking costs the waker some microseconds, so the loop thread wakes no more than two workers per task, and
 * none while the workers awake can take the rest with their next slice. The first of the two is bound to
 * another CPU. The second one is bound to the CPU of the loop thread, and starts as soon as the loop thread
 * sleeps; a later wake-up from another CPU would first have to fetch that CPU out of its idle state. A worker
 * that takes a slice, and sees more slices than the workers awake will take, wakes another one. So a large
 * task has all workers after a few steps, and a stream of small ones causes no system calls.
 *
 * A worker that has run out of work yields its CPU for a moment before it sleeps. So the threads that go on
 * after a task (the loop thread, the members with their next buckets) find a CPU that is awake. A thread that
 * computes there gets the CPU at once.
 *
 * If there are as many workers as CPUs that they may use, each is bound to one CPU. Otherwise the scheduler
 * often queues a worker on the CPU of the worker that woke it, and one CPU does all of the work.
 */
#include "pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/thread.h"

#define WORKER_STACK (256u << 10) /* kernels keep a few blocks on it, nothing deeper */
/* Microseconds: a wake-up from the idle state of a virtual CPU takes about as long. */
#define LINGER UINT64_C(60)

struct worker {
        _Alignas(64) struct pool *pool; /* workers share no cache line */
        pthread_t thread;
        sem_t wake;
        struct worker *idle; /* next on the idle list */
        int cpu;             /* the CPU that it is bound to, or -1 */
        uint64_t answered;   /* the last ping it has seen */
        uint64_t nonfinite[LIMIT_LOCAL];
};

struct pool {
        pthread_mutex_t lock;
        /* For each user with slices to hand out, the first task of the turn that is next. */
        struct list users;
        struct list unfinished, done;
        uint64_t backlog; /* slices that are not handed out yet */
        struct worker *idle;
        unsigned n_idle;
        bool pinned;          /* each worker has a CPU of its own */
        bool stop, signalled; /* signalled: the event fd was written since the last pool_take() */
        uint64_t ping;
        int event;
        unsigned n_workers;
        struct worker workers[];
};

/* ---- handing out slices; under the lock ---- */

static struct task *pool_find_user(struct pool *pool, uint64_t user) {
        struct task *task;
        list_for_each(task, &pool->users, users)
                if (task->user == user)
                        return task;
        return NULL;
}

static struct task *ring_next(const struct task *task) {
        return list_entry(task->ring.next, struct task, ring);
}

/* Returns the first task of a turn. `of_user` is a task in the ring of the turn's user, or NULL. NULL if
 * there is none. */
static struct task *ring_find(struct task *of_user, uint64_t turn) {
        struct task *task = of_user;
        while (task && task->turn != turn) {
                task = ring_next(task);
                if (task == of_user)
                        return NULL;
        }
        return task;
}

static void pool_ring_add(struct pool *pool, struct task *task) {
        struct task *of_user = pool_find_user(pool, task->user), *first = ring_find(of_user, task->turn);
        pool->backlog += task->slices;
        task->last = task;
        if (first) {
                first->last->behind = task;
                first->last = task;
        } else if (of_user) {
                list_append(&of_user->ring, &task->ring);
        } else {
                list_append(&pool->users, &task->users);
        }
}

/* Takes the first task of a turn out of its ring. The next task of the turn takes its place. Returns the task
 * that comes after it in the ring, NULL if the ring is empty then. */
static struct task *ring_leave(struct task *first) {
        struct task *successor = first->behind, *next;
        if (successor) {
                successor->last = first->last;
                list_insert(&first->ring, &successor->ring);
        }
        next = ring_next(first);
        list_remove(&first->ring);
        first->behind = NULL;
        return next != first ? next : NULL;
}

static void pool_ring_drop_first(struct task *first) {
        struct task *successor = first->behind, *next = ring_leave(first);
        if (!list_empty(&first->users) && next)
                list_insert(&first->users, successor ? &successor->users : &next->users);
        list_remove(&first->users);
}

static void pool_ring_drop(struct pool *pool, struct task *task) {
        struct task *first = ring_find(pool_find_user(pool, task->user), task->turn), *before = first;
        pool->backlog -= task->slices - task->next;
        if (first == task) {
                pool_ring_drop_first(task);
                return;
        }
        while (before->behind != task)
                before = before->behind;
        before->behind = task->behind;
        if (first->last == task)
                first->last = before;
        task->behind = NULL;
}

/* Takes the next slice of the next turn of the next user. Returns its task; NULL if there is no slice. */
static struct task *pool_ring_take(struct pool *pool, unsigned *ret_slice) {
        struct task *task, *next;
        if (list_empty(&pool->users))
                return NULL;
        task = list_entry(pool->users.next, struct task, users);
        *ret_slice = task->next++;
        task->running++;
        pool->backlog--;
        next = task->next == task->slices ? ring_leave(task) : ring_next(task);
        list_remove(&task->users);
        if (next)
                list_append(&pool->users, &next->users);
        return task;
}

/* ---- completion ---- */

/* Adds a task that has ended. Returns whether the event fd has to be written, after unlocking. */
static bool pool_done_add(struct pool *pool, struct task *task) {
        bool first = !pool->signalled;
        list_remove(&task->unfinished);
        list_append(&pool->done, &task->unfinished);
        pool->signalled = true;
        return first;
}

static void pool_event_write(const struct pool *pool) {
        uint64_t one = 1;
        ssize_t r = write(pool->event, &one, sizeof one);
        assert(r == sizeof one || errno == EAGAIN); /* EAGAIN: it is readable already */
        (void)r;
}

static bool pool_task_ended(const struct task *task) {
        return task->running == 0 && (task->cancelled || task->next == task->slices);
}

/* Ends the task with the slices that were handed out so far. */
static void pool_shorten(struct pool *pool, struct task *task) {
        if (task->cancelled || task->next == task->slices)
                return;
        pool_ring_drop(pool, task);
        task->slices = task->next;
}

/* Called with the lock held, after a slice of `task` was run; may drop the lock in between. */
static void pool_slice_ended(struct pool *pool, struct task *task, const uint64_t *nonfinite) {
        if (!task_count(task, nonfinite))
                pool_shorten(pool, task);
        task->running--;
        if (!pool_task_ended(task))
                return;
        if (!task->cancelled) {
                /* No other thread works on it now; `running` keeps a cancel() in the meantime from completing
                 * it too. */
                task->running++;
                pthread_mutex_unlock(&pool->lock);
                task_combine(task);
                pthread_mutex_lock(&pool->lock);
                task->running--;
        }
        if (pool_done_add(pool, task)) {
                pthread_mutex_unlock(&pool->lock);
                pool_event_write(pool);
                pthread_mutex_lock(&pool->lock);
        }
}

/* ---- waking; lists are taken under the lock, posted without it ---- */

/* Takes up to `n` workers off the idle list. */
static struct worker *pool_idle_take(struct pool *pool, unsigned n) {
        struct worker *taken = pool->idle, **end = &pool->idle;
        for (; n > 0 && *end; n--, pool->n_idle--)
                end = &(*end)->idle;
        if (end == &pool->idle)
                return NULL;
        pool->idle = *end;
        *end = NULL;
        return taken;
}

/* Takes the worker at *at off the idle list. */
static struct worker *pool_idle_take_at(struct pool *pool, struct worker **at) {
        struct worker *worker = *at;
        *at = worker->idle;
        worker->idle = NULL;
        pool->n_idle--;
        return worker;
}

/* Whether there are more slices than the workers awake will come back for, and a worker to wake. */
static bool pool_idle_needed(const struct pool *pool) {
        return pool->idle && pool->backlog > pool->n_workers - pool->n_idle;
}

/* Takes one more worker off the idle list, if needed. A worker that can start at once is best: one that is
 * not bound to the CPU of this thread. */
static struct worker *pool_idle_take_needed(struct pool *pool) {
        struct worker **at = &pool->idle;
        int here = sched_getcpu();
        if (!pool_idle_needed(pool))
                return NULL;
        while (*at && (*at)->cpu == here)
                at = &(*at)->idle;
        return pool_idle_take_at(pool, *at ? at : &pool->idle);
}

/* Takes the worker that is bound to this CPU off the idle list, if one more is needed. For a thread that will
 * sleep soon. */
static struct worker *pool_idle_take_here(struct pool *pool) {
        struct worker **at = &pool->idle;
        int here = pool->pinned ? sched_getcpu() : -1;
        if (!pool->pinned || !pool_idle_needed(pool))
                return NULL;
        while (*at && (*at)->cpu != here)
                at = &(*at)->idle;
        return *at ? pool_idle_take_at(pool, at) : NULL;
}

static void workers_wake(struct worker *worker) {
        while (worker) {
                struct worker *next = worker->idle; /* the worker may use it again once posted */
                sem_post(&worker->wake);
                worker = next;
        }
}

/* ---- workers ---- */

/* Sleeps until the semaphore is posted. Called and returns with the lock held. */
static void worker_sleep(struct worker *worker) {
        struct pool *pool = worker->pool;
        worker->idle = pool->idle;
        pool->idle = worker;
        pool->n_idle++;
        pthread_mutex_unlock(&pool->lock);
        while (sem_wait(&worker->wake) < 0)
                assert(errno == EINTR);
        pthread_mutex_lock(&pool->lock);
}

/* Lets other threads have the CPU, but does not sleep yet. Called and returns with the lock held. */
static void worker_linger(struct pool *pool) {
        pthread_mutex_unlock(&pool->lock);
        sched_yield();
        pthread_mutex_lock(&pool->lock);
}

/* Stops handing out slices of the task, and marks it as cancelled. */
static void pool_drop_rest(struct pool *pool, struct task *task) {
        if (task->next < task->slices && !task->cancelled)
                pool_ring_drop(pool, task);
        task->cancelled = true;
}

/* Runs one slice of `task`, and drops the rest if memory is missing; called and returns with the lock
 * held. */
static void worker_run(struct worker *worker, struct task *task, unsigned slice) {
        struct pool *pool = worker->pool;
        struct worker *other = pool_idle_take_needed(pool);
        pthread_mutex_unlock(&pool->lock);
        workers_wake(other);
        const struct backend_memory *withdrawn = task_run(task, slice, worker->nonfinite);
        pthread_mutex_lock(&pool->lock);
        if (withdrawn) {
                task->withdrawn = withdrawn;
                pool_drop_rest(pool, task);
        }
        pool_slice_ended(pool, task, worker->nonfinite);
}

static void *worker_main(void *data) {
        struct worker *worker = data;
        struct pool *pool = worker->pool;
        uint64_t rest = 0; /* when to sleep, unless there is work */
        pthread_mutex_lock(&pool->lock);
        while (!pool->stop) {
                unsigned slice;
                struct task *task = pool_ring_take(pool, &slice);
                worker->answered = pool->ping;
                if (task) {
                        worker_run(worker, task, slice);
                        rest = clock_now() + LINGER;
                } else if (clock_now() < rest) {
                        worker_linger(pool);
                } else {
                        worker_sleep(worker);
                }
        }
        pthread_mutex_unlock(&pool->lock);
        return NULL;
}

/* Returns the CPU with number `i` in the set. */
static int pool_cpu_of(const cpu_set_t *set, unsigned i) {
        unsigned left = i;
        int cpu = 0;
        while (!CPU_ISSET(cpu, set) || left-- > 0)
                cpu++;
        return cpu;
}

/* Binds the worker to a CPU of its own. */
static int worker_bind(struct worker *worker, int cpu, pthread_attr_t *attributes) {
        cpu_set_t own;
        worker->cpu = cpu;
        CPU_ZERO(&own);
        CPU_SET(cpu, &own);
        return -pthread_attr_setaffinity_np(attributes, sizeof own, &own);
}

static int worker_start(struct pool *pool, unsigned i, pthread_attr_t *attributes, const cpu_set_t *allowed) {
        struct worker *worker = &pool->workers[i];
        char name[16];
        worker->pool = pool;
        worker->cpu = -1;
        int r = pool->pinned ? worker_bind(worker, pool_cpu_of(allowed, i), attributes) : 0;
        if (r < 0)
                return r;
        if (sem_init(&worker->wake, 0, 0) < 0)
                return -errno;
        r = pthread_create(&worker->thread, attributes, worker_main, worker);
        if (r != 0) {
                sem_destroy(&worker->wake);
                return -r;
        }
        snprintf(name, sizeof name, "gs-worker-%u", i % 100000);
        pthread_setname_np(worker->thread, name);
        pool->n_workers++;
        return 0;
}

/* Starts the workers. They inherit a mask that blocks signals, which are for the loop thread. */
static int workers_start(struct pool *pool, unsigned n, const cpu_set_t *affinity) {
        pthread_attr_t attributes;
        cpu_set_t allowed;
        sigset_t all, before;
        int r = -pthread_attr_init(&attributes);
        if (r < 0)
                return r;
        r = -pthread_attr_setstacksize(&attributes, WORKER_STACK);
        if (affinity)
                allowed = *affinity;
        else if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
                CPU_ZERO(&allowed);
        pool->pinned = CPU_COUNT(&allowed) == (int)n;
        if (r == 0 && affinity && !pool->pinned)
                r = -pthread_attr_setaffinity_np(&attributes, sizeof allowed, &allowed);
        sigfillset(&all);
        sigdelset(&all, SIGBUS); /* see guard.h */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        for (unsigned i = 0; r == 0 && i < n; i++)
                r = worker_start(pool, i, &attributes, &allowed);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
        return r;
}

/* ---- the loop thread's side ---- */

int pool_new(unsigned workers, const cpu_set_t *affinity, struct pool **ret) {
        size_t size = sizeof(struct pool) + workers * sizeof(struct worker);
        struct pool *pool = aligned_alloc(_Alignof(struct worker), size);
        if (!pool)
                return -ENOMEM;
        memset(pool, 0, size);
        pthread_mutex_init(&pool->lock, NULL);
        list_init(&pool->users);
        list_init(&pool->unfinished);
        list_init(&pool->done);
        pool->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        int r = pool->event < 0 ? -errno : workers_start(pool, workers, affinity);
        if (r < 0) {
                pool_free(pool);
                return r;
        }
        *ret = pool;
        return 0;
}

struct pool *pool_free(struct pool *pool) {
        if (!pool)
                return NULL;
        pthread_mutex_lock(&pool->lock);
        assert(list_empty(&pool->unfinished) && list_empty(&pool->done));
        pool->stop = true;
        struct worker *idle = pool_idle_take(pool, pool->n_workers);
        pthread_mutex_unlock(&pool->lock);
        workers_wake(idle);
        for (unsigned i = 0; i < pool->n_workers; i++) {
                pthread_join(pool->workers[i].thread, NULL);
                sem_destroy(&pool->workers[i].wake);
        }
        pthread_mutex_destroy(&pool->lock);
        fd_close(pool->event);
        free(pool);
        return NULL;
}

int pool_fd(const struct pool *pool) {
        return pool->event;
}

void pool_submit(struct pool *pool, struct task *task) {
        pthread_mutex_lock(&pool->lock);
        list_append(&pool->unfinished, &task->unfinished);
        pool_ring_add(pool, task);
        struct worker *idle = pool_idle_take_needed(pool);
        if (idle)
                idle->idle = pool_idle_take_here(pool);
        pthread_mutex_unlock(&pool->lock);
        workers_wake(idle);
}

void pool_cancel(struct pool *pool, uint64_t id) {
        struct task *task;
        bool first = false;
        pthread_mutex_lock(&pool->lock);
        list_for_each(task, &pool->unfinished, unfinished) {
                if (task->id != id)
                        continue;
                pool_drop_rest(pool, task);
                first = pool_task_ended(task) && pool_done_add(pool, task);
                break;
        }
        pthread_mutex_unlock(&pool->lock);
        if (first)
                pool_event_write(pool);
}

void pool_take(struct pool *pool, struct list *to) {
        uint64_t count;
        struct task *task, *spare;
        ssize_t r = read(pool->event, &count, sizeof count);
        (void)r; /* nothing to read is fine */
        pthread_mutex_lock(&pool->lock);
        list_for_each_safe(task, spare, &pool->done, unfinished) {
                list_remove(&task->unfinished);
                list_append(to, &task->unfinished);
        }
        pool->signalled = false;
        pthread_mutex_unlock(&pool->lock);
}

unsigned pool_ping(struct pool *pool) {
        unsigned silent = 0;
        pthread_mutex_lock(&pool->lock);
        for (unsigned i = 0; i < pool->n_workers; i++)
                silent += pool->workers[i].answered != pool->ping;
        pool->ping++;
        struct worker *idle = pool_idle_take(pool, pool->n_workers);
        pthread_mutex_unlock(&pool->lock);
        workers_wake(idle);
        return silent;
}

bool pool_empty(struct pool *pool) {
        pthread_mutex_lock(&pool->lock);
        bool empty = list_empty(&pool->unfinished);
        pthread_mutex_unlock(&pool->lock);
        return empty;
}

unsigned pool_workers(const struct pool *pool) {
        return pool->n_workers;
}

uint64_t pool_cpu_us(const struct pool *pool) {
        uint64_t sum = 0;
        for (unsigned i = 0; i < pool->n_workers; i++)
                sum += thread_cpu_us(pool->workers[i].thread);
        return sum;
}
