/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL finds the settings of the configuration in its environment, and no other settings of its own. */
#include "tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/nccl/environment.h"
#include "engine/nccl/transports.h"

static int clear(void **state) {
        clearenv();
        return 0;
}

TEST_ALONE(words_are_settings) {
        assert_true(environment_valid(""));
        assert_true(environment_valid("  "));
        assert_true(environment_valid("NCCL_DEBUG=INFO"));
        assert_true(environment_valid(" NCCL_IB_HCA=mlx5_0:1,mlx5_1  NCCL_DEBUG= "));
        assert_false(environment_valid("NCCL_DEBUG"));
        assert_false(environment_valid("NCCL_=1"));
        assert_false(environment_valid("NCCL_debug=INFO"));
        assert_false(environment_valid("LD_PRELOAD=x.so"));
        assert_false(environment_valid("NCCL_DEBUG=INFO LD_PRELOAD=x.so"));
}

TEST_ALONE(what_lets_ranks_share_a_gpu_is_known) {
        assert_false(environment_shares_gpu("NCCL_HOSTIDS=1 NCCL_DEBUG=NCCL_HOSTID"));
        assert_true(environment_shares_gpu("NCCL_DEBUG=INFO NCCL_HOSTID=a"));
        assert_true(environment_shares_gpu("NCCL_MULTI_RANK_GPU_ENABLE=1"));
}

#define TEST(name) TEST_WITH(name, clear, NULL)

TEST(only_the_configuration_counts) {
        char ignored[512];

        setenv("NCCL_ALGO", "Tree", 1);
        setenv("NCCL_DEBUG", "TRACE", 1);
        setenv("NCCL_CONF_FILE", "/tmp/x", 1);
        setenv("MY_NCCL_PATH", "here", 1);
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
        environment_prepare("NCCL_DEBUG=WARN NCCL_IB_HCA=a=b,c", ignored, sizeof(ignored));
        assert_string_equal(ignored, "NCCL_ALGO, NCCL_DEBUG, NCCL_CONF_FILE");
        assert_null(getenv("NCCL_ALGO"));
        assert_string_equal(getenv("NCCL_DEBUG"), "WARN");
        assert_string_equal(getenv("NCCL_IB_HCA"), "a=b,c");
        assert_string_equal(getenv("NCCL_CONF_FILE"), "/dev/null");
        assert_string_equal(getenv("NCCL_RAS_ENABLE"), "0");
        assert_string_equal(getenv("MY_NCCL_PATH"), "here");
        assert_string_equal(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "1"); /* set by the operator */
        assert_int_equal(environment_log(), -1);                         /* NCCL_DEBUG is set */
}

TEST(what_nccl_does_is_written_down) {
        char ignored[512], text[8] = "";

        environment_prepare("NCCL_RAS_ENABLE=1", ignored, sizeof(ignored));
        assert_string_equal(getenv("NCCL_RAS_ENABLE"), "1");
        assert_string_equal(getenv("NCCL_DEBUG"), "INFO");
        FILE *file = fopen(getenv("NCCL_DEBUG_FILE"), "w");
        assert_non_null(file);
        fputs("line\n", file);
        fclose(file);
        assert_int_equal(pread(environment_log(), text, sizeof(text) - 1, 0), 5);
        assert_string_equal(text, "line\n");
}

TEST_ALONE(lines_tell_of_transports) {
        char name[TRANSPORT];
        uint32_t from, to;

        assert_true(transports_parse("h:1:2 [0] NCCL INFO Channel 00/0 : 3[0] -> 12[4] via P2P/CUMEM/read",
                                     &from, &to, name));
        assert_int_equal(from, 3);
        assert_int_equal(to, 12);
        assert_string_equal(name, "P2P/CUMEM");
        assert_true(transports_parse("h:1:2 [0] NCCL INFO Channel 01/0 : 1[1b000] -> 0[1] [receive] via "
                                     "NET/IB/0/GDRDMA comm 0x1 nRanks 02",
                                     &from, &to, name));
        assert_string_equal(name, "NET/IB/GDRDMA");
        assert_true(transports_parse("INFO Channel 01/0 : 1[1] -> 0[1] [send] via NET/IB/0(3)/GDRDMA/Shared",
                                     &from, &to, name));
        assert_string_equal(name, "NET/IB/GDRDMA");
        assert_true(transports_parse("INFO Channel 01/0 : 1[1] -> 0[1] [send] via NET/IB/0 not /GDRDMA",
                                     &from, &to, name));
        assert_string_equal(name, "NET/IB");
        assert_true(transports_parse("NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n", &from,
                                     &to, name));
        assert_string_equal(name, "SHM/direct");
        assert_true(transports_parse("NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P", &from, &to, name));
        assert_string_equal(name, "P2P");
        assert_false(transports_parse("NCCL INFO Channel 00/16 :  0  1", &from, &to, name));
        assert_false(transports_parse("NCCL INFO Connected all rings via nothing", &from, &to, name));
        assert_false(transports_parse("NCCL INFO Channel 00 : x[0] -> 1[1] via P2P", &from, &to, name));
        assert_false(transports_parse("NCCL INFO Channel 00 : 0[0] -> 1[1] via ", &from, &to, name));
        assert_false(transports_parse("", &from, &to, name));
}

TEST(what_a_file_sets_beside_us_is_listed) {
        char path[] = "/tmp/nccl-conf.XXXXXX", names[512];
        int fd = mkstemp(path);
        FILE *file = fdopen(fd, "w");

        fputs("# comment\nNCCL_ALGO=Ring\nNCCL_DEBUG=INFO\n\nnot a setting\nNCCL_NET=Socket\n", file);
        fclose(file);
        setenv("NCCL_DEBUG", "WARN", 1);
        environment_list_file(path, names, sizeof(names));
        assert_string_equal(names, "NCCL_ALGO, NCCL_NET");
        unlink(path);
        environment_list_file(path, names, sizeof(names));
        assert_string_equal(names, "");
}
