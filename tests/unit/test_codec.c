/* SPDX-License-Identifier: Apache-2.0 */
/* Packing and unpacking: every type, every limit, hostile payloads, and that memory stays within the
 * codec. */
#include "tests.h"

#include <ctype.h>
#include <math.h>

#include "proto/codec.h"

static struct codec codec;
static uint8_t out[FRAME_MAX];

static int setup(void **state) {
        return codec_init(&codec);
}

static int teardown(void **state) {
        codec_deinit(&codec);
        return 0;
}

/* Packs without the codec's limits, unpacks with them; the message, or NULL with `why` set. */
static const char *why;
static const void *through(uint16_t type, const void *message) {
        size_t size = protobuf_c_message_get_packed_size(message);
        uint8_t *payload = malloc(size + 1);
        const ProtobufCMessage *result;

        assert_non_null(payload);
        why = NULL;
        protobuf_c_message_pack(message, payload);
        result = codec_unpack(&codec, type, payload, size, &why);
        assert_int_equal(!result, why != NULL);
        free(payload);
        return result;
}

static char *text_of(size_t length) {
        char *text = malloc(length + 1);

        assert_non_null(text);
        memset(text, 't', length);
        text[length] = '\0';
        return text;
}

/* "PLAN_BEGIN" and "PlanBegin" are the same name. */
static bool same_name(const char *type, const char *message) {
        for (; *type; type++) {
                if (*type == '_')
                        continue;
                if (tolower((unsigned char)*type) != tolower((unsigned char)*message++))
                        return false;
        }
        return *message == '\0';
}

TEST_WITH(every_type_has_its_descriptor, setup, teardown) {
        const ProtobufCEnumDescriptor *types = &wire__message_type__descriptor;
        unsigned found = 0;

        for (unsigned type = 0; type <= UINT16_MAX; type++)
                found += codec_descriptor((uint16_t)type) != NULL;
        assert_int_equal(found, types->n_values - 1);
        assert_null(codec_descriptor(WIRE__MESSAGE_TYPE__MESSAGE_NONE));
        for (unsigned i = 0; i < types->n_values; i++) {
                uint16_t type = (uint16_t)types->values[i].value;
                if (type == WIRE__MESSAGE_TYPE__MESSAGE_NONE)
                        continue;
                assert_non_null(codec_descriptor(type));
                assert_true(same_name(types->values[i].name, codec_descriptor(type)->short_name));
                assert_string_equal(codec_type_name(type), types->values[i].name);
        }
        assert_string_equal(codec_type_name(77), "type 77");
        assert_string_equal(codec_type_name(0), "type 0");
        assert_string_equal(codec_type_name(UINT16_MAX), "type 65535");
}

TEST_WITH(a_message_survives_the_way, setup, teardown) {
        Wire__Ready ready = WIRE__READY__INIT;
        const Wire__Ready *got;
        struct frame_header header;
        uint8_t absent[] = { 1, 0, 0x80 };
        ssize_t size;

        ready.has_job = ready.has_generation = ready.has_step = ready.has_bucket = ready.has_absent = true;
        ready.job = 7, ready.generation = UINT32_MAX, ready.step = UINT64_MAX, ready.bucket = 0;
        ready.absent = (ProtobufCBinaryData){ sizeof(absent), absent };
        size = codec_pack(out, WIRE__MESSAGE_TYPE__READY, 99, 2, &ready.base);
        assert_true(size > (ssize_t)FRAME_HEADER);
        assert_int_equal(frame_decode(out, (size_t)size, &header), FRAME_OK);
        assert_int_equal(header.type, WIRE__MESSAGE_TYPE__READY);
        assert_int_equal(header.request, 99);
        assert_int_equal(header.fds, 2);
        got = (const Wire__Ready *)codec_unpack(&codec, header.type, out + FRAME_HEADER, header.length, NULL);
        assert_non_null(got);
        assert_true(got->has_job && got->has_generation && got->has_step && got->has_bucket &&
                    got->has_absent);
        assert_false(got->has_plan || got->has_divisor);
        assert_int_equal(got->job, 7);
        assert_true(got->generation == UINT32_MAX && got->step == UINT64_MAX && got->bucket == 0);
        assert_int_equal(got->absent.len, sizeof(absent));
        assert_memory_equal(got->absent.data, absent, sizeof(absent));
        assert_int_equal((uintptr_t)got % 16, 0);
}

