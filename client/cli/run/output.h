/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Relays the output of the members line by line, with the rank in front of each line, and writes it into
 * files, too, if that is wanted. On a terminal a progress bar (a line that ends with a carriage return, and
 * is written anew) has one row for each rank, below all other output, in which it changes.
 */
#pragma once

#include "client/cli/run/run.h"

/* Opens the files for --log-dir, and finds out where there is a terminal. An exit code. */
int output_open(struct run *run);
void output_close(struct run *run);

/* Shows one line of the private daemon. */
void output_notice(struct run *run, const char *text);

/* Relays one chunk of a member's stream, and the unfinished line at the end of the stream. */
void output_chunk(struct run *run, unsigned rank, int stream);
/* Relays the unfinished lines of a member, also if another process keeps its pipes open. */
void output_flush(struct run *run, unsigned rank);
/* Relays everything that the member has written before its end, and no more. Signals are handled meanwhile:
 * they may end the job. */
void output_rest(struct run *run, unsigned rank);

/* Shows the bars as they are now, and takes them away before something else is written. */
void output_draw(struct run *run);
void output_clear(void *data);
