/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed operations of a job over several hosts: they bring what was given, and where something between the
 * hosts has changed it, nothing. */
static _Bool apart = 1;
#define HOSTS_APART apart
#define STAGING (2u << 20) /* several pieces for each seal */
#include "nodes_fixture.h"

static unsigned char given_byte(uint32_t rank, uint64_t i) {
        return (unsigned char)(rank * 61 + i * 7 + i / 251);
}

static int sealed_call(uint32_t rank, unsigned kind, uint64_t bytes, uint32_t root, bool sealed) {
        return call_for(
                rank, (struct operation_request){
                              .kind = kind, .root = root, .bytes = bytes, .total = bytes, .sealed = sealed });
}

/* The first `n` ranks call the operation. */
static void call_all(uint32_t n, unsigned kind, uint64_t bytes, uint32_t root) {
        for (uint32_t rank = 0; rank < n; rank++) {
                unsigned char *staging = cluster->trainer[rank].staging;

                for (uint64_t i = 0; i < bytes; i++)
                        staging[i] = given_byte(rank, i);
                memset(staging + STAGING / 2, 0xee, STAGING / 2);
                assert_int_equal(sealed_call(rank, kind, bytes, root, true), 0);
        }
        for (uint32_t node = 0; node < cluster->n; node++)
                until(job_on(node)->operation.n_calls == 0);
}

static bool got_it(uint32_t rank, unsigned kind, uint64_t bytes, uint32_t root, uint32_t world) {
        const unsigned char *staging = cluster->trainer[rank].staging + STAGING / 2;
        bool gather = kind == WIRE__OPERATION_KIND__ALLGATHER, all = true;

        for (uint64_t i = 0; i < (gather ? world * bytes : bytes); i++)
                all &= staging[i] == given_byte(gather ? (uint32_t)(i / bytes) : root, i % bytes);
        return all;
}

static bool got_nothing(uint32_t rank) {
        const unsigned char *staging = cluster->trainer[rank].staging + STAGING / 2;
        uint64_t i = 0;

        while (i < STAGING / 2 && staging[i] == 0xee)
                i++;
        return i == STAGING / 2;
}

static const struct {
        unsigned kind;
        uint64_t bytes;
        uint32_t root;
} calls[] = { { WIRE__OPERATION_KIND__BROADCAST, 1, 0 },
              { WIRE__OPERATION_KIND__BROADCAST, 100, 2 },
              { WIRE__OPERATION_KIND__BROADCAST, 3 * SEAL_PIECE + 5, 3 },
              { WIRE__OPERATION_KIND__BROADCAST, STAGING / 2, 0 },
              { WIRE__OPERATION_KIND__ALLGATHER, 64, 0 },
              { WIRE__OPERATION_KIND__ALLGATHER, 64 * 1023, 0 },
              { WIRE__OPERATION_KIND__ALLGATHER, STAGING / 8, 0 } };
#define CALLS (sizeof(calls) / sizeof(calls[0]))

static void call_each(void) {
        for (unsigned i = 0; i < CALLS; i++) {
                call_all(4, calls[i].kind, calls[i].bytes, calls[i].root);
                for (uint32_t rank = 0; rank < 4; rank++)
                        assert_true(
                                (calls[i].kind == WIRE__OPERATION_KIND__BROADCAST && rank == calls[i].root) ||
                                got_it(rank, calls[i].kind, calls[i].bytes, calls[i].root, 4));
        }
}

/* ---- between the hosts ---- */

static struct {
        uint64_t payloads; /* that have come by */
        uint64_t change;   /* place of the byte that is changed */
        /* The last payload that was kept: number of its operation, secret of its generation, bytes. */
        uint64_t number;
        struct sha256 secret;
        unsigned char *kept;
        uint64_t bytes;
} between;

static void keep(struct fake_engine *fake, unsigned char *data, uint64_t bytes) {
        between.payloads++;
        between.number = machine_operation(job_on(fake->node));
        between.secret = job_on(fake->node)->secret;
        between.bytes = bytes;
        between.kept = realloc(between.kept, bytes);
        memcpy(between.kept, data, bytes);
}

static void change(struct fake_engine *fake, unsigned char *data, uint64_t bytes) {
        assert_true(between.change < bytes);
        data[between.change] ^= 1;
}

static void show_older(struct fake_engine *fake, unsigned char *data, uint64_t bytes) {
        assert_int_equal(bytes, between.bytes);
        memcpy(data, between.kept, bytes);
}

/* Each node hears of the others what its own members have called; data goes from the first one to them. */
static void agree_with_all(struct fake_engine *fake, uint64_t *value) {
        struct comm_words own;

        spread_words(job_on(fake->node), &own);
        own.largest = 1;
        comm_pack(value, &own);
}

