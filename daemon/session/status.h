/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of an answer to STATUS about one thing each. */
#pragma once

#include "session/answer.h"

void status_send_daemon(struct answer *answer);
void status_send_client(struct answer *answer, const struct session *client);
/* For sessions_cluster.links, with the answer as the receiver. */
void status_send_link(void *answer, const struct sessions_link *link);
/* The job, its members by rank and then those that wait for a place, its agreed plans, and its waits. */
void status_send_whole_job(struct answer *answer, struct job *job);
/* ended.c: the jobs that have ended and are asked for, the youngest first; how many. */
uint32_t ended_send_jobs(struct answer *answer);
/* Adds the facts that metrics show of a job: its whole row, except those that view.h has to compute. */
void status_add_facts(Wire__StatusJob *row, const struct job *job, uint64_t now);
