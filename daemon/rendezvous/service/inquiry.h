/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions of a job's nodes to one another, for people: whom do you wait for, and how are your members? A
 * question goes to the coordinator, which passes it on to all other nodes of the job, and their answers back,
 * piece by piece. A node that does not answer in time is not waited for: the last piece names it, if nothing
 * else has come from its daemon either. The coordinator decides nothing by the answers.
 */
#pragma once

#include "rendezvous/hub.h"

#define INQUIRY_WAIT 300000u    /* us for which answers are waited for */
#define INQUIRY_SILENT 1000000u /* us after which a daemon counts as silent */
#define INQUIRIES 64u           /* open ones of one coordinator's daemon */
#define INQUIRY_PIECES 16u      /* of one node's answer; further ones are dropped */

struct inquiries {
        struct list list;
        uint32_t last; /* id */
        /* `told` gets an answer if the daemon itself has asked; `complete` adds hosts to the last piece. */
        void (*told)(void *data, const struct hub_told *told);
        void (*complete)(void *data, const void *job, struct hub_told *told);
        void *data;
};

void inquiries_init(struct inquiries *inquiries);
void inquiries_deinit(struct inquiries *inquiries);
/* Asks all of these nodes (the attachments of that job's coordination) except the one that asks; NULL: it is
 * none of them. False: too many questions are open. */
bool inquiry_begin(struct inquiries *inquiries, const void *job, struct list *nodes, struct attachment *asker,
                   uint32_t id, const void *waits, size_t bytes, uint64_t now);
/* A piece from one of them. */
void inquiry_answer(struct inquiries *inquiries, struct attachment *from, uint32_t id, bool last,
                    const void *rows, size_t bytes, uint64_t now);
/* That node is about to be gone. */
void inquiry_forget(struct inquiries *inquiries, struct attachment *attachment, uint64_t now);
/* Ends those that have been open for long enough. */
void inquiry_tick(struct inquiries *inquiries, uint64_t now);
uint64_t inquiry_deadline(const struct inquiries *inquiries); /* UINT64_MAX: none is open */