static void stray(struct fake_engine *fake, uint64_t *value) {
        value[2 + 2 * 5] = 0x40000000; /* the reduction, which an allgather has not */
        value[3 + 2 * 5] = ~value[2 + 2 * 5];
}

static int setup_staged(void **state) {
        memset(&between, 0, sizeof(between));
        setup_formed_nodes(state);
        stage_all(4);
        return 0;
}

static int teardown_between(void **state) {
        for (uint32_t node = 0; node < cluster->n; node++)
                cluster->fabric->node[node].between = NULL;
        free(between.kept);
        between.kept = NULL;
        apart = true;
        return teardown(state);
}

#define TEST(name, ...) NODES_TEST_BETWEEN(setup_staged, teardown_between, name, __VA_ARGS__)

TEST(they_bring_what_was_given, TWO_AVG, THREE_SUM) {
        cluster->fabric->node[1].between = keep;
        call_each();
        assert_int_equal(between.payloads, CALLS);
        assert_true(between.bytes > 4 * (STAGING / 8)); /* and its seals */
        assert_int_equal(cluster->node[0].refused + cluster->node[1].refused, 0);
}

/* Computes a seal as the text of the protocol describes it. */
static struct sha256 seal_of(unsigned i, uint64_t piece, const unsigned char *data, uint64_t bytes) {
        uint64_t root = calls[i].kind == WIRE__OPERATION_KIND__BROADCAST ? calls[i].root : 0;
        uint64_t about[8] = { 0, 0, between.number, calls[i].kind, calls[i].bytes, calls[i].bytes, 0, root };
        struct sha256 key, of_piece, seal;

        memcpy(about, "operation", 9);
        assert_int_equal(sha256_hmac(between.secret.byte, 32, about, sizeof(about), &key), 0);
        assert_int_equal(sha256_hmac(key.byte, 32, &piece, 8, &of_piece), 0);
        assert_int_equal(sha256_hmac(of_piece.byte, 32, data, bytes, &seal), 0);
        return seal;
}

TEST(seals_are_what_the_protocol_says, TWO_AVG) {
        cluster->fabric->node[1].between = keep;
        for (unsigned i = 0; i < CALLS; i++) {
                bool gather = calls[i].kind == WIRE__OPERATION_KIND__ALLGATHER;
                uint64_t part = calls[i].bytes, whole = gather ? 4 * part : part, piece = 0;
                const unsigned char *seals;

                call_all(4, calls[i].kind, part, calls[i].root);
                assert_false(sha256_is_none(&between.secret));
                seals = between.kept + (whole + 63) / 64 * 64;
                for (uint64_t at = 0; at < whole; piece++) {
                        uint64_t left = part - at % part;
                        uint64_t bytes = left < SEAL_PIECE ? left : SEAL_PIECE;
                        struct sha256 seal = seal_of(i, piece, between.kept + at, bytes);

                        assert_memory_equal(seals + 32 * piece, seal.byte, 32);
                        at += bytes;
                }
                assert_ptr_equal(seals + 32 * piece, between.kept + between.bytes);
        }
}

static int setup_on_one_host(void **state) {
        apart = false;
        return setup_staged(state);
}

/* Data that does not leave a host has no seals. */
NODES_TEST_BETWEEN(setup_on_one_host, teardown_between, on_one_host_they_are_as_any, TWO_AVG) {
        cluster->fabric->node[1].between = keep;
        call_each();
        assert_int_equal(between.bytes, 4 * (STAGING / 8));
}

/* That node's members are refused, with the rank that gave it; the others have what was given, and the next
 * one works. */
static void expect_changed(unsigned i, uint64_t at, uint32_t from) {
        uint64_t bytes = calls[i].bytes;

        cluster->node[1].refused = cluster->node[1].code = 0;
        between.change = at;
        cluster->fabric->node[1].between = change;
        call_all(4, calls[i].kind, bytes, calls[i].root);
        assert_int_equal(cluster->node[1].refused, job_on(1)->n_local);
        assert_int_equal(cluster->node[1].code, WIRE__CODE__PROTOCOL);
        assert_int_equal(cluster->node[1].culprit, from);
        assert_true(has_said(1, "was changed on its way between hosts"));
        assert_int_equal(cluster->node[0].refused, 0);
        for (uint32_t rank = 0; rank < 4; rank++) {
                bool root = calls[i].kind == WIRE__OPERATION_KIND__BROADCAST && rank == calls[i].root;

                assert_true(root || (rank < 2 ? got_it(rank, calls[i].kind, bytes, calls[i].root, 4)
                                              : got_nothing(rank)));
        }
        cluster->fabric->node[1].between = NULL;
}

