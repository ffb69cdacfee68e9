/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher table and the places of the socket. */
#include "cases.h"

#undef fail /* cmocka's macro; the library has a function of that name */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/base/environ.h"
#include "client/lib/base/fail.h"
#include "gradsync.pb-c.h"
#include "gradsync/gradsync.h"
#include "proto/names.h"

static int clean(void **state) {
        clearenv();
        return 0;
}

static void set(const char *const *pairs) {
        clearenv();
        for (; *pairs != NULL; pairs += 2)
                setenv(pairs[0], pairs[1], 1);
}

#define SET(...) set((const char *const[]){ __VA_ARGS__, NULL })

static struct environ_job job(void) {
        struct environ_job job;

        assert_int_equal(environ_job(&job), GRADSYNC_OK);
        return job;
}

TEST_WITH(test_nothing_set, clean, NULL) {
        char text[256];

        assert_null(job().launcher);
        assert_null(environ_launcher_variable());
        environ_missing(text, sizeof(text));
        assert_string_equal(text, "");
}

TEST_WITH(test_each_row, clean, NULL) {
        SET("GRADSYNC_JOB", "j", "GRADSYNC_WORLD_SIZE", "4", "GRADSYNC_RANK", "3");
        assert_string_equal(job().name, "j");
        assert_int_equal(job().world, 4);
        assert_int_equal(job().rank, 3);
        assert_int_equal(job().local_rank, -1);
        assert_int_equal(job().incarnation, 0);
        setenv("GRADSYNC_LOCAL_RANK", "2", 1);
        setenv("GRADSYNC_INCARNATION", "9", 1);
        assert_int_equal(job().local_rank, 2);
        assert_int_equal(job().incarnation, 9);
        SET("TORCHELASTIC_RUN_ID", "id", "WORLD_SIZE", "8", "RANK", "7", "LOCAL_RANK", "1",
            "TORCHELASTIC_RESTART_COUNT", "2");
        assert_string_equal(job().name, "id");
        assert_int_equal(job().rank, 7);
        assert_int_equal(job().local_rank, 1);
        assert_int_equal(job().incarnation, 2);
        SET("SLURM_JOB_ID", "71", "SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "2", "SLURM_NTASKS", "64",
            "SLURM_PROCID", "1", "SLURM_LOCALID", "0", "SLURM_RESTART_COUNT", "6");
        assert_string_equal(job().name, "71.0");
        assert_int_equal(job().incarnation, 6);
        assert_int_equal(job().world, 2);
        assert_int_equal(job().local_rank, 0);
        SET("PMIX_NAMESPACE", "1460600833", "OMPI_COMM_WORLD_SIZE", "5", "OMPI_COMM_WORLD_RANK", "4",
            "OMPI_COMM_WORLD_LOCAL_RANK", "1");
        assert_string_equal(job().name, "1460600833");
        assert_int_equal(job().world, 5);
        assert_int_equal(job().rank, 4);
        assert_int_equal(job().local_rank, 1);
        SET("GRADSYNC_JOB", "m", "PMI_SIZE", "6", "PMI_RANK", "5", "MPI_LOCALRANKID", "3");
        assert_string_equal(job().name, "m");
        assert_int_equal(job().world, 6);
        assert_int_equal(job().rank, 5);
        assert_int_equal(job().local_rank, 3);
        SET("GRADSYNC_JOB", "k", "GRADSYNC_WORLD_SIZE", "3", "JOB_COMPLETION_INDEX", "2");
        assert_string_equal(job().name, "k");
        assert_int_equal(job().rank, 2);
}

/* The step's own processes are those that start the ranks, so what it says is not about these. */
TEST_WITH(test_mpirun_within_a_step, clean, NULL) {
        SET("SLURM_JOB_ID", "71", "SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "2", "SLURM_PROCID", "1",
            "SLURM_LOCALID", "0", "PMIX_NAMESPACE", "space", "OMPI_COMM_WORLD_SIZE", "8",
            "OMPI_COMM_WORLD_RANK", "7");
        assert_string_equal(job().name, "space");
        assert_int_equal(job().rank, 7);
        unsetenv("OMPI_COMM_WORLD_RANK"); /* srun with PMIx */
        unsetenv("OMPI_COMM_WORLD_SIZE");
        assert_string_equal(job().name, "71.0");
        SET("SLURM_JOB_ID", "71", "SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "2", "SLURM_PROCID", "1",
            "SLURM_LOCALID", "0", "PMI_SIZE", "2", "PMI_RANK", "1", "GRADSYNC_JOB", "m");
        assert_string_equal(job().name, "71.0"); /* srun with PMI */
        setenv("MPI_LOCALRANKID", "0", 1);
        assert_string_equal(job().name, "m");
}

