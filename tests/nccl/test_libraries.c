/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL as NVIDIA ships it, without use of a GPU: checks that it is as proto/nccl.h says, and reads no more of
 * the environment than environment.h leaves. It reads the environment once in a process, so each case has a
 * process of its own. GRADSYNC_TEST_NCCL is the library, GRADSYNC_TEST_NCCL_VERSION its version, such as
 * 2.28.9. See test_nccl_wheels.py, which runs this.
 */
#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/nccl/environment.h"
#include "proto/nccl.h"

#define PATIENCE 50 /* seconds, after which a case hangs */
#define SET " set by environment"

/* For the process of a case. */
#define CHECK(what)                                                                                          \
        do {                                                                                                 \
                if (!(what))                                                                                 \
                        give_up(__LINE__, #what);                                                            \
        } while (0)

static char folder[] = "/tmp/gs-nccl.XXXXXX", log_path[64], home[64];

_Noreturn static void give_up(int line, const char *what) {
        fprintf(stderr, "test_libraries.c:%d: not so: %s\n", line, what);
        _exit(1);
}

/* Some releases of NCCL find the home folder by this function, others by HOME. */
__attribute__((visibility("default"))) struct passwd *getpwuid(uid_t uid) {
        static struct passwd self;

        self = (struct passwd){ .pw_name = (char *)"somebody", .pw_uid = uid, .pw_dir = home };
        return &self;
}

/* ---- a case ---- */

/* Clears the environment, and hides all GPUs. */
static void prepare(void) {
        clearenv();
        setenv("PATH", "/usr/bin:/bin", 1);
        setenv("HOME", home, 1);
        setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
}

static void run(void (*role)(const char *library, const char *version)) {
        const char *library = getenv("GRADSYNC_TEST_NCCL"), *version = getenv("GRADSYNC_TEST_NCCL_VERSION");
        int status;

        assert_non_null(library);
        assert_non_null(version);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
                alarm(PATIENCE);
                prepare();
                role(library, version);
                _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
                fail_msg("it hangs");
        assert_int_equal(status, 0);
}

/* A test whose body runs in a process of its own. */
#define CASE(name)                                                                                           \
        static void name##_role(const char *library, const char *version);                                   \
        static void name(void **state) {                                                                     \
                run(name##_role);                                                                            \
        }                                                                                                    \
        static void name##_role(const char *library, const char *version)

static void load(const char *library, struct nccl *ret) {
        char error[512] = "";

        if (nccl_load(ret, library, error, sizeof(error)) < 0) {
                fprintf(stderr, "%s\n", error);
                give_up(__LINE__, "it can be loaded");
        }
}

/* ---- the library ---- */

CASE(it_says_which_version_it_is) {
        struct nccl nccl;
        int major, minor, patch;

        load(library, &nccl);
        CHECK(strcmp(nccl.text, version) == 0);
        CHECK(sscanf(version, "%d.%d.%d", &major, &minor, &patch) == 3);
        CHECK(nccl.version == major * 10000 + minor * 100 + patch);
        CHECK(strcmp(nccl.path, library) == 0);
}

CASE(it_has_what_belongs_to_its_release) {
        struct nccl nccl;

        load(library, &nccl);
#define IS_THERE(member, name, arguments) CHECK(nccl.member != NULL);
        NCCL_CALLS(IS_THERE)
#undef IS_THERE
#define IS_THERE_SINCE(member, name, since, arguments)                                                       \
        CHECK((nccl.member != NULL) == (nccl.version >= since)); /* the function name */
        NCCL_EXTRAS(IS_THERE_SINCE)
#undef IS_THERE_SINCE
        CHECK(nccl.result != NULL && nccl.last_error != NULL);
}

CASE(ids_need_no_gpu) {
        static const struct nccl_id zero;
        struct nccl nccl;
        struct nccl_id id[2];

        load(library, &nccl);
        memset(id, 0, sizeof(id));
        CHECK(nccl.unique_id(&id[0]) == NCCL_OK);
        CHECK(nccl.unique_id(&id[1]) == NCCL_OK);
        CHECK(memcmp(&id[0], &zero, sizeof(zero)) != 0);
        CHECK(memcmp(&id[0], &id[1], sizeof(zero)) != 0);
}

CASE(errors_have_texts) {
        struct nccl nccl;

        load(library, &nccl);
        for (nccl_result a = NCCL_OK; a <= NCCL_IN_PROGRESS; a++) {
                CHECK(nccl.result(a) != NULL && nccl.result(a)[0] != '\0');
                for (nccl_result b = NCCL_OK; b < a; b++)
                        CHECK(strcmp(nccl.result(a), nccl.result(b)) != 0);
        }
        CHECK(strstr(nccl.result(NCCL_REMOTE_ERROR), "remote process exited") != NULL);
        CHECK(nccl.result(12345) != NULL);
}

/* ---- a communicator ---- */

/* Asks for a communicator. Returns the result, with its reason in `text`. */
static nccl_result make_communicator(const struct nccl *nccl, bool blocking, char *text, size_t size) {
        struct nccl_config config = NCCL_CONFIG;
        struct nccl_id id;
        nccl_comm comm = NULL;

        CHECK(nccl->unique_id(&id) == NCCL_OK);
        config.blocking = blocking;
        nccl_result result = nccl->init(&comm, 1, id, 0, &config);
        while (result == NCCL_IN_PROGRESS) {
                usleep(1000);
                if (nccl->async_error(comm, &result) != NCCL_OK)
                        break;
        }
        nccl_error(nccl, comm, result, text, size);
        if (comm != NULL)
                nccl->abort(comm);
        return result;
}

CASE(without_a_gpu_there_is_an_error) {
        struct nccl nccl;
        char text[512] = "";

        load(library, &nccl);
        for (int blocking = 0; blocking < 2; blocking++) {
                nccl_result result = make_communicator(&nccl, blocking, text, sizeof(text));

                CHECK(result != NCCL_OK && result != NCCL_IN_PROGRESS);
                CHECK(strstr(text, nccl.result(result)) == text);
                CHECK(strstr(text, "uda") != NULL && strchr(text, '\n') == NULL);
        }
}

/* ---- the environment ---- */

static void write_file(const char *path, const char *text) {
        FILE *file = fopen(path, "we");

        CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Settings of the user, in the environment and in the home folder, where NCCL looks for them. */
static void set_foreign(void) {
        char path[96];

        snprintf(path, sizeof(path), "%s/.nccl.conf", home);
        write_file(path, "NCCL_SOCKET_FAMILY=AF_INET\n");
        setenv("NCCL_GDRCOPY_ENABLE", "0", 1);
}

static char *read_log(void) {
        static char text[1 << 20];
        FILE *file = fopen(log_path, "re");

        CHECK(file != NULL);
        text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
        fclose(file);
        return text;
}

static bool log_has(const char *name) {
        char words[128];

        snprintf(words, sizeof(words), " %s" SET, name);
        return strstr(read_log(), words) != NULL;
}

/* Uses all parts of NCCL that read the environment without a GPU. */
static void use_library(const char *library) {
        struct nccl nccl;
        char text[512];

        load(library, &nccl);
        make_communicator(&nccl, false, text, sizeof(text));
}

/* Shows that NCCL reads such settings by itself, so that the next case proves something. */
CASE(what_anybody_sets_counts_by_itself) {
        set_foreign();
        setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
        setenv("NCCL_DEBUG", "INFO", 1);
        setenv("NCCL_DEBUG_SUBSYS", "ALL", 1);
        setenv("NCCL_DEBUG_FILE", log_path, 1);
        use_library(library);
        CHECK(log_has("NCCL_GDRCOPY_ENABLE"));
        CHECK(log_has("NCCL_SOCKET_IFNAME"));
        CHECK(log_has("NCCL_SOCKET_FAMILY"));
}

/* The log calls no variable set that `allowed` does not contain. */
static void check_names(const char *allowed) {
        const char *at = read_log(), *found;
        char name[128];

        while ((found = strstr(at, SET)) != NULL) {
                const char *begin = found;

                while (begin > at && begin[-1] != ' ')
                        begin--;
                snprintf(name, sizeof(name), "%.*s", (int)(found - begin), begin);
                if (strstr(allowed, name) == NULL) {
                        fprintf(stderr, "NCCL has read %s\n", name);
                        give_up(__LINE__, "only what is allowed is read");
                }
                at = found + strlen(SET);
        }
}

CASE(only_the_configuration_counts) {
        char settings[256], ignored[512], allowed[1024];

        set_foreign();
        snprintf(settings, sizeof(settings),
                 "NCCL_SOCKET_IFNAME==lo NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALL NCCL_DEBUG_FILE=%s", log_path);
        environment_prepare(settings, ignored, sizeof(ignored));
        CHECK(strcmp(ignored, "NCCL_GDRCOPY_ENABLE") == 0);
        snprintf(allowed, sizeof(allowed), "%s NCCL_CONF_FILE NCCL_RAS_ENABLE NCCL_LAUNCH_ORDER_IMPLICIT ",
                 settings);
        environment_list_file(ENVIRONMENT_FILE, allowed + strlen(allowed), sizeof(allowed) - strlen(allowed));
        use_library(library);
        CHECK(log_has("NCCL_SOCKET_IFNAME"));
        CHECK(strstr(read_log(), "Using lo:") != NULL);
        check_names(allowed);
}

/* NCCL writes its log to a file without a name, which exists as long as this process lives. */
CASE(what_it_does_is_in_a_log_of_ours) {
        char ignored[512];

        environment_prepare("NCCL_SOCKET_IFNAME==lo", ignored, sizeof(ignored));
        CHECK(environment_log() >= 0);
        snprintf(log_path, sizeof(log_path), "/proc/self/fd/%d", environment_log());
        use_library(library);
        CHECK(strstr(read_log(), "NCCL INFO ") != NULL);
        CHECK(strstr(read_log(), "NCCL WARN ") != NULL); /* there is no GPU */
}

/* ---- all of them ---- */

static int make_folder(void **state) {
        if (mkdtemp(folder) == NULL)
                return -1;
        snprintf(home, sizeof(home), "%s", folder);
        snprintf(log_path, sizeof(log_path), "%s/log", folder);
        return 0;
}

static int clear_folder(void **state) {
        char path[96];

        snprintf(path, sizeof(path), "%s/.nccl.conf", home);
        unlink(path);
        unlink(log_path);
        return 0;
}

static int remove_folder(void **state) {
        return rmdir(folder);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(it_says_which_version_it_is),
                cmocka_unit_test(it_has_what_belongs_to_its_release),
                cmocka_unit_test(ids_need_no_gpu),
                cmocka_unit_test(errors_have_texts),
                cmocka_unit_test(without_a_gpu_there_is_an_error),
                cmocka_unit_test_teardown(what_anybody_sets_counts_by_itself, clear_folder),
                cmocka_unit_test_teardown(only_the_configuration_counts, clear_folder),
                cmocka_unit_test_teardown(what_it_does_is_in_a_log_of_ours, clear_folder),
        };

        return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
