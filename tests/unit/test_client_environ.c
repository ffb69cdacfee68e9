/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher table and the places of the socket. */
#include "tests.h"

#undef fail /* cmocka's macro; the library has a function of that name */
#define complain(...) (print_error(__VA_ARGS__), _fail(__FILE__, __LINE__))

#include "client/lib/base/environ.h"
#include "client/lib/base/fail.h"
#include "gradsync.pb-c.h"
#include "gradsync/gradsync.h"
#include "proto/cleanup.h"
#include "proto/names.h"

static int clean(void **state) {
        clearenv();
        return 0;
}

/* The environment is "NAME=value NAME=value". */
static void set(const char *text) {
        char copy[512], *rest = copy, *word;

        clearenv();
        assert_true(snprintf(copy, sizeof(copy), "%s", text) < (int)sizeof(copy));
        while ((word = strsep(&rest, " ")) != NULL) {
                char *value = strchr(word, '=');

                if (value == NULL)
                        continue;
                *value = '\0';
                setenv(word, value + 1, 1);
        }
}

static struct environ_job job(void) {
        struct environ_job job;

        assert_int_equal(environ_job(&job), GRADSYNC_OK);
        return job;
}

/* The name, "@", and 16 digits that say where this process runs. */
static bool is_placed(const char *name, size_t start) {
        return strlen(name) == start + 16 && strspn(name + start, "0123456789abcdef") == 16;
}

#define OWN "GRADSYNC_JOB=j GRADSYNC_WORLD_SIZE=4 "
#define TORCH "TORCHELASTIC_RUN_ID=id WORLD_SIZE=8 RANK=7 "
#define TORCH_NONE "TORCHELASTIC_RUN_ID=none RANK=0 MASTER_ADDR=host MASTER_PORT=29500 "
#define STEP "SLURM_JOB_ID=71 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 SLURM_LOCALID=0 "
#define MPIRUN "PMIX_NAMESPACE=space OMPI_COMM_WORLD_SIZE=5 OMPI_COMM_WORLD_RANK=4 "
#define PMI "GRADSYNC_JOB=m PMI_SIZE=6 PMI_RANK=5 "