TEST(what_was_changed_is_refused, TWO_AVG) {
        for (uint64_t at = 0; at < 128 + 32; at++)
                if (at < 100 || at >= 128) /* else it is behind the data */
                        expect_changed(1, at, 2);
        for (uint64_t at = 0; at < 4 * (64 + 32); at++)
                expect_changed(4, at, (uint32_t)(at < 4 * 64 ? at / 64 : (at - 4 * 64) / 32));
        for (uint64_t piece = 0; piece < 4; piece++)
                expect_changed(2, piece * SEAL_PIECE + 4, 3);
        expect_changed(0, 0, 0);
        expect_changed(3, STAGING / 2 - 1, 0);
        expect_changed(6, STAGING / 2 - 1, 3);
        call_each();
}

/* The root's node has the data, and may be made to take some all the same. */
TEST(the_node_of_the_root_is_no_exception, TWO_AVG) {
        between.change = 7;
        cluster->fabric->node[0].between = change;
        call_all(4, WIRE__OPERATION_KIND__BROADCAST, 64, 0);
        assert_int_equal(cluster->node[0].refused, 2);
        assert_int_equal(cluster->node[1].refused, 0);
        assert_true(got_nothing(1));
}

TEST(an_older_one_is_not_taken_again, TWO_AVG) {
        for (unsigned i = 0; i < CALLS; i++) {
                cluster->node[1].refused = 0;
                cluster->fabric->node[1].between = keep;
                call_all(4, calls[i].kind, calls[i].bytes, calls[i].root);
                assert_int_equal(cluster->node[1].refused, 0);
                cluster->fabric->node[1].between = show_older;
                call_all(4, calls[i].kind, calls[i].bytes, calls[i].root);
                assert_int_equal(cluster->node[1].refused, job_on(1)->n_local);
                assert_true(got_nothing(2));
        }
}

/* The number of the operation is the same, because another one would make a difference by itself. */
TEST(one_of_another_generation_is_not_taken, TWO_AVG) {
        struct sha256 secret;
        uint64_t number;

        for (uint32_t rank = 0; rank < 4; rank++)
                assert_int_equal(sealed_call(rank, WIRE__OPERATION_KIND__BROADCAST, rank < 2 ? 64 : 128, 0,
                                             true),
                                 0);
        until(cluster->node[0].refused == 2 && cluster->node[1].refused == 2);
        cluster->fabric->node[1].between = keep;
        call_all(4, WIRE__OPERATION_KIND__BROADCAST, 64, 0);
        number = between.number;
        secret = between.secret;
        lose(1);
        until(job_on(0)->state == JOB_REPLACING);
        join(0, 1, 4);
        until(cluster->trainer[1].member != NULL && job_on(1)->generation == 2);
        bring(1);
        stage(1);
        settle();
        cluster->node[1].refused = 0;
        cluster->fabric->node[1].between = show_older;
        assert_int_equal(machine_operation(job_on(1)), number);
        call_all(4, WIRE__OPERATION_KIND__BROADCAST, 64, 0);
        assert_int_equal(cluster->node[1].refused, 2);
        assert_true(got_nothing(2) && got_nothing(3));
        assert_false(sha256_equal(&secret, &job_on(1)->secret));
}

/* The hosts are made to believe that all have called the same. */
static void expect_other(struct operation_request first, struct operation_request second) {
        cluster->node[1].refused = cluster->node[0].refused = 0;
        for (uint32_t rank = 0; rank < 4; rank++) {
                struct operation_request call = rank < 2 ? first : second;

                memset(cluster->trainer[rank].staging, 0xee, STAGING);
                call.kind = WIRE__OPERATION_KIND__BROADCAST;
                call.bytes = 64;
                call.sealed = true;
                assert_int_equal(call_for(rank, call), 0);
        }
        for (uint32_t node = 0; node < cluster->n; node++)
                until(job_on(node)->operation.n_calls == 0);
        assert_int_equal(cluster->node[0].refused, 0);
        assert_int_equal(cluster->node[1].refused, 2);
        assert_int_equal(cluster->node[1].code, WIRE__CODE__PROTOCOL);
}

TEST(one_of_another_root_or_place_is_not_taken, TWO_AVG) {
        for (uint32_t node = 0; node < 2; node++)
                cluster->fabric->node[node].values = agree_with_all;
        expect_other((struct operation_request){ .root = 0, .total = 128 },
                     (struct operation_request){ .root = 1, .total = 128 });
        expect_other((struct operation_request){ .root = 0, .total = 128 },
                     (struct operation_request){ .root = 0, .total = 192 });
        expect_other((struct operation_request){ .root = 0, .total = 128, .offset = 64 },
                     (struct operation_request){ .root = 0, .total = 128 });
}