TEST_WITH(an_empty_payload_is_a_message_without_fields, setup, teardown) {
        for (unsigned type = 0; type < 64; type++)
                if (codec_descriptor((uint16_t)type))
                        assert_non_null(codec_unpack(&codec, (uint16_t)type, "", 0, NULL));
}

TEST_WITH(unknown_types_and_large_payloads_are_refused, setup, teardown) {
        static const uint8_t large[FRAME_MAX];

        assert_null(codec_unpack(&codec, 77, "", 0, &why));
        assert_string_equal(why, "the message type is unknown");
        assert_null(codec_unpack(&codec, 0, "", 0, NULL));
        assert_null(codec_unpack(&codec, WIRE__MESSAGE_TYPE__HELLO, large, FRAME_PAYLOAD_MAX + 1, &why));
        assert_string_equal(why, "the payload is larger than a frame may carry");
}

TEST_WITH(instance_0_is_not_none, setup, teardown) {
        Wire__Join join = WIRE__JOIN__INIT;
        const Wire__Join *got;

        got = through(WIRE__MESSAGE_TYPE__JOIN, &join);
        assert_true(got && !got->has_instance);
        join.has_instance = true;
        got = through(WIRE__MESSAGE_TYPE__JOIN, &join);
        assert_true(got && got->has_instance && got->instance == 0);
        join.instance = UINT64_MAX;
        got = through(WIRE__MESSAGE_TYPE__JOIN, &join);
        assert_true(got && got->instance == UINT64_MAX);
}

TEST_WITH(strings_are_bounded_utf8, setup, teardown) {
        Wire__Hello hello = WIRE__HELLO__INIT;
        const Wire__Hello *got;

        hello.program = text_of(LIMIT_TEXT);
        got = through(WIRE__MESSAGE_TYPE__HELLO, &hello);
        assert_non_null(got);
        assert_string_equal(got->program, hello.program);
        assert_null(got->library);
        free(hello.program);
        hello.program = text_of(LIMIT_TEXT + 1);
        assert_null(through(WIRE__MESSAGE_TYPE__HELLO, &hello));
        assert_string_equal(why, "a string is too long");
        free(hello.program);
        hello.program = (char[]){ "caf\xc3\xa9" };
        assert_non_null(through(WIRE__MESSAGE_TYPE__HELLO, &hello));
        hello.program = (char[]){ "caf\xc3" };
        assert_null(through(WIRE__MESSAGE_TYPE__HELLO, &hello));
        assert_string_equal(why, "a string is not valid UTF-8");
        hello.program = (char[]){ "" };
        got = through(WIRE__MESSAGE_TYPE__HELLO, &hello);
        assert_true(got && got->program && !*got->program);
}

TEST_WITH(a_string_with_a_nul_is_refused, setup, teardown) {
        static const uint8_t nul_inside[] = { 0x12, 3, 'a', 0, 'b' }, nul_at_the_end[] = { 0x12, 2, 'a', 0 };

        assert_null(codec_unpack(&codec, WIRE__MESSAGE_TYPE__HELLO, nul_inside, sizeof(nul_inside), &why));
        assert_string_equal(why, "a string contains a NUL byte");
        assert_null(codec_unpack(&codec, WIRE__MESSAGE_TYPE__HELLO, nul_at_the_end, sizeof(nul_at_the_end),
                                 &why));
        assert_string_equal(why, "a string contains a NUL byte");
}

TEST_WITH(strings_of_nested_messages_are_checked_too, setup, teardown) {
        Wire__Param good = WIRE__PARAM__INIT, bad = WIRE__PARAM__INIT, *params[] = { &good, &bad };
        Wire__PlanParams chunk = WIRE__PLAN_PARAMS__INIT;

        good.name = (char[]){ "good" };
        bad.name = (char[]){ "\xff" };
        chunk.n_param = 2, chunk.param = params;
        assert_null(through(WIRE__MESSAGE_TYPE__PLAN_PARAMS, &chunk));
        assert_string_equal(why, "a string is not valid UTF-8");
        chunk.n_param = 1;
        assert_non_null(through(WIRE__MESSAGE_TYPE__PLAN_PARAMS, &chunk));
}

TEST_WITH(a_message_in_a_field_is_checked_too, setup, teardown) {
        Wire__StatusGpu gpu = WIRE__STATUS_GPU__INIT;
        Wire__StatusDaemon told = WIRE__STATUS_DAEMON__INIT;

        told.gpu = &gpu;
        assert_non_null(through(WIRE__MESSAGE_TYPE__STATUS_DAEMON, &told));
        gpu.name = (char[]){ "\xff" };
        assert_null(through(WIRE__MESSAGE_TYPE__STATUS_DAEMON, &told));
        assert_string_equal(why, "a string is not valid UTF-8");
}