/* `name` "x@": placed on this host. NULL: no launcher is seen. */
static const struct row {
        const char *set, *name;
        int64_t world, rank, local_rank, incarnation, instance;
} rows[] = {
        /* each launcher */
        { "", NULL, 0, 0, 0, 0, 0 },
        { OWN "GRADSYNC_RANK=3", "j", 4, 3, -1, 0, -1 },
        { OWN "GRADSYNC_RANK=3 GRADSYNC_LOCAL_RANK=2 GRADSYNC_INCARNATION=9", "j", 4, 3, 2, 9, -1 },
        { TORCH "LOCAL_RANK=1 TORCHELASTIC_RESTART_COUNT=2", "id", 8, 7, 1, 2, -1 },
        { STEP "SLURM_NTASKS=64 SLURM_RESTART_COUNT=6", "71.0", 2, 1, 0, 6, -1 },
        { MPIRUN "OMPI_COMM_WORLD_LOCAL_RANK=1", "space", 5, 4, 1, 0, -1 },
        { PMI "MPI_LOCALRANKID=3", "m", 6, 5, 3, 0, -1 },
        { OWN "JOB_COMPLETION_INDEX=2", "j", 4, 2, -1, 0, -1 },
        /* The processes of a step may be those that start the ranks: what it says is not about these then. */
        { STEP MPIRUN, "space", 5, 4, -1, 0, -1 },
        { STEP "PMIX_NAMESPACE=space", "71.0", 2, 1, 0, 0, -1 }, /* srun with PMIx */
        { STEP PMI, "71.0", 2, 1, 0, 0, -1 },                    /* srun with PMI */
        { STEP PMI "MPI_LOCALRANKID=0", "m", 6, 5, 0, 0, -1 },
        /* the first complete row counts; what is set to nothing is not set */
        { OWN TORCH, "id", 8, 7, -1, 0, -1 },
        { OWN "GRADSYNC_RANK=1 " TORCH, "j", 4, 1, -1, 0, -1 },
        { OWN "GRADSYNC_RANK=1 JOB_COMPLETION_INDEX=2", "j", 4, 1, -1, 0, -1 },
        { OWN "GRADSYNC_RANK= JOB_COMPLETION_INDEX=2", "j", 4, 2, -1, 0, -1 },
        /* the instance of a rank */
        { "GRADSYNC_INSTANCE=5", NULL, 0, 0, 0, 0, 0 },
        { OWN "GRADSYNC_RANK=3 GRADSYNC_INSTANCE=0", "j", 4, 3, -1, 0, 0 },
        { OWN "GRADSYNC_RANK=3 GRADSYNC_INSTANCE=9223372036854775806", "j", 4, 3, -1, 0, INT64_MAX - 1 },
        { TORCH "GRADSYNC_INSTANCE=2", "id", 8, 7, -1, 0, 2 },
        /* a spare needs no rank, and has no instance without one */
        { OWN "GRADSYNC_SPARE=1 GRADSYNC_INSTANCE=x", "j", 4, -1, -1, 0, -1 },
        { OWN "GRADSYNC_SPARE=1 GRADSYNC_RANK=3", "j", 4, 3, -1, 0, -1 },
        { OWN "GRADSYNC_SPARE=1 JOB_COMPLETION_INDEX=2", "j", 4, 2, -1, 0, -1 },
        { OWN "GRADSYNC_SPARE=0", NULL, 0, 0, 0, 0, 0 },
        { "GRADSYNC_SPARE=1", NULL, 0, 0, 0, 0, 0 },
        /* torchrun without an id: all of its ranks may be on this host */
        { TORCH_NONE "WORLD_SIZE=1", "host:29500", 1, 0, -1, 0, -1 },
        { TORCH_NONE "WORLD_SIZE=1 LOCAL_WORLD_SIZE=1", "host:29500@", 1, 0, -1, 0, -1 },
        { TORCH_NONE "WORLD_SIZE=2 LOCAL_WORLD_SIZE=1", "host:29500", 2, 0, -1, 0, -1 },
        { TORCH_NONE "TORCHELASTIC_RUN_ID=mine WORLD_SIZE=1 LOCAL_WORLD_SIZE=1", "mine", 1, 0, -1, 0, -1 },
        /* two mpirun of two containers, or hosts, may have chosen the same name */
        { MPIRUN "OMPI_COMM_WORLD_LOCAL_SIZE=5", "space@", 5, 4, -1, 0, -1 },
        { MPIRUN "OMPI_COMM_WORLD_LOCAL_SIZE=1", "space", 5, 4, -1, 0, -1 },
        { MPIRUN "PMIX_NAMESPACE=prterun-host-12345@1", "prterun-host-12345@1", 5, 4, -1, 0, -1 },
};

static bool is_row(const struct row *row, const struct environ_job *got) {
        size_t n = row->name != NULL ? strlen(row->name) : 0;

        if (row->name == NULL || got->launcher == NULL)
                return row->name == NULL && got->launcher == NULL;
        bool placed = n > 0 && row->name[n - 1] == '@';
        if (placed ? strncmp(got->name, row->name, n) != 0 || !is_placed(got->name, n)
                   : strcmp(got->name, row->name) != 0)
                return false;
        return got->world == row->world && got->rank == row->rank && got->local_rank == row->local_rank &&
               got->incarnation == row->incarnation && got->instance == row->instance;
}