TEST_WITH(test_any_namespace_is_a_name, clean, NULL) {
        char longest[300];
        struct environ_job ret;

        SET("PMIX_NAMESPACE", "prterun-host-12345@1", "OMPI_COMM_WORLD_SIZE", "1", "OMPI_COMM_WORLD_RANK",
            "0");
        assert_string_equal(job().name, "prterun-host-12345@1");
        setenv("PMIX_NAMESPACE", "a/b%c d\n\xff", 1);
        assert_string_equal(job().name, "a%2Fb%25c%20d%0A%FF");
        memset(longest, 'x', sizeof(longest));
        longest[255] = '\0';
        setenv("PMIX_NAMESPACE", longest, 1);
        assert_string_equal(job().name, longest);
        memset(longest, '/', 255);
        setenv("PMIX_NAMESPACE", longest, 1);
        assert_int_equal(environ_job(&ret), GRADSYNC_INVALID);
        assert_non_null(strstr(fail_text(), "PMIX_NAMESPACE"));
}

/* Each of them alone says that this process is not. */
TEST_WITH(test_each_variable_of_a_launcher, clean, NULL) {
        static const char *const variables[] = {
                "GRADSYNC_JOB",
                "GRADSYNC_WORLD_SIZE",
                "GRADSYNC_RANK",
                "TORCHELASTIC_RUN_ID",
                "WORLD_SIZE",
                "RANK",
                "SLURM_STEP_NUM_TASKS",
                "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_RANK",
                "PMI_SIZE",
                "PMI_RANK",
                "JOB_COMPLETION_INDEX",
                "GRADSYNC_SPARE",
        };

        for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
                SET(variables[i], "1");
                assert_non_null(environ_launcher_variable());
                assert_string_equal(environ_launcher_variable(), variables[i]);
        }
}

TEST_WITH(test_the_first_complete_row_counts, clean, NULL) {
        SET("GRADSYNC_JOB", "j", "GRADSYNC_WORLD_SIZE", "4", "TORCHELASTIC_RUN_ID", "id", "WORLD_SIZE", "8",
            "RANK", "7");
        assert_string_equal(job().name, "id");
        setenv("GRADSYNC_RANK", "1", 1);
        assert_string_equal(job().name, "j");
        SET("GRADSYNC_JOB", "j", "GRADSYNC_WORLD_SIZE", "4", "GRADSYNC_RANK", "1", "JOB_COMPLETION_INDEX",
            "2");
        assert_int_equal(job().rank, 1);
        setenv("GRADSYNC_RANK", "", 1); /* set to nothing is not set */
        assert_int_equal(job().rank, 2);
}

TEST_WITH(test_the_instance_of_the_rank, clean, NULL) {
        static const char *const bad[] = { "x", "-1", "1.5", "9223372036854775807", "99999999999999999999" };
        struct environ_job ret;

        SET("GRADSYNC_INSTANCE", "5"); /* of no rank */
        assert_null(job().launcher);
        assert_null(environ_launcher_variable());
        SET("GRADSYNC_JOB", "j", "GRADSYNC_WORLD_SIZE", "4", "GRADSYNC_RANK", "3");
        assert_int_equal(job().instance, -1);
        setenv("GRADSYNC_INSTANCE", "0", 1);
        assert_int_equal(job().instance, 0);
        setenv("GRADSYNC_INSTANCE", "9223372036854775806", 1);
        assert_int_equal(job().instance, INT64_MAX - 1);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                setenv("GRADSYNC_INSTANCE", bad[i], 1);
                assert_int_equal(environ_job(&ret), GRADSYNC_INVALID);
                assert_non_null(strstr(fail_text(), "GRADSYNC_INSTANCE"));
        }
        SET("TORCHELASTIC_RUN_ID", "id", "WORLD_SIZE", "8", "RANK", "7", "GRADSYNC_INSTANCE", "2");
        assert_int_equal(job().instance, 2);
}

