/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the membership share among themselves. */
#pragma once

#include "rendezvous/membership.h"

/* Whether some member has asked for its rank, so that nobody's may change; and whether all who are there can
 * go on in another generation. */
bool places_any_explicit(const struct membership *m);
bool places_all_adapt(const struct membership *m);
/* How many of those that wait a larger world has room for. */
uint32_t places_fitting(const struct membership *m);
/* Ranks and local ranks of a job that forms. */
void places_assign(struct membership *m);
/* The rank goes to the newcomer; the local rank too, on the same host. */
void places_take(struct membership *m, struct membership_member *place,
                 const struct membership_request *request, uint64_t deadline);
/* The next generation: without those who are lost, with those who wait. Where ranks were asked for, they
 * stay. */
void places_regenerate(struct membership *m);

/* The only writer of the state. */
void membership_set_state(struct membership *m, enum membership_state state);
