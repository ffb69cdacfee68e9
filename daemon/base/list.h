/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked list; an unlinked node points to itself. Header only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct list {
        struct list *next, *prev;
};

#define LIST_INIT(name)                                                                                      \
        { &(name), &(name) }

static inline void list_init(struct list *list) {
        list->next = list->prev = list;
}

static inline bool list_empty(const struct list *list) {
        return list->next == list;
}

/* Inserts before `at`. If `at` is the head, that is at the tail. */
static inline void list_insert(struct list *at, struct list *node) {
        node->prev = at->prev;
        node->next = at;
        at->prev->next = node;
        at->prev = node;
}

static inline void list_append(struct list *head, struct list *node) {
        list_insert(head, node);
}

/* Unlinks and leaves the node pointing to itself; harmless if it is not linked. */
static inline void list_remove(struct list *node) {
        node->prev->next = node->next;
        node->next->prev = node->prev;
        list_init(node);
}

static inline unsigned list_length(const struct list *list) {
        unsigned n = 0;

        for (const struct list *at = list->next; at != list; at = at->next)
                n++;
        return n;
}

#define list_entry(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))
#define list_for_each(item, head, member)                                                                    \
        for (item = list_entry((head)->next, __typeof__(*item), member); &item->member != (head);            \
             item = list_entry(item->member.next, __typeof__(*item), member))
/* Allows `item` to be removed in the body. */
#define list_for_each_safe(item, spare, head, member)                                                        \
        for (item = list_entry((head)->next, __typeof__(*item), member),                                     \
            spare = list_entry(item->member.next, __typeof__(*item), member);                                \
             &item->member != (head);                                                                        \
             item = spare, spare = list_entry(spare->member.next, __typeof__(*item), member))
