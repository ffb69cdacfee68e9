/* SPDX-License-Identifier: Apache-2.0 */
/* Seals: of all sizes of parts, wherever the task is done; each changed bit of the data, or of a seal. */
#include "host_fixture.h"
#include "tests.h"

#include "backend/host/task.h"

#define BYTES (UINT64_C(4) << 20)
#define SEALS_AT (BYTES / 2)
#define GIVEN BYTES

static const struct {
        uint64_t part, parts;
} shapes[] = { { 1, 1 },
               { 64, 1 },
               { 64, 300 },
               { 4096, 7 },
               { SEAL_PIECE, 1 },
               { SEAL_PIECE, 3 },
               { SEAL_PIECE + 1, 2 },
               { SEAL_PIECE - 1, 2 },
               { 600064, 3 },
               { UINT64_C(2) << 20, 1 } };
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static const struct backend_seal key = { .key = { { 1, 2, 3 } } };

static uint64_t pieces_of(unsigned shape) {
        return shapes[shape].parts * seal_pieces(shapes[shape].part);
}

/* Computes a seal as backend.h describes it. */
static struct sha256 expected(const unsigned char *data, unsigned shape, uint64_t piece) {
        uint64_t part = shapes[shape].part, each = (part + SEAL_PIECE - 1) / SEAL_PIECE;
        uint64_t at = piece % each * SEAL_PIECE, left = part - at;
        struct sha256 of_piece, made;

        assert_int_equal(sha256_hmac(key.key.byte, 32, &piece, sizeof(piece), &of_piece), 0);
        assert_int_equal(sha256_hmac(of_piece.byte, 32, data + piece / each * part + at,
                                     left < SEAL_PIECE ? left : SEAL_PIECE, &made),
                         0);
        return made;
}

static struct backend_task task_of(const struct backend_seal *seal, const struct backend_range *ranges,
                                   bool makes, uint64_t pieces) {
        return (struct backend_task){ .id = 1,
                                      .turn = 1,
                                      .dtype = WIRE__DTYPE__U8,
                                      .elements = pieces,
                                      .n_inputs = makes ? 1 : 2,
                                      .n_outputs = makes ? 2 : 0,
                                      .inputs = ranges,
                                      .outputs = ranges + 1,
                                      .seal = seal };
}

/* Returns the result of a check of all pieces. */
static uint64_t found_by(struct backend *backend, struct done *done, const struct member *member,
                         unsigned shape) {
        struct backend_seal seal = key;
        struct backend_range ranges[] = { { member->arena, 0 }, { member->arena, SEALS_AT } };
        struct backend_task task = task_of(&seal, ranges, false, pieces_of(shape));

        seal.part = shapes[shape].part;
        fixture_run(backend, done, &task);
        assert_false(done->at[done->n - 1].cancelled);
        return done->at[--done->n].found;
}

/* Makes the seals of the bytes at GIVEN, part by part, as nodes do. */
static void make(struct backend *backend, struct done *done, const struct member *member, unsigned shape) {
        uint64_t part = shapes[shape].part, each = seal_pieces(part);

        for (uint64_t i = 0; i < part * shapes[shape].parts; i++)
                member->map[GIVEN + i] = (unsigned char)(i * 7 + i / 251);
        memset(member->map, 0, BYTES);
        for (uint64_t i = 0; i < shapes[shape].parts; i++) {
                struct backend_seal seal = { .key = key.key, .part = part, .number = i * each };
                struct backend_range ranges[] = { { member->arena, GIVEN + i * part },
                                                  { member->arena, SEALS_AT + i * each * SEAL_BYTES },
                                                  { member->arena, i * part } };
                struct backend_task task = task_of(&seal, ranges, true, each);

                fixture_run(backend, done, &task);
                assert_int_equal(done->at[--done->n].found, BACKEND_NOWHERE);
        }
}

MEMBER_TEST(they_are_what_the_header_says, 3, 2 * BYTES) {
        for (unsigned shape = 0; shape < SHAPES; shape++) {
                make(backend, done, member, shape);
                assert_memory_equal(member->map, member->map + GIVEN,
                                    shapes[shape].part * shapes[shape].parts);
                for (uint64_t piece = 0; piece < pieces_of(shape); piece++) {
                        struct sha256 want = expected(member->map, shape, piece);

                        assert_memory_equal(member->map + SEALS_AT + piece * SEAL_BYTES, want.byte, 32);
                }
                assert_int_equal(member->map[SEALS_AT + pieces_of(shape) * SEAL_BYTES], 0);
                assert_int_equal(found_by(backend, done, member, shape), BACKEND_NOWHERE);
        }
}

