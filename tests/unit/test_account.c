/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets per uid: what is taken counts, what is released is free again, and a refusal says whose and
 * which. */
#include "unit.h"

#include <string.h>

#include "base/user.h"
#include "proto/gradsync.pb-c.h"

static const uint64_t limits[ACCOUNT_SLOTS] = { 2, 1, 3, 1000, 5, 2000 };

static void charges_add_up_and_come_back(void **state) {
        struct users *users;
        struct charge a = { 0 }, b = { 0 }, other = { 0 };

        assert_int_equal(users_new(limits, &users), 0);
        assert_int_equal(charge_take(&a, users, 7, ACCOUNT_BYTES, 600, NULL), 0);
        assert_int_equal(charge_take(&b, users, 7, ACCOUNT_BYTES, 400, NULL), 0);
        assert_int_equal(charge_take(&other, users, 8, ACCOUNT_BYTES, 1000, NULL), 0);
        assert_int_equal(accounts_used(users, 7, ACCOUNT_BYTES), 1000);
        assert_int_equal(accounts_used(users, 7, ACCOUNT_CLIENTS), 0);
        assert_int_equal(accounts_total(users, ACCOUNT_BYTES), 2000);

        charge_release(&a);
        assert_int_equal(accounts_used(users, 7, ACCOUNT_BYTES), 400);
        assert_int_equal(accounts_total(users, ACCOUNT_BYTES), 1400);
        charge_release(&a); /* empty by now */
        assert_int_equal(accounts_used(users, 7, ACCOUNT_BYTES), 400);
        charge_release(&b);
        charge_release(&other);
        assert_int_equal(accounts_used(users, 7, ACCOUNT_BYTES), 0);
        assert_int_equal(accounts_total(users, ACCOUNT_BYTES), 0);
        assert_null(users_free(users));
}

static void a_refusal_names_everything(void **state) {
        struct users *users;
        struct charge first = { 0 }, second = { 0 };
        struct refusal refusal = { 0 };

        assert_int_equal(users_new(limits, &users), 0);
        assert_int_equal(charge_take(&first, users, 1234, ACCOUNT_BYTES, 999, NULL), 0);
        assert_int_equal(charge_take(&second, users, 1234, ACCOUNT_BYTES, 2, &refusal), WIRE__CODE__QUOTA);
        assert_int_equal(refusal.code, WIRE__CODE__QUOTA);
        assert_false(refusal.has_culprit);
        assert_non_null(strstr(refusal.text, "uid 1234"));
        assert_non_null(strstr(refusal.text, "999"));
        assert_non_null(strstr(refusal.text, "1000"));
        assert_non_null(strstr(refusal.text, "bytes_per_uid"));
        assert_null(second.user);
        assert_int_equal(charge_take(&second, users, 1234, ACCOUNT_BYTES, 1, &refusal), 0);
        charge_release(&first);
        charge_release(&second);
        users_free(users);
}

static void an_amount_cannot_wrap(void **state) {
        struct users *users;
        struct charge first = { 0 }, second = { 0 };

        assert_int_equal(users_new(limits, &users), 0);
        assert_int_equal(charge_take(&first, users, 1, ACCOUNT_BYTES, 10, NULL), 0);
        assert_int_equal(charge_take(&second, users, 1, ACCOUNT_BYTES, UINT64_MAX - 5, NULL),
                         WIRE__CODE__QUOTA);
        assert_int_equal(accounts_used(users, 1, ACCOUNT_BYTES), 10);
        charge_release(&first);
        users_free(users);
}

static void lower_limits_leave_what_is_held(void **state) {
        static const uint64_t lower[ACCOUNT_SLOTS] = { 1, 1, 1, 1 };
        struct users *users;
        struct charge a = { 0 }, b = { 0 }, c = { 0 };

        assert_int_equal(users_new(limits, &users), 0);
        assert_int_equal(charge_take(&a, users, 1, ACCOUNT_CLIENTS, 1, NULL), 0);
        assert_int_equal(charge_take(&b, users, 1, ACCOUNT_CLIENTS, 1, NULL), 0);
        accounts_set_limits(users, lower);
        assert_int_equal(accounts_used(users, 1, ACCOUNT_CLIENTS), 2);
        assert_int_equal(charge_take(&c, users, 1, ACCOUNT_CLIENTS, 1, NULL), WIRE__CODE__QUOTA);
        charge_release(&a);
        assert_int_equal(charge_take(&c, users, 1, ACCOUNT_CLIENTS, 1, NULL), WIRE__CODE__QUOTA);
        charge_release(&b);
        assert_int_equal(charge_take(&c, users, 1, ACCOUNT_CLIENTS, 1, NULL), 0);
        charge_release(&c);
        users_free(users);
}

static void a_refusal_names_the_key_of_its_slot(void **state) {
        static const char *const keys[ACCOUNT_SLOTS] = {
                [ACCOUNT_CLIENTS] = "clients_per_uid", [ACCOUNT_JOBS] = "jobs_per_uid",
                [ACCOUNT_ARENAS] = "arenas_per_uid",   [ACCOUNT_BYTES] = "bytes_per_uid",
                [ACCOUNT_FDS] = "fds_per_uid",         [ACCOUNT_DEVICE] = "device_bytes_per_uid",
        };
        struct users *users;
        struct charge charge = { 0 };
        struct refusal refusal;

        assert_int_equal(users_new(limits, &users), 0);
        for (unsigned slot = 0; slot < ACCOUNT_SLOTS; slot++) {
                assert_int_equal(charge_take(&charge, users, 1, slot, limits[slot] + 1, &refusal),
                                 WIRE__CODE__QUOTA);
                assert_non_null(strstr(refusal.text, keys[slot]));
        }
        users_free(users);
}

/* A long text is cut where a character ends: it travels as UTF-8. */
static void refusals_are_cut_between_characters(void **state) {
        struct refusal refusal;
        char text[2048];

        for (unsigned shift = 0; shift < 4; shift++) {
                static const char four[] = "\xF0\x9F\x90\x8D";
                memset(text, 'x', shift);
                for (size_t at = shift; at + 4 < sizeof(text); at += 4)
                        memcpy(text + at, four, 5);
                assert_int_equal(refuse_for(&refusal, 9, 3, 77, "%s", text), 9);
                size_t length = strlen(refusal.text);
                assert_in_range(length, sizeof(refusal.text) - 4, sizeof(refusal.text) - 1);
                assert_int_equal((length - shift) % 4, 0);
                assert_memory_equal(refusal.text, text, length);
                assert_true(refusal.has_culprit);
                assert_int_equal(refusal.rank, 3);
                assert_int_equal(refusal.pid, 77);
        }
        assert_int_equal(refuse(NULL, 9, "nobody listens"), 9);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(charges_add_up_and_come_back),
                cmocka_unit_test(a_refusal_names_everything),
                cmocka_unit_test(an_amount_cannot_wrap),
                cmocka_unit_test(lower_limits_leave_what_is_held),
                cmocka_unit_test(a_refusal_names_the_key_of_its_slot),
                cmocka_unit_test(refusals_are_cut_between_characters),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