TEST_WITH(test_what_launchers_say, clean, NULL) {
        for (size_t i = 0; i < array_size(rows); i++) {
                set(rows[i].set);
                struct environ_job got = job();

                if (!is_row(&rows[i], &got))
                        complain(
                                "%s: job %s, world %u, rank %d, local rank %d, incarnation %d, instance %lld",
                                rows[i].set, got.launcher ? got.name : "-", got.world, (int)got.rank,
                                (int)got.local_rank, (int)got.incarnation, (long long)got.instance);
        }
}

/* The text of the refusal names the variable. */
TEST_WITH(test_what_is_refused, clean, NULL) {
        static const struct {
                const char *set, *variable, *values[9];
        } wrong[] = {
                { OWN, "GRADSYNC_RANK", { "x", "-1", "+1", " 1", "1x", "0x1", "99999999999999999999", "4" } },
                { OWN "GRADSYNC_RANK=0", "GRADSYNC_WORLD_SIZE", { "0" } },
                { OWN "GRADSYNC_RANK=0", "GRADSYNC_JOB", { "a/b" } },
                { OWN "GRADSYNC_RANK=0",
                  "GRADSYNC_INSTANCE",
                  { "x", "-1", "1.5", "9223372036854775807", "99999999999999999999" } },
        };
        struct environ_job ret;

        for (size_t i = 0; i < array_size(wrong); i++)
                for (const char *const *value = wrong[i].values; *value != NULL; value++) {
                        set(wrong[i].set);
                        setenv(wrong[i].variable, *value, 1);
                        if (environ_job(&ret) != GRADSYNC_INVALID ||
                            strstr(fail_text(), wrong[i].variable) == NULL)
                                complain("%s=%s: %s", wrong[i].variable, *value, fail_text());
                }
}

