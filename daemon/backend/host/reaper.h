/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that frees large arenas: unmapping gigabytes takes long, and the loop thread must not wait. */
#pragma once

struct arena;
struct reaper;

int reaper_new(struct reaper **ret);
/* Returns when all arenas that were handed over have been freed. NULL is fine. */
struct reaper *reaper_free(struct reaper *reaper);
/* Takes the arena over. The caller must not use it any more. */
void reaper_take(struct reaper *reaper, struct arena *arena);
