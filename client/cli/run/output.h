/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the members write, relayed line by line with their ranks in front; in files too, if that is wanted. On
 * a terminal a progress bar (a line that ends with a carriage return, and is written anew) has one row for
 * each rank, below all other output, in which it changes.
 */
#pragma once

#include "client/cli/run/run.h"

/* Opens the files for --log-dir, and finds out where there is a terminal. An exit code. */
int output_open(struct run *run);
void output_close(struct run *run);

/* One line of the private daemon's. */
void output_notice(struct run *run, const char *text);

/* One chunk of a member's stream; at its end the unfinished line too. */
void output_chunk(struct run *run, unsigned rank, int stream);
/* What is left of a line, also of a pipe that a process out of reach keeps open. */
void output_flush(struct run *run, unsigned rank);
/* What the member has written before its end, and no more. Signals are served meanwhile: the job may be ended
 * afterwards. */
void output_rest(struct run *run, unsigned rank);

/* Shows the bars as they are now, and takes them away before something else is written. */
void output_draw(struct run *run);
void output_clear(void *data);
