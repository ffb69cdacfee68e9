/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker threads, and the order in which they take slices. Users stand in a ring, and the turns of each
 * user (the caller defines a turn: it is one job's work) in a ring of their own. A worker takes one slice of
 * the next user's next turn, and both rings move on. So no user waits for more than one slice of each other
 * one, however many turns that has. Within a turn, slices are handed out in the order of submission. Finished
 * tasks wait for pool_take() and make the event fd readable. Called on the loop thread.
 */
#pragma once

#include <sched.h>
#include <stdint.h>

#include "task.h"

struct pool;

int pool_new(unsigned workers, const cpu_set_t *affinity, struct pool **ret); /* affinity may be NULL */
struct pool *pool_free(struct pool *pool); /* no task may be left; joins the workers */

int pool_fd(const struct pool *pool);
/* Takes the task over until pool_take() returns it. */
void pool_submit(struct pool *pool, struct task *task);
void pool_cancel(struct pool *pool, uint64_t id);
/* Moves all finished tasks (linked by `unfinished`) to the end of `to`. */
void pool_take(struct pool *pool, struct list *to);

bool pool_empty(struct pool *pool); /* whether no task is unfinished */

unsigned pool_ping(struct pool *pool);
unsigned pool_workers(const struct pool *pool);
uint64_t pool_cpu_us(const struct pool *pool);
