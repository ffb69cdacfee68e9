/* SPDX-License-Identifier: Apache-2.0 */
/* Ends the members, because of a signal or for another reason: asks them, gives them a grace time, and kills
 * them. */
#pragma once

#include "client/cli/run/run.h"

/* Asks all members to end, stopped ones too, and gives them the grace time. run->result becomes `result`. */
void stop_begin(struct run *run, int number, int result);
/* Sends a signal to all members, and to the processes that they have started. */
void stop_send(const struct run *run, int number);
/* Handles the signals that this program has got. */
void stop_take_signals(struct run *run);
/* Kills the members if the grace time is over. */
void stop_check(struct run *run);
/* Milliseconds until the grace time is over; -1: no end is set. */
int stop_time_left(const struct run *run);
