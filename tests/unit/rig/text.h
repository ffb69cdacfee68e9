/* SPDX-License-Identifier: Apache-2.0 */
/* Texts about machines, of at most TEXT_LINE bytes; each function appends to one. */
#pragma once

#include "rendezvous/machine/coordinator.h"
#include "rendezvous/machine/node.h"

#define TEXT_LINE 2048u

extern const char *const text_phases[], *const text_ends[N_JOB_ENDS];

void text_add(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_action(char *text, const struct action *action);
void text_order(char *text, const struct order *order);
void text_report(char *text, const struct report *report);
/* In short, or all that matters; of a lone node the term, too. */
void text_node(char *text, const struct node *node, bool all, bool lone);
void text_coordinator(char *text, const struct coordinator *c, bool all);