TEST_WITH(test_a_spare_needs_no_rank, clean, NULL) {
        static const char *const bad[] = { "yes", "2", "-1" };
        bool spare = true;

        assert_int_equal(environ_spare(&spare), GRADSYNC_OK);
        assert_false(spare);
        SET("GRADSYNC_JOB", "j", "GRADSYNC_WORLD_SIZE", "4", "GRADSYNC_SPARE", "1", "GRADSYNC_INSTANCE", "x");
        assert_int_equal(job().world, 4);
        assert_int_equal(job().rank, -1);
        assert_int_equal(job().instance, -1);
        assert_int_equal(environ_spare(&spare), GRADSYNC_OK);
        assert_true(spare);
        SET("GRADSYNC_JOB", "j", "GRADSYNC_WORLD_SIZE", "4", "GRADSYNC_SPARE", "1", "GRADSYNC_RANK", "3");
        assert_int_equal(job().rank, 3);
        SET("GRADSYNC_JOB", "j", "GRADSYNC_WORLD_SIZE", "4", "GRADSYNC_SPARE", "1", "JOB_COMPLETION_INDEX",
            "2");
        assert_int_equal(job().rank, 2);
        SET("GRADSYNC_JOB", "j", "GRADSYNC_WORLD_SIZE", "4", "GRADSYNC_SPARE", "0");
        assert_null(job().launcher); /* and a rank is missing, as without it */
        SET("GRADSYNC_SPARE", "1");
        assert_null(job().launcher);
        assert_string_equal(environ_launcher_variable(), "GRADSYNC_SPARE");
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                setenv("GRADSYNC_SPARE", bad[i], 1);
                assert_int_equal(environ_spare(&spare), GRADSYNC_INVALID);
                assert_non_null(strstr(fail_text(), "GRADSYNC_SPARE"));
        }
}

/* The name, "@", and 16 digits that say where this process runs. */
static bool is_placed(const char *name, const char *start) {
        size_t n = strlen(start);

        return strncmp(name, start, n) == 0 && name[n] == '@' && strlen(name + n + 1) == 16 &&
               strspn(name + n + 1, "0123456789abcdef") == 16;
}

TEST_WITH(test_torchrun_without_an_id, clean, NULL) {
        SET("TORCHELASTIC_RUN_ID", "none", "WORLD_SIZE", "1", "RANK", "0", "MASTER_ADDR", "host",
            "MASTER_PORT", "29500");
        assert_string_equal(job().name, "host:29500");
        setenv("LOCAL_WORLD_SIZE", "1", 1); /* all ranks are on this host */
        assert_true(is_placed(job().name, "host:29500"));
        setenv("WORLD_SIZE", "2", 1);
        assert_string_equal(job().name, "host:29500");
        SET("TORCHELASTIC_RUN_ID", "mine", "WORLD_SIZE", "1", "RANK", "0", "LOCAL_WORLD_SIZE", "1",
            "MASTER_ADDR", "host", "MASTER_PORT", "29500");
        assert_string_equal(job().name, "mine"); /* its user's choice */
}

/* Two launchers of two containers, or hosts, may have chosen the same. */
TEST_WITH(test_mpirun_on_one_host, clean, NULL) {
        SET("PMIX_NAMESPACE", "1460600833", "OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_RANK", "0",
            "OMPI_COMM_WORLD_LOCAL_SIZE", "2");
        assert_true(is_placed(job().name, "1460600833"));
        setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1", 1);
        assert_string_equal(job().name, "1460600833");
}

/* The address of its server on this host tells one mpirun from another, under the name of any release. */
TEST_WITH(test_mpirun_by_its_address, clean, NULL) {
        static const char *const names[] = { "PMIX_SERVER_URI2", "PMIX_SERVER_URI21", "PMIX_SERVER_URI3",
                                             "PMIX_SERVER_URI4", "PMIX_SERVER_URI41" };
        char before[512];

        SET("PMIX_NAMESPACE", "1", "OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_RANK", "0",
            "OMPI_COMM_WORLD_LOCAL_SIZE", "2");
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                snprintf(before, sizeof(before), "%s", job().name);
                setenv(names[i], "prterun-host-1@0.0;tcp4://127.0.0.1:40333", 1);
                assert_true(is_placed(job().name, "1"));
                assert_true((strcmp(before, job().name) == 0) == (i > 0));
                setenv(names[i], "prterun-host-1@0.0;tcp4://127.0.0.1:40334", 1);
                assert_string_not_equal(before, job().name);
                setenv(names[i], "prterun-host-1@0.0;tcp4://127.0.0.1:40333", 1);
        }
}

