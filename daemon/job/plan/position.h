/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct job;

/* Gives the job its slot in the journal, once it has formed or is taken back from a former daemon. A job that
 * has not formed leaves the slot of its namesake to that one's members. */
void position_claim(struct job *job);

/* Writes to the journal where the job's part on this daemon is in the cluster: its generation, its members'
 * ranks, and the tracks of its plans. To be called when the job enters a generation, before its members are
 * told, and when a track has come to another plan, or to none. */
void position_keep(const struct job *job);
