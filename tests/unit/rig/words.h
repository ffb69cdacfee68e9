/* SPDX-License-Identifier: Apache-2.0 */
/* Words that commands of several rigs share: wishes of members, causes, names. */
#pragma once

#include <string.h>

#include "proto/names.h"
#include "rendezvous/machine/membership.h"
#include "script.h"

/* "exited", if the script names none. */
static inline uint32_t words_cause(struct script *script) {
        const char *name = script_has_word(script) ? script_word(script) : "exited";
        uint32_t cause = 1;

        while (strcmp(cause_name(cause), name) != 0)
                if (strcmp(cause_name(++cause), "?") == 0)
                        script_refuse(script, "there is no cause '%s'", name);
        return cause;
}

/* The options of a member that asks for a place: world=N or min=N max=N, rank=N, slot=N, host=N, device=N,
 * identity=N, instance=N, incarnation=N, timeout=US, call=US, grace=US, spare, returns. An option that is
 * missing is as in `wish`. */
static inline struct membership_request words_request(struct script *script,
                                                      const struct membership_request *wish,
                                                      uint64_t member) {
        struct membership_request r = *wish;
        uint64_t rank = script_option(script, "rank", UINT64_MAX);
        uint64_t slot = script_option(script, "slot", UINT64_MAX);
        uint32_t world = (uint32_t)script_option(script, "world", 0);

        r.member = member;
        r.pid = (int32_t)member + 100;
        r.min_world = (uint32_t)script_option(script, "min", world > 0 ? world : r.min_world);
        r.max_world = (uint32_t)script_option(script, "max", world > 0 ? world : r.max_world);
        r.returns |= script_flag(script, "returns");
        r.has_rank |= rank != UINT64_MAX && !r.returns;
        r.rank = rank != UINT64_MAX ? (uint32_t)rank : r.rank;
        r.has_slot |= slot != UINT64_MAX;
        r.slot = slot != UINT64_MAX ? (uint32_t)slot : r.slot;
        r.spare |= script_flag(script, "spare");
        r.host = (uint32_t)script_option(script, "host", r.host);
        r.device = (uint32_t)script_option(script, "device", r.device);
        r.identity = script_option(script, "identity", r.identity);
        r.instance = script_option(script, "instance", r.instance);
        r.incarnation = script_option(script, "incarnation", r.incarnation);
        r.timeout = script_option(script, "timeout", r.timeout);
        r.last_call = script_option(script, "call", r.last_call);
        r.grace = script_option(script, "grace", r.grace);
        return r;
}
