/* SPDX-License-Identifier: Apache-2.0 */
/* How the members are ended, because of a signal or something else: asked, with a grace time, and killed. */
#pragma once

#include "client/cli/run/run.h"

/* Asks all members to end, stopped ones too, and gives them the grace time. run->result becomes `result`. */
void stop_begin(struct run *run, int number, int result);
/* Sends a signal to all of them, and to what they have started. */
void stop_send(const struct run *run, int number);
/* Signals that this program has got. */
void stop_take_signals(struct run *run);
/* Kills the members if the grace time is over. */
void stop_check(struct run *run);
/* Milliseconds until it is; -1: no end is set. */
int stop_time_left(const struct run *run);