TEST_WITH(bytes_are_bounded, setup, teardown) {
        static uint8_t bits[LIMIT_BUCKET_PARAMS / 8 + 1];
        Wire__Ready ready = WIRE__READY__INIT;
        Wire__BucketResult result = WIRE__BUCKET_RESULT__INIT, *results[] = { &result };
        Wire__Step step = WIRE__STEP__INIT;

        ready.has_absent = result.has_unused = true;
        step.n_result = 1, step.result = results;
        ready.absent = result.unused = (ProtobufCBinaryData){ sizeof(bits) - 1, bits };
        assert_non_null(through(WIRE__MESSAGE_TYPE__READY, &ready));
        assert_non_null(through(WIRE__MESSAGE_TYPE__STEP, &step));
        ready.absent = result.unused = (ProtobufCBinaryData){ sizeof(bits), bits };
        assert_null(through(WIRE__MESSAGE_TYPE__READY, &ready));
        assert_string_equal(why, "a bytes field is too long");
        assert_null(through(WIRE__MESSAGE_TYPE__STEP, &step));
}

TEST_WITH(chunks_are_bounded, setup, teardown) {
        Wire__Param param = WIRE__PARAM__INIT, *params[LIMIT_CHUNK + 1];
        Wire__Bucket bucket = WIRE__BUCKET__INIT, *buckets[LIMIT_CHUNK + 1];
        Wire__PlanParams plan_params = WIRE__PLAN_PARAMS__INIT;
        Wire__PlanBuckets plan_buckets = WIRE__PLAN_BUCKETS__INIT;

        for (size_t i = 0; i <= LIMIT_CHUNK; i++)
                params[i] = &param, buckets[i] = &bucket;
        plan_params.param = params, plan_buckets.bucket = buckets;
        plan_params.n_param = plan_buckets.n_bucket = LIMIT_CHUNK;
        assert_non_null(through(WIRE__MESSAGE_TYPE__PLAN_PARAMS, &plan_params));
        assert_non_null(through(WIRE__MESSAGE_TYPE__PLAN_BUCKETS, &plan_buckets));
        plan_params.n_param = plan_buckets.n_bucket = LIMIT_CHUNK + 1;
        assert_null(through(WIRE__MESSAGE_TYPE__PLAN_PARAMS, &plan_params));
        assert_string_equal(why, "a repeated field has too many elements");
        assert_null(through(WIRE__MESSAGE_TYPE__PLAN_BUCKETS, &plan_buckets));
        assert_string_equal(why, "a repeated field has too many elements");
}

TEST_WITH(shapes_are_bounded, setup, teardown) {
        uint64_t shape[LIMIT_DIMS + 1] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
        Wire__Param param = WIRE__PARAM__INIT, *params[] = { &param };
        Wire__PlanParams chunk = WIRE__PLAN_PARAMS__INIT;
        const Wire__PlanParams *got;

        chunk.n_param = 1, chunk.param = params;
        param.shape = shape, param.n_shape = LIMIT_DIMS;
        got = through(WIRE__MESSAGE_TYPE__PLAN_PARAMS, &chunk);
        assert_non_null(got);
        assert_memory_equal(got->param[0]->shape, shape, LIMIT_DIMS * sizeof(*shape));
        param.n_shape = LIMIT_DIMS + 1;
        assert_null(through(WIRE__MESSAGE_TYPE__PLAN_PARAMS, &chunk));
        assert_string_equal(why, "a repeated field has too many elements");
}

TEST_WITH(results_are_bounded, setup, teardown) {
        static double squares[LIMIT_LOCAL + 1];
        static uint64_t counts[LIMIT_LOCAL + 1];
        Wire__BucketResult result = WIRE__BUCKET_RESULT__INIT, *results[LIMIT_RESULTS + 1];
        Wire__Step step = WIRE__STEP__INIT;

        for (size_t i = 0; i <= LIMIT_RESULTS; i++)
                results[i] = &result;
        step.result = results, step.n_result = LIMIT_RESULTS;
        assert_non_null(through(WIRE__MESSAGE_TYPE__STEP, &step));
        step.n_result = LIMIT_RESULTS + 1;
        assert_null(through(WIRE__MESSAGE_TYPE__STEP, &step));
        step.n_result = 1;
        result.rank_sum_squares = squares, result.rank_nonfinite = counts;
        result.n_rank_sum_squares = result.n_rank_nonfinite = LIMIT_LOCAL;
        assert_non_null(through(WIRE__MESSAGE_TYPE__STEP, &step));
        result.n_rank_sum_squares = LIMIT_LOCAL + 1;
        assert_null(through(WIRE__MESSAGE_TYPE__STEP, &step));
        result.n_rank_sum_squares = 0, result.n_rank_nonfinite = LIMIT_LOCAL + 1;
        assert_null(through(WIRE__MESSAGE_TYPE__STEP, &step));
}

