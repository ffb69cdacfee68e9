/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters in registered memory: no byte of a file belongs to two of them. */
#pragma once

struct gradsync_job;

/* Whether parameters that are registered for the next plan overlap with each other, or with those of
 * another plan made over this handle. OK, INVALID or STATE, NO_MEMORY with the text. */
int placement_check_overlap(const struct gradsync_job *job);