MEMBER_TEST(the_first_piece_that_was_changed_is_found, 3, 2 * BYTES) {
        uint64_t seed = 5;

        for (unsigned shape = 0; shape < SHAPES; shape++) {
                uint64_t part = shapes[shape].part, each = seal_pieces(part),
                         all = part * shapes[shape].parts;

                make(backend, done, member, shape);
                for (unsigned turn = 0; turn < 20; turn++) {
                        uint64_t at = turn == 0 ? 0 : turn == 1 ? all - 1 : random_next(&seed) % all;
                        uint64_t of = random_next(&seed) % (pieces_of(shape) * SEAL_BYTES);
                        uint64_t piece = at / part * each + at % part / SEAL_PIECE;

                        member->map[at] ^= 0x10;
                        assert_int_equal(found_by(backend, done, member, shape), piece);
                        member->map[SEALS_AT + of] ^= 1;
                        if (of / SEAL_BYTES < piece)
                                piece = of / SEAL_BYTES;
                        assert_int_equal(found_by(backend, done, member, shape), piece);
                        member->map[at] ^= 0x10;
                        assert_int_equal(found_by(backend, done, member, shape), of / SEAL_BYTES);
                        member->map[SEALS_AT + of] ^= 1;
                }
                assert_int_equal(found_by(backend, done, member, shape), BACKEND_NOWHERE);
        }
}

/* No seal is all zero, so what is not there is none. */
MEMBER_TEST(a_piece_does_not_stand_for_another, 1, 2 * BYTES) {
        unsigned char seal[32];

        make(backend, done, member, 2);
        for (unsigned i = 0; i < 64; i++)
                member->map[i] = member->map[64 + i];
        memcpy(member->map + SEALS_AT, member->map + SEALS_AT + 32, 32);
        assert_int_equal(found_by(backend, done, member, 2), 0);
        make(backend, done, member, 2);
        memcpy(seal, member->map + SEALS_AT, 32);
        memset(member->map + SEALS_AT, 0, 32);
        assert_int_equal(found_by(backend, done, member, 2), 0);
        memcpy(member->map + SEALS_AT, seal, 32);
        assert_int_equal(found_by(backend, done, member, 2), BACKEND_NOWHERE);
}

/* The loop thread does what takes it no longer than a small reduction. */
MEMBER_TEST(many_pieces_are_for_workers, 1, 2 * BYTES) {
        struct backend_seal seal = { .key = key.key, .part = 64 };
        struct backend_range ranges[] = { { member->arena, GIVEN },
                                          { member->arena, SEALS_AT },
                                          { member->arena, 0 } };
        struct backend_task task = task_of(&seal, ranges, true, 1);
        struct backend_result result;

        assert_int_equal(backend->compute->submit(backend, &task, &result), 1);
        task.elements = 64;
        assert_int_equal(backend->compute->submit(backend, &task, &result), 0);
        fixture_wait(backend, done, 1);
        seal.part = SEAL_PIECE;
        task.elements = 1;
        assert_int_equal(backend->compute->submit(backend, &task, &result), 0);
        fixture_wait(backend, done, 2);
}

MEMBER_TEST(what_is_no_such_task_is_refused, 1, 2 * BYTES) {
        struct backend_seal seal = { .key = key.key, .part = 64 }, none = { .key = key.key };
        struct backend_range ranges[] = { { member->arena, GIVEN },
                                          { member->arena, SEALS_AT },
                                          { member->arena, 0 } };
        struct backend_task wrong[7];
        struct backend_result result;

        for (unsigned i = 0; i < 7; i++)
                wrong[i] = task_of(&seal, ranges, true, 2);
        wrong[0].dtype = WIRE__DTYPE__F32;
        wrong[1].reduce = WIRE__REDUCE__SUM;
        wrong[2].n_outputs = 1;
        wrong[3].n_outputs = 0;
        wrong[4].find = true;
        wrong[5].first = 1;
        wrong[6].seal = &none;
        for (unsigned i = 0; i < 7; i++)
                assert_int_equal(backend->compute->submit(backend, &wrong[i], &result), -EINVAL);
}