/* A frame full of the longest names and shapes needs the most memory of what a well-behaved client sends. */
TEST_WITH(the_largest_plan_chunk_fits, setup, teardown) {
        uint64_t shape[LIMIT_DIMS] = { 1, 1, 1, 1, 1, 1, 1, 1 };
        char *name = text_of(LIMIT_NAME - 16);
        Wire__Param param = WIRE__PARAM__INIT, *params[LIMIT_CHUNK];
        Wire__PlanParams chunk = WIRE__PLAN_PARAMS__INIT;
        ssize_t size;

        param.name = name, param.n_shape = LIMIT_DIMS, param.shape = shape;
        for (size_t i = 0; i < LIMIT_CHUNK; i++)
                params[i] = &param;
        chunk.n_param = 240, chunk.param = params;
        size = codec_pack(out, WIRE__MESSAGE_TYPE__PLAN_PARAMS, 1, 0, &chunk.base);
        assert_true(size > (ssize_t)FRAME_MAX * 9 / 10);
        assert_non_null(codec_unpack(&codec, WIRE__MESSAGE_TYPE__PLAN_PARAMS, out + FRAME_HEADER,
                                     (size_t)size - FRAME_HEADER, &why));
        free(name);
        chunk.n_param = LIMIT_CHUNK;
        param.name = (char[]){ "n" };
        assert_non_null(through(WIRE__MESSAGE_TYPE__PLAN_PARAMS, &chunk));
}

/* The widest job: as many results as fit into one frame, one-byte counts that unpack to eight. */
TEST_WITH(the_largest_step_fits, setup, teardown) {
        static double squares[LIMIT_LOCAL];
        static uint64_t counts[LIMIT_LOCAL];
        Wire__BucketResult result = WIRE__BUCKET_RESULT__INIT, *results[LIMIT_RESULTS];
        Wire__Step step = WIRE__STEP__INIT;
        const Wire__Step *got;
        ssize_t size;

        for (size_t i = 0; i < LIMIT_RESULTS; i++)
                results[i] = &result;
        for (size_t i = 0; i < LIMIT_LOCAL; i++)
                squares[i] = (double)i, counts[i] = i % 128;
        squares[1] = NAN;
        result.rank_sum_squares = squares, result.rank_nonfinite = counts;
        result.n_rank_sum_squares = result.n_rank_nonfinite = LIMIT_LOCAL;
        step.result = results, step.n_result = 28;
        size = codec_pack(out, WIRE__MESSAGE_TYPE__STEP, 0, 0, &step.base);
        assert_true(size > (ssize_t)FRAME_MAX * 9 / 10);
        got = (const Wire__Step *)codec_unpack(&codec, WIRE__MESSAGE_TYPE__STEP, out + FRAME_HEADER,
                                               (size_t)size - FRAME_HEADER, &why);
        assert_non_null(got);
        assert_int_equal(got->n_result, 28);
        assert_memory_equal(got->result[27]->rank_sum_squares, squares, sizeof(squares));
        assert_memory_equal(got->result[27]->rank_nonfinite, counts, sizeof(counts));
        step.n_result = 29;
        assert_int_equal(codec_pack(out, WIRE__MESSAGE_TYPE__STEP, 0, 0, &step.base), -EMSGSIZE);
}

TEST_WITH(no_payload_is_larger_than_a_frame_may_have, setup, teardown) {
        char *text = text_of(FRAME_PAYLOAD_MAX);
        Wire__Refused message = WIRE__REFUSED__INIT;

        message.text = text;
        text[FRAME_PAYLOAD_MAX - 4] = '\0'; /* its tag, and its length in three bytes */
        assert_int_equal(codec_pack(out, WIRE__MESSAGE_TYPE__REFUSED, 0, 0, &message.base), FRAME_MAX);
        text[FRAME_PAYLOAD_MAX - 4] = 'a';
        text[FRAME_PAYLOAD_MAX - 3] = '\0';
        assert_int_equal(codec_pack(out, WIRE__MESSAGE_TYPE__REFUSED, 0, 0, &message.base), -EMSGSIZE);
        free(text);
}

