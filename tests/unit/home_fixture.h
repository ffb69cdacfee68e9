/* SPDX-License-Identifier: Apache-2.0 */
/* A home of parameters with its accounts; what is charged there must be given back by the end. */
#pragma once

#include "unit.h"

#include "base/user.h"
#include "job/plan/parameters.h"

struct at_home {
        struct users *accounts;
        struct loop *loop;
        struct parameters_home home;
        struct refusal refusal;
};

static inline void home_open(struct at_home *at) {
        static const uint64_t limits[ACCOUNT_SLOTS] = { [ACCOUNT_PLANS] = UINT64_C(1) << 30 };

        assert_int_equal(users_new(limits, &at->accounts), 0);
        assert_int_equal(loop_new(&at->loop), 0);
        assert_int_equal(parameters_home_init(&at->home, at->accounts, at->loop), 0);
}

static inline uint64_t home_cost(const struct at_home *at) {
        return accounts_total(at->accounts, ACCOUNT_PLANS);
}

static inline void home_close(struct at_home *at) {
        parameters_home_deinit(&at->home);
        loop_free(at->loop);
        assert_int_equal(home_cost(at), 0);
        users_free(at->accounts);
}