TEST(they_pass_a_node_without_members, THREE_FOR_TWO) {
        give_all(4);
        until(all_committed(1));
        lose(2);
        until(all_entered(2));
        assert_int_equal(job_on(1)->n_local, 0);
        call_all(3, WIRE__OPERATION_KIND__ALLGATHER, 6400, 0);
        for (uint32_t rank = 0; rank < 3; rank++)
                assert_true(got_it(rank, WIRE__OPERATION_KIND__ALLGATHER, 6400, 0, 3));
        cluster->fabric->node[1].values = stray; /* which it has nothing to compare with */
        cluster->fabric->node[2].between = change;
        call_all(3, WIRE__OPERATION_KIND__ALLGATHER, 64, 1);
        assert_int_equal(cluster->node[2].refused, 1);
        assert_int_equal(cluster->node[0].refused + cluster->node[1].refused, 0);
}

/* ---- calls ---- */

TEST(all_seal_it_or_none_does, TWO_AVG) {
        for (uint32_t rank = 0; rank < 4; rank++)
                assert_int_equal(sealed_call(rank, WIRE__OPERATION_KIND__BROADCAST, 64, 0, rank < 2), 0);
        until(cluster->node[0].refused == 2 && cluster->node[1].refused == 2);
        assert_int_equal(cluster->node[0].code, WIRE__CODE__OPERATION_MISMATCH);
        assert_true(has_said(0, "than the sealed broadcast of 64 bytes from rank 0"));
        assert_int_equal(sealed_call(0, WIRE__OPERATION_KIND__ALLGATHER, 64, 0, true), 0);
        assert_int_equal(sealed_call(1, WIRE__OPERATION_KIND__ALLGATHER, 64, 0, false),
                         WIRE__CODE__OPERATION_MISMATCH);
        assert_non_null(strstr(cluster->refusal.text, "calls allgather of 64 bytes, rank 0 (pid "));
        assert_non_null(strstr(cluster->refusal.text, "calls sealed allgather of 64 bytes"));
}

/* All members are at the same place of the same call. */
TEST(parts_of_a_call_are_told_apart, TWO_AVG) {
        for (unsigned kind = WIRE__OPERATION_KIND__BROADCAST; kind <= WIRE__OPERATION_KIND__ALLREDUCE;
             kind++) {
                struct operation_request call = { .kind = kind,
                                                  .dtype = WIRE__DTYPE__F32,
                                                  .reduce = WIRE__REDUCE__SUM,
                                                  .bytes = 64,
                                                  .total = 128 };

                cluster->node[0].refused = cluster->node[1].refused = 0;
                for (uint32_t rank = 0; rank < 4; rank++) {
                        call.offset = rank < 2 ? 64 : 0;
                        assert_int_equal(call_for(rank, call), 0);
                }
                until(cluster->node[0].refused == 2 && cluster->node[1].refused == 2);
                assert_int_equal(call_for(0, call), 0);
                call.offset = 64;
                assert_int_equal(call_for(1, call), WIRE__CODE__OPERATION_MISMATCH);
                for (uint32_t rank = 2; rank < 4; rank++)
                        call_for(rank, call);
                settle();
        }
}

TEST(reductions_have_no_seals, TWO_AVG) {
        for (unsigned kind = WIRE__OPERATION_KIND__BARRIER; kind <= WIRE__OPERATION_KIND__ALLREDUCE; kind++)
                if (kind != WIRE__OPERATION_KIND__BARRIER && !spread_can_be_sealed(kind)) {
                        assert_int_equal(sealed_call(0, kind, 64, 0, true), WIRE__CODE__INVALID);
                        assert_non_null(strstr(cluster->refusal.text, "has no seals"));
                }
}

static bool is_checked_or_done(uint32_t node) {
        return job_on(node)->operation.n_calls == 0 || job_on(node)->operation.spread.phase == SPREAD_CHECKS;
}

/* A member is lost at each moment of an operation, in the end while its seals are checked. */
TEST(a_loss_ends_one_everywhere_alike, TWO_AVG) {
        for (unsigned moment = 0; moment < 26; moment++) {
                unsigned before[2] = { cluster->node[0].operations, cluster->node[1].operations };

                for (uint32_t rank = 0; rank < 4; rank++)
                        assert_int_equal(sealed_call(rank, WIRE__OPERATION_KIND__ALLGATHER, STAGING / 8, 0,
                                                     true),
                                         0);
                for (unsigned i = 0; i < moment && moment < 20; i++)
                        pass();
                if (moment >= 20)
                        until(is_checked_or_done(moment % 2));
                lose(2);
                until(!is_busy() && job_on(0)->state == JOB_REPLACING);
                assert_int_equal(cluster->node[0].operations - before[0] > 0,
                                 cluster->node[1].operations - before[1] > 0);
                join(1, 2, 4);
                until(cluster->trainer[2].member != NULL && job_on(0)->state == JOB_RUNNING);
                bring(2);
                stage(2);
                settle();
        }
        call_each();
}
