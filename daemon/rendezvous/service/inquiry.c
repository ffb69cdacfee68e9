/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/service/inquiry.h"

#include <stdio.h>
#include <stdlib.h>

struct inquiry {
        struct list link;
        const void *job;          /* the coordination of these: */
        struct list *nodes;       /* their attachments */
        struct attachment *asker; /* NULL: none of them */
        uint32_t asked, id;       /* the asker's number, and the one by which the others know it */
        uint64_t deadline;
        bool beginning; /* not all have been asked yet */
        uint32_t n_pending;
        uint32_t n;                  /* nodes that were asked */
        uint32_t address[HUB_NODES]; /* HUB_UNKNOWN: it has answered, or is gone */
        uint8_t pieces[HUB_NODES];   /* that have come from it */
};

void inquiries_init(struct inquiries *inquiries) {
        *inquiries = (struct inquiries){ 0 };
        list_init(&inquiries->list);
}

static void inquiry_drop(struct inquiry *inquiry) {
        list_remove(&inquiry->link);
        free(inquiry);
}

void inquiries_deinit(struct inquiries *inquiries) {
        struct inquiry *inquiry, *spare;

        list_for_each_safe(inquiry, spare, &inquiries->list, link)
                inquiry_drop(inquiry);
}

static void inquiry_say(const struct inquiries *inquiries, const struct inquiry *inquiry,
                        const struct hub_told *told) {
        if (inquiry->asker != NULL)
                inquiry->asker->told(inquiry->asker, told);
        else if (inquiries->told != NULL)
                inquiries->told(inquiries->data, told);
}

static bool inquiry_awaits(const struct inquiry *inquiry, uint32_t address, uint32_t *ret) {
        for (uint32_t i = 0; i < inquiry->n; i++)
                if (inquiry->address[i] == address) {
                        *ret = i;
                        return true;
                }
        return false;
}

static void told_add_host(struct hub_told *told, enum hub_host_state state, uint64_t since,
                          const struct hub_sight *sight) {
        if (told->n_hosts == HUB_HOSTS)
                return;
        struct hub_host *host = &told->host[told->n_hosts++];
        host->how = state;
        host->since = since;
        snprintf(host->name, sizeof(host->name), "%s", sight->name);
}

/* The last piece. A node that has not answered and has been heard of lately is busy, and not named. */
static void inquiry_end(struct inquiries *inquiries, struct inquiry *inquiry, uint64_t now) {
        struct hub_told told = { .id = inquiry->asked, .last = true };
        struct attachment *attachment;
        uint32_t unused;

        list_for_each(attachment, inquiry->nodes, link) {
                const struct hub_sight *sight = attachment->sight;

                if (sight == NULL || attachment == inquiry->asker)
                        continue;
                if (sight->away)
                        told_add_host(&told, HUB_AWAY, now - sight->heard, sight);
                else if (inquiry_awaits(inquiry, attachment->address, &unused) &&
                         now - sight->heard >= INQUIRY_SILENT)
                        told_add_host(&told, HUB_SILENT, now - sight->heard, sight);
        }
        if (inquiries->complete != NULL)
                inquiries->complete(inquiries->data, inquiry->job, &told);
        inquiry_say(inquiries, inquiry, &told);
        inquiry_drop(inquiry);
}

static void inquiry_settle(struct inquiries *inquiries, struct inquiry *inquiry, uint64_t now) {
        if (inquiry->n_pending == 0 && !inquiry->beginning)
                inquiry_end(inquiries, inquiry, now);
}

bool inquiry_begin(struct inquiries *inquiries, const void *job, struct list *nodes, struct attachment *asker,
                   uint32_t id, const void *waits, size_t bytes, uint64_t now) {
        struct inquiry *inquiry =
                list_length(&inquiries->list) < INQUIRIES ? calloc(1, sizeof(*inquiry)) : NULL;
        struct attachment *attachment;

        if (inquiry == NULL)
                return false;
        *inquiry = (struct inquiry){ .job = job,
                                     .nodes = nodes,
                                     .asker = asker,
                                     .asked = id,
                                     .id = ++inquiries->last,
                                     .deadline = now + INQUIRY_WAIT,
                                     .beginning = true };
        list_append(&inquiries->list, &inquiry->link);
        list_for_each(attachment, nodes, link) {
                if (attachment == asker || (attachment->sight != NULL && attachment->sight->away) ||
                    inquiry->n == HUB_NODES)
                        continue;
                inquiry->address[inquiry->n++] = attachment->address;
                inquiry->n_pending++;
                attachment->asked(attachment, inquiry->id, waits, bytes);
        }
        inquiry->beginning = false;
        inquiry_settle(inquiries, inquiry, now);
        return true;
}

void inquiry_answer(struct inquiries *inquiries, struct attachment *from, uint32_t id, bool last,
                    const void *rows, size_t bytes, uint64_t now) {
        struct inquiry *inquiry;
        uint32_t i;

        list_for_each(inquiry, &inquiries->list, link) {
                struct hub_told told = { .id = inquiry->asked, .rows = rows, .bytes = bytes };

                if (inquiry->id != id || inquiry->job != from->coordination ||
                    !inquiry_awaits(inquiry, from->address, &i))
                        continue;
                if (inquiry->pieces[i]++ < INQUIRY_PIECES && bytes > 0)
                        inquiry_say(inquiries, inquiry, &told);
                if (last || inquiry->pieces[i] == INQUIRY_PIECES) {
                        inquiry->address[i] = HUB_UNKNOWN;
                        inquiry->n_pending--;
                }
                inquiry_settle(inquiries, inquiry, now);
                return;
        }
}

/* Counts the node as if it had answered. A question of its own is dropped, with its answer. */
void inquiry_forget(struct inquiries *inquiries, struct attachment *attachment, uint64_t now) {
        struct inquiry *inquiry, *spare;
        uint32_t i;

        list_for_each_safe(inquiry, spare, &inquiries->list, link) {
                if (inquiry->job != attachment->coordination)
                        continue;
                if (inquiry->asker == attachment) {
                        inquiry_drop(inquiry);
                } else if (inquiry_awaits(inquiry, attachment->address, &i)) {
                        inquiry->address[i] = HUB_UNKNOWN;
                        inquiry->n_pending--;
                        inquiry_settle(inquiries, inquiry, now);
                }
        }
}

void inquiry_tick(struct inquiries *inquiries, uint64_t now) {
        struct inquiry *inquiry, *spare;

        list_for_each_safe(inquiry, spare, &inquiries->list, link)
                if (now >= inquiry->deadline)
                        inquiry_end(inquiries, inquiry, now);
}

/* They are in the order in which they were begun. */
uint64_t inquiry_deadline(const struct inquiries *inquiries) {
        return list_empty(&inquiries->list)
                       ? UINT64_MAX
                       : list_entry(inquiries->list.next, const struct inquiry, link)->deadline;
}