TEST_WITH(test_numbers_that_are_none, clean, NULL) {
        static const char *const bad[] = { "x", "-1", "+1", " 1", "1x", "0x1", "99999999999999999999", "4" };
        struct environ_job ret;

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                SET("GRADSYNC_JOB", "j", "GRADSYNC_WORLD_SIZE", "4", "GRADSYNC_RANK", bad[i]);
                assert_int_equal(environ_job(&ret), GRADSYNC_INVALID);
                assert_non_null(strstr(fail_text(), "GRADSYNC_RANK"));
        }
        SET("GRADSYNC_JOB", "j", "GRADSYNC_WORLD_SIZE", "0", "GRADSYNC_RANK", "0");
        assert_int_equal(environ_job(&ret), GRADSYNC_INVALID);
        assert_non_null(strstr(fail_text(), "GRADSYNC_WORLD_SIZE"));
        SET("GRADSYNC_JOB", "a/b", "GRADSYNC_WORLD_SIZE", "1", "GRADSYNC_RANK", "0");
        assert_int_equal(environ_job(&ret), GRADSYNC_INVALID);
        assert_non_null(strstr(fail_text(), "GRADSYNC_JOB"));
}

TEST_WITH(test_what_is_missing, clean, NULL) {
        char text[256];

        SET("GRADSYNC_JOB", "j", "GRADSYNC_WORLD_SIZE", "4");
        environ_missing(text, sizeof(text));
        assert_string_equal(text, "GRADSYNC_WORLD_SIZE is set but GRADSYNC_RANK is not");
        assert_string_equal(environ_launcher_variable(), "GRADSYNC_JOB");
        SET("SLURM_NTASKS", "4", "SLURM_JOB_ID", "3", "SLURM_PROCID", "0");
        assert_null(environ_launcher_variable()); /* a batch script is no step */
        environ_missing(text, sizeof(text));
        assert_null(strstr(text, "SLURM_STEP_NUM_TASKS is not"));
        SET("OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "1");
        environ_missing(text, sizeof(text));
        assert_string_equal(text, "OMPI_COMM_WORLD_RANK is set but PMIX_NAMESPACE is not");
        SET("PMI_RANK", "0", "PMI_SIZE", "1");
        environ_missing(text, sizeof(text));
        assert_string_equal(text, "PMI_RANK is set but GRADSYNC_JOB is not");
}

/* Whatever else is missing: both are named. */
TEST_WITH(test_half_of_size_and_rank, clean, NULL) {
        static const struct {
                const char *set, *missing;
        } halves[] = {
                { "GRADSYNC_WORLD_SIZE", "GRADSYNC_RANK" },
                { "GRADSYNC_RANK", "GRADSYNC_WORLD_SIZE" },
                { "WORLD_SIZE", "RANK" },
                { "RANK", "WORLD_SIZE" },
                { "SLURM_STEP_NUM_TASKS", "SLURM_PROCID" },
                { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK" },
                { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
                { "PMI_SIZE", "PMI_RANK" },
                { "PMI_RANK", "PMI_SIZE" },
                { "JOB_COMPLETION_INDEX", "GRADSYNC_WORLD_SIZE" },
        };
        char text[256], wanted[256];

        for (size_t i = 0; i < sizeof(halves) / sizeof(halves[0]); i++) {
                SET(halves[i].set, "1", "PMIX_NAMESPACE", "space", "SLURM_JOB_ID", "1", "SLURM_STEP_ID", "0");
                snprintf(wanted, sizeof(wanted), "%s is set but %s is not", halves[i].set, halves[i].missing);
                assert_null(job().launcher);
                environ_missing(text, sizeof(text));
                assert_string_equal(text, wanted);
        }
        SET("GRADSYNC_WORLD_SIZE", "2", "JOB_COMPLETION_INDEX", "1");
        environ_missing(text, sizeof(text));
        assert_string_equal(text, "JOB_COMPLETION_INDEX is set but GRADSYNC_JOB is not");
}

TEST_WITH(test_grace, clean, NULL) {
        static const char *const wrong[] = { "soon", "1s", "-1", "nan", "1e30", "\xff" };
        int64_t grace = -7;

        assert_int_equal(environ_grace(&grace), GRADSYNC_OK);
        assert_int_equal(grace, -7);
        SET("GRADSYNC_REJOIN_GRACE", "2.5");
        assert_int_equal(environ_grace(&grace), GRADSYNC_OK);
        assert_int_equal(grace, 2500);
        SET("GRADSYNC_REJOIN_GRACE", "0");
        assert_int_equal(environ_grace(&grace), GRADSYNC_OK);
        assert_int_equal(grace, 0);
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                SET("GRADSYNC_REJOIN_GRACE", wrong[i]);
                assert_int_equal(environ_grace(&grace), GRADSYNC_INVALID);
                assert_non_null(strstr(gradsync_error(), "GRADSYNC_REJOIN_GRACE"));
                assert_true(utf8_valid(gradsync_error(), strlen(gradsync_error())));
        }
}

/* What was given goes before the variable. */
TEST_WITH(test_the_scope, clean, NULL) {
        unsigned scope = 7;

        assert_int_equal(environ_scope(NULL, &scope), GRADSYNC_OK);
        assert_int_equal(scope, WIRE__SCOPE__SCOPE_NONE);
        assert_int_equal(environ_scope("cluster", &scope), GRADSYNC_OK);
        assert_int_equal(scope, WIRE__SCOPE__SCOPE_CLUSTER);
        SET("GRADSYNC_SCOPE", "host");
        assert_int_equal(environ_scope(NULL, &scope), GRADSYNC_OK);
        assert_int_equal(scope, WIRE__SCOPE__SCOPE_HOST);
        assert_int_equal(environ_scope("cluster", &scope), GRADSYNC_OK);
        assert_int_equal(scope, WIRE__SCOPE__SCOPE_CLUSTER);
        assert_int_equal(environ_scope("", &scope), GRADSYNC_INVALID);
        assert_non_null(strstr(gradsync_error(), "the join option scope= is neither 'host' nor 'cluster'"));
        assert_int_equal(environ_scope("Host\xff", &scope), GRADSYNC_INVALID);
        assert_true(utf8_valid(gradsync_error(), strlen(gradsync_error())));
        SET("GRADSYNC_SCOPE", "planet");
        assert_int_equal(environ_scope(NULL, &scope), GRADSYNC_INVALID);
        assert_non_null(strstr(gradsync_error(), "GRADSYNC_SCOPE=planet"));
        assert_int_equal(environ_scope("host", &scope), GRADSYNC_OK);
}

TEST_WITH(test_sockets, clean, NULL) {
        struct environ_sockets sockets;
        char path[200];

        assert_int_equal(environ_sockets(&sockets, NULL, NULL), GRADSYNC_OK);
        assert_int_equal(sockets.n, 1);
        assert_false(sockets.named);
        assert_string_equal(sockets.path[0], "/run/gradsync/cpu/socket");
        SET("XDG_RUNTIME_DIR", "/run/user/7", "GRADSYNC_DEVICE", "cpu:b");
        assert_int_equal(environ_sockets(&sockets, NULL, NULL), GRADSYNC_OK);
        assert_int_equal(sockets.n, 2);
        assert_string_equal(sockets.path[0], "/run/user/7/gradsync/cpu:b/socket");
        assert_string_equal(sockets.path[1], "/run/gradsync/cpu:b/socket");
        assert_int_equal(environ_sockets(&sockets, NULL, "cpu:c"), GRADSYNC_OK);
        assert_string_equal(sockets.path[1], "/run/gradsync/cpu:c/socket");
        setenv("GRADSYNC_SOCKET", "/s", 1);
        assert_int_equal(environ_sockets(&sockets, NULL, "cpu:c"), GRADSYNC_OK);
        assert_int_equal(sockets.n, 1);
        assert_true(sockets.named);
        assert_string_equal(sockets.path[0], "/s");
        assert_int_equal(environ_sockets(&sockets, "/t", NULL), GRADSYNC_OK);
        assert_string_equal(sockets.path[0], "/t");
        memset(path, 'p', sizeof(path));
        path[108] = 0;
        assert_int_equal(environ_sockets(&sockets, path, NULL), GRADSYNC_INVALID);
        path[107] = 0;
        assert_int_equal(environ_sockets(&sockets, path, NULL), GRADSYNC_OK);
        assert_int_equal(environ_sockets(&sockets, "", NULL), GRADSYNC_INVALID);
        unsetenv("GRADSYNC_SOCKET");
        assert_int_equal(environ_sockets(&sockets, NULL, "../x"), GRADSYNC_INVALID);
        assert_int_equal(environ_sockets(&sockets, NULL, ".."), GRADSYNC_INVALID);
}
