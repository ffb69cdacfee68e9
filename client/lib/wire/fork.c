/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork() waits for all handles' locks, so that no thread is in the middle of receiving or mapping something
 * that the child would keep.
 */
#include "client/lib/wire/fork.h"

#include <pthread.h>
#include <stdatomic.h>

#include "client/lib/wire/context.h"

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct gradsync *first;
static int install_error;
static _Atomic uint32_t epoch;

static void fork_before(void) {
        pthread_mutex_lock(&registry);
        for (struct gradsync *gs = first; gs != NULL; gs = gs->next)
                pthread_mutex_lock(&gs->link.lock);
}

static void fork_in_parent(void) {
        for (struct gradsync *gs = first; gs != NULL; gs = gs->next)
                pthread_mutex_unlock(&gs->link.lock);
        pthread_mutex_unlock(&registry);
}

static void fork_in_child(void) {
        atomic_fetch_add(&epoch, 1);
        for (struct gradsync *gs = first; gs != NULL; gs = gs->next) {
                link_abandon(&gs->link);
                gs->handlers->abandon(gs);
                pthread_mutex_unlock(&gs->link.lock);
        }
        first = NULL;
        pthread_mutex_unlock(&registry);
}

static void fork_install(void) {
        install_error = pthread_atfork(fork_before, fork_in_parent, fork_in_child);
}

uint32_t fork_epoch(void) {
        return atomic_load_explicit(&epoch, memory_order_relaxed);
}

int fork_register(struct gradsync *gs) {
        pthread_once(&once, fork_install);
        if (install_error != 0)
                return install_error;
        pthread_mutex_lock(&registry);
        gs->epoch = fork_epoch();
        gs->next = first;
        first = gs;
        pthread_mutex_unlock(&registry);
        return 0;
}

void fork_unregister(struct gradsync *gs) {
        pthread_mutex_lock(&registry);
        struct gradsync **at = &first;
        while (*at != NULL && *at != gs)
                at = &(*at)->next;
        if (*at != NULL)
                *at = gs->next;
        pthread_mutex_unlock(&registry);
}
