/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of member.c that lie on a GPU: if MEMBER_CUDA is set they are copied to and from host memory, in
 * a stream of the member's own. Otherwise they are used where they are.
 *
 * MEMBER_CUDA=complete: gradients are complete when they are marked, so the daemon has heard of a mark when
 * the command that makes it is answered, as with host memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* NULL: gradients lie in host memory. */
void *gpu_stream(void);
/* The GPU, 0 or 1, whose context is current in this thread from now on, and whose stream is used. Before that
 * it is 0. */
void gpu_use(unsigned ordinal);
/* A copy of what is at that address, or the address itself. */
void *gpu_get(void *address, size_t bytes);
/* Puts the copy back, later: the stream says when. */
void gpu_put(void *address, const void *copy, size_t bytes);
/* Memory of the GPU. */
unsigned char *gpu_allocate(size_t bytes);
void gpu_free(unsigned char *address);
/* Whether gradients are waited for before they are marked, and that waiting. */
bool gpu_is_waited_for(void);
void gpu_wait(void);
/* Fake GPU only: whether the stream is being captured into a graph. */
void gpu_capture(bool on);
