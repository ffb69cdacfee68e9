/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that gives the memory of large arenas back: unmapping gigabytes takes long, and the loop thread
 * must not wait. */
#pragma once

struct arena;
struct reaper;

int reaper_new(struct reaper **ret);
/* Ends when everything handed over has been given back; NULL is fine. */
struct reaper *reaper_free(struct reaper *reaper);
/* Takes the arena over. It may not be used any more. */
void reaper_take(struct reaper *reaper, struct arena *arena);