TEST_WITH(a_payload_cannot_take_more_memory_than_there_is, setup, teardown) {
        static uint8_t payload[FRAME_PAYLOAD_MAX];
        size_t at = 0;

        /* Two bytes a field, each of which takes a record of its own while it is parsed. */
        while (at + 2 <= sizeof(payload))
                payload[at++] = 0x78, payload[at++] = 0;
        assert_null(codec_unpack(&codec, WIRE__MESSAGE_TYPE__LEAVE, payload, at, &why));
        assert_string_equal(why, "the payload is too complex");
        assert_non_null(codec_unpack(&codec, WIRE__MESSAGE_TYPE__LEAVE, payload, 200, &why));
        /* One-byte elements that become eight. */
        memset(payload, 0, sizeof(payload));
        memcpy(payload, (uint8_t[]){ 0x2a, 0xec, 0xff, 0x03, 0x22, 0xe8, 0xff, 0x03 }, 8);
        assert_null(codec_unpack(&codec, WIRE__MESSAGE_TYPE__STEP, payload, 4 + 0xffec, &why));
        assert_string_equal(why, "the payload is too complex");
        assert_non_null(codec_unpack(&codec, WIRE__MESSAGE_TYPE__LEAVE, "\x08\x01", 2, &why));
}

TEST_WITH(fields_of_newer_peers_are_ignored, setup, teardown) {
        static const uint8_t payload[] = {
                0x08, 5, 0xc0, 0x3e, 0x80, 0x80, 0x01, 0xca, 0x3e, 3, 'n', 'e', 'w', 0xd5, 0x3e, 1,
                2,    3, 4,    0xd9, 0x3e, 1,    2,    3,    4,    5, 6,   7,   8,   0x10, 9,
        };
        const Wire__PlanDrop *got;

        got = (const Wire__PlanDrop *)codec_unpack(&codec, WIRE__MESSAGE_TYPE__PLAN_DROP, payload,
                                                   sizeof(payload), &why);
        assert_non_null(got);
        assert_int_equal(got->job, 5);
        assert_int_equal(got->plan, 9);
}

TEST_WITH(field_zero_is_refused_in_every_encoding, setup, teardown) {
        static const uint8_t payload[] = { 0x80, 0x80, 0x80, 0x80, 0x00, 0x00 };

        assert_null(codec_unpack(&codec, WIRE__MESSAGE_TYPE__PLAN_DROP, payload + 4, 2, &why));
        for (size_t from = 0; from < 4; from++) {
                assert_null(codec_unpack(&codec, WIRE__MESSAGE_TYPE__PLAN_DROP, payload + from,
                                         sizeof(payload) - from, &why));
                assert_string_equal(why, "a field has the number 0");
        }
}

TEST_WITH(every_prefix_and_every_flip_is_survived, setup, teardown) {
        uint64_t shape[] = { 3, 1 << 20 };
        Wire__Param param = WIRE__PARAM__INIT, *params[] = { &param, &param, &param };
        Wire__PlanParams chunk = WIRE__PLAN_PARAMS__INIT;
        unsigned accepted = 0, refused = 0;
        size_t size;

        param.name = (char[]){ "layer1.weight" };
        param.n_shape = 2, param.shape = shape, param.has_dtype = param.has_bucket = true, param.bucket = 300;
        chunk.has_job = chunk.has_plan = true, chunk.n_param = 3, chunk.param = params;
        size = (size_t)codec_pack(out, WIRE__MESSAGE_TYPE__PLAN_PARAMS, 1, 0, &chunk.base) - FRAME_HEADER;
        for (size_t cut = 0; cut <= size; cut++) {
                /* a reader beyond the end is seen by the address sanitizer */
                uint8_t *exact = malloc(cut + 1);
                assert_non_null(exact);
                memcpy(exact, out + FRAME_HEADER, cut);
                for (size_t bit = 0; bit < cut * 8; bit++) {
                        exact[bit / 8] ^= (uint8_t)(1u << bit % 8);
                        *(codec_unpack(&codec, WIRE__MESSAGE_TYPE__PLAN_PARAMS, exact, cut, NULL)
                                  ? &accepted
                                  : &refused) += 1;
                        exact[bit / 8] ^= (uint8_t)(1u << bit % 8);
                }
                free(exact);
        }
        assert_true(accepted > 0 && refused > 0);
}
