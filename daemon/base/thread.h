/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the daemon. They block all signals, which are for the loop thread alone. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Starts a thread with a stack of `stack` bytes; 0: the usual size. The name has at most 15 characters. 0 or
 * a negative errno. */
int thread_start(pthread_t *ret, const char *name, size_t stack, void *(*run)(void *data), void *data);
/* Lowers the priority of the calling thread, because its work can wait. It takes no processor from a thread
 * that runs, and gets less time than others where processors are scarce. */
void thread_stand_back(void);
/* Returns the CPU time that the thread has used so far, in microseconds; 0 if the thread has gone. */
uint64_t thread_cpu_us(pthread_t thread);