TEST_WITH(test_any_namespace_is_a_name, clean, NULL) {
        char longest[300];
        struct environ_job ret;

        set(MPIRUN);
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

/* Each variable alone shows that a launcher has started the process. A batch script of Slurm is no step, and
 * an instance is no rank. */
TEST_WITH(test_each_variable_of_a_launcher, clean, NULL) {
        static const char *const variables[] = { "GRADSYNC_JOB",
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
                                                 "GRADSYNC_SPARE" };

        for (size_t i = 0; i < array_size(variables); i++) {
                clearenv();
                setenv(variables[i], "1", 1);
                assert_non_null(environ_launcher_variable());
                assert_string_equal(environ_launcher_variable(), variables[i]);
        }
        set("SLURM_NTASKS=4 SLURM_JOB_ID=3 SLURM_PROCID=0 GRADSYNC_INSTANCE=5");
        assert_null(environ_launcher_variable());
}

TEST_WITH(test_a_spare, clean, NULL) {
        static const char *const bad[] = { "yes", "2", "-1" };
        bool spare = true;

        assert_int_equal(environ_spare(&spare), GRADSYNC_OK);
        assert_false(spare);
        set("GRADSYNC_SPARE=1");
        assert_int_equal(environ_spare(&spare), GRADSYNC_OK);
        assert_true(spare);
        for (size_t i = 0; i < array_size(bad); i++) {
                setenv("GRADSYNC_SPARE", bad[i], 1);
                assert_int_equal(environ_spare(&spare), GRADSYNC_INVALID);
                assert_non_null(strstr(fail_text(), "GRADSYNC_SPARE"));
        }
}

/* The address of its server on this host tells one mpirun from another, under the name of any release. */
TEST_WITH(test_mpirun_by_its_address, clean, NULL) {
        static const char *const names[] = { "PMIX_SERVER_URI2", "PMIX_SERVER_URI21", "PMIX_SERVER_URI3",
                                             "PMIX_SERVER_URI4", "PMIX_SERVER_URI41" };
        char before[512];

        set(MPIRUN "OMPI_COMM_WORLD_LOCAL_SIZE=5");
        for (size_t i = 0; i < array_size(names); i++) {
                snprintf(before, sizeof(before), "%s", job().name);
                setenv(names[i], "prterun-host-1@0.0;tcp4://127.0.0.1:40333", 1);
                assert_true(is_placed(job().name, strlen("space@")));
                assert_true((strcmp(before, job().name) == 0) == (i > 0));
                setenv(names[i], "prterun-host-1@0.0;tcp4://127.0.0.1:40334", 1);
                assert_string_not_equal(before, job().name);
                setenv(names[i], "prterun-host-1@0.0;tcp4://127.0.0.1:40333", 1);
        }
}

/* The text names both variables of a pair, whatever else is missing. */
TEST_WITH(test_what_is_missing, clean, NULL) {
#define ELSE " PMIX_NAMESPACE=space SLURM_JOB_ID=1 SLURM_STEP_ID=0"
        static const struct {
                const char *set, *text;
        } missing[] = {
                { "", "" },
                { OWN, "GRADSYNC_WORLD_SIZE is set but GRADSYNC_RANK is not" },
                { "GRADSYNC_WORLD_SIZE=1" ELSE, "GRADSYNC_WORLD_SIZE is set but GRADSYNC_RANK is not" },
                { "GRADSYNC_RANK=1" ELSE, "GRADSYNC_RANK is set but GRADSYNC_WORLD_SIZE is not" },
                { "WORLD_SIZE=1" ELSE, "WORLD_SIZE is set but RANK is not" },
                { "RANK=1" ELSE, "RANK is set but WORLD_SIZE is not" },
                { "SLURM_STEP_NUM_TASKS=1" ELSE, "SLURM_STEP_NUM_TASKS is set but SLURM_PROCID is not" },
                { "OMPI_COMM_WORLD_SIZE=1" ELSE,
                  "OMPI_COMM_WORLD_SIZE is set but OMPI_COMM_WORLD_RANK is not" },
                { "OMPI_COMM_WORLD_RANK=1" ELSE,
                  "OMPI_COMM_WORLD_RANK is set but OMPI_COMM_WORLD_SIZE is not" },
                { "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1",
                  "OMPI_COMM_WORLD_RANK is set but PMIX_NAMESPACE is not" },
                { "PMI_SIZE=1" ELSE, "PMI_SIZE is set but PMI_RANK is not" },
                { "PMI_RANK=1" ELSE, "PMI_RANK is set but PMI_SIZE is not" },
                { "PMI_RANK=0 PMI_SIZE=1", "PMI_RANK is set but GRADSYNC_JOB is not" },
                { "JOB_COMPLETION_INDEX=1" ELSE,
                  "JOB_COMPLETION_INDEX is set but GRADSYNC_WORLD_SIZE is not" },
                { "GRADSYNC_WORLD_SIZE=2 JOB_COMPLETION_INDEX=1",
                  "JOB_COMPLETION_INDEX is set but GRADSYNC_JOB is not" },
        };
        char text[256];

        for (size_t i = 0; i < array_size(missing); i++) {
                set(missing[i].set);
                assert_null(job().launcher);
                environ_missing(text, sizeof(text));
                assert_string_equal(text, missing[i].text);
        }
        set("SLURM_NTASKS=4 SLURM_JOB_ID=3 SLURM_PROCID=0"); /* of a batch script */
        environ_missing(text, sizeof(text));
        assert_null(strstr(text, "SLURM_STEP_NUM_TASKS is not"));
}

/* Variables that the row which counts has too do not count as gradsync's own. */
TEST_WITH(test_own_variables_that_do_not_count, clean, NULL) {
        static const struct {
                const char *set, *own, *missing; /* NULL: none */
        } cases[] = {
                { STEP, NULL, NULL },
                { STEP OWN "GRADSYNC_RANK=1", NULL, NULL },
                { STEP "GRADSYNC_WORLD_SIZE=2 GRADSYNC_RANK=1", "GRADSYNC_WORLD_SIZE", "GRADSYNC_JOB" },
                { STEP OWN, "GRADSYNC_JOB", "GRADSYNC_RANK" },
                { STEP "GRADSYNC_JOB=j", "GRADSYNC_JOB", "GRADSYNC_WORLD_SIZE" },
                { TORCH "GRADSYNC_RANK=1", "GRADSYNC_RANK", "GRADSYNC_JOB" },
                { STEP "RANK=1 WORLD_SIZE=2", NULL, NULL },
                { PMI, NULL, NULL },
                { PMI "GRADSYNC_RANK=1", "GRADSYNC_RANK", "GRADSYNC_WORLD_SIZE" },
                { OWN "JOB_COMPLETION_INDEX=1", NULL, NULL },
                { OWN "GRADSYNC_SPARE=1", NULL, NULL },
        };

        for (size_t i = 0; i < array_size(cases); i++) {
                const char *own = NULL, *missing = NULL;
                struct environ_job job;
                size_t at = 0;

                set(cases[i].set);
                assert_int_equal(environ_next_job(&at, &job), GRADSYNC_OK);
                assert_non_null(job.launcher);
                if (environ_passes_over(at, &own, &missing) != (cases[i].own != NULL) ||
                    (cases[i].own != NULL &&
                     (strcmp(own, cases[i].own) != 0 || strcmp(missing, cases[i].missing) != 0)))
                        complain("%s: %s, %s", cases[i].set, own, missing);
        }
}

TEST_WITH(test_grace, clean, NULL) {
        static const char *const wrong[] = { "soon", "1s", "-1", "nan", "1e30", "\xff" };
        int64_t grace = -7;

        assert_int_equal(environ_grace(&grace), GRADSYNC_OK);
        assert_int_equal(grace, -7);
        set("GRADSYNC_REJOIN_GRACE=2.5");
        assert_int_equal(environ_grace(&grace), GRADSYNC_OK);
        assert_int_equal(grace, 2500);
        set("GRADSYNC_REJOIN_GRACE=0");
        assert_int_equal(environ_grace(&grace), GRADSYNC_OK);
        assert_int_equal(grace, 0);
        for (size_t i = 0; i < array_size(wrong); i++) {
                setenv("GRADSYNC_REJOIN_GRACE", wrong[i], 1);
                assert_int_equal(environ_grace(&grace), GRADSYNC_INVALID);
                assert_non_null(strstr(gradsync_error(), "GRADSYNC_REJOIN_GRACE"));
                assert_true(utf8_valid(gradsync_error(), strlen(gradsync_error())));
        }
}

/* An argument overrides the variable. */
TEST_WITH(test_the_scope, clean, NULL) {
        unsigned scope = 7;

        assert_int_equal(environ_scope(NULL, &scope), GRADSYNC_OK);
        assert_int_equal(scope, WIRE__SCOPE__SCOPE_NONE);
        assert_int_equal(environ_scope("cluster", &scope), GRADSYNC_OK);
        assert_int_equal(scope, WIRE__SCOPE__SCOPE_CLUSTER);
        set("GRADSYNC_SCOPE=host");
        assert_int_equal(environ_scope(NULL, &scope), GRADSYNC_OK);
        assert_int_equal(scope, WIRE__SCOPE__SCOPE_HOST);
        assert_int_equal(environ_scope("cluster", &scope), GRADSYNC_OK);
        assert_int_equal(scope, WIRE__SCOPE__SCOPE_CLUSTER);
        assert_int_equal(environ_scope("", &scope), GRADSYNC_INVALID);
        assert_non_null(strstr(gradsync_error(), "the join option scope= is neither 'host' nor 'cluster'"));
        assert_int_equal(environ_scope("Host\xff", &scope), GRADSYNC_INVALID);
        assert_true(utf8_valid(gradsync_error(), strlen(gradsync_error())));
        set("GRADSYNC_SCOPE=planet");
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
        set("XDG_RUNTIME_DIR=/run/user/7 GRADSYNC_DEVICE=cpu:b");
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
