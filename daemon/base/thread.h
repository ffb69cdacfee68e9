/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the daemon: signals are the loop thread's alone. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* `stack` bytes; 0: as is usual. The name has at most 15 characters. 0 or a negative errno. */
int thread_start(pthread_t *ret, const char *name, size_t stack, void *(*run)(void *data), void *data);
/* CPU time that it has used so far, in microseconds. */
uint64_t thread_cpu_us(pthread_t thread);
