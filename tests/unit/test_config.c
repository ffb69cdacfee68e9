/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: forms of values, order of precedence, what is refused and how it is said, and reloads. */
#include "tests.h"
#include "tree_fixture.h"

#include <syslog.h>

#include "base/clock.h"
#include "core/config.h"
#include "core/options.h"

static struct config config;
static char error[1024];

static int set_up(void **state) {
        error[0] = '\0';
        return config_init(&config);
}

static int tear_down(void **state) {
        config_deinit(&config);
        return 0;
}

static int parse_bytes(const char *text, size_t length) {
        return config_parse_buffer(text, length, "file", &config, error, sizeof(error));
}

static int parse(const char *text) {
        return parse_bytes(text, strlen(text));
}

static void assert_error(const char *expected) {
        if (!strstr(error, expected))
                fail_msg("'%s' is not in '%s'", expected, error);
}

TEST_WITH(defaults, set_up, tear_down) {
        uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

        assert_string_equal(config.device, "cpu");
        assert_string_equal(config.socket_group, "");
        assert_int_equal(config.socket_mode, 0660);
        assert_int_equal(config.workers, 0);
        assert_false(config.has_affinity);
        assert_int_equal(config.log_priority, LOG_INFO);
        assert_int_equal(config.drain_timeout, 10 * USEC_PER_SEC);
        assert_int_equal(config.handshake_timeout, 5 * USEC_PER_SEC);
        assert_int_equal(config.step_deadline, 1800 * USEC_PER_SEC);
        assert_int_equal(config.stall_notice, USEC_PER_SEC);
        assert_int_equal(config.staging_bytes, 8 << 20);
        assert_int_equal(config.limits[ACCOUNT_CLIENTS], 256);
        assert_int_equal(config.limits[ACCOUNT_JOBS], 64);
        assert_int_equal(config.limits[ACCOUNT_ARENAS], 1024);
        assert_int_equal(config.limits[ACCOUNT_BYTES], memory / 2);
        assert_int_equal(config.limits[ACCOUNT_OWN], UINT64_C(1) << 30);
}

TEST_WITH(every_key_is_taken, set_up, tear_down) {
        assert_int_equal(parse("# a comment\n"
                               "[daemon]\r\n"
                               "device = cpu:left\n"
                               "  socket = /tmp/here ; an inline comment\n"
                               "socket_group = trainers\n"
                               "socket_mode = 0600\n"
                               "workers=3\n"
                               "affinity = 0-2,5\n"
                               "\n"
                               "log_level: debug\n"
                               "drain_timeout = 0\n"
                               "handshake_timeout = 500ms\n"
                               "step_deadline = 2min\n"
                               "stall_notice = 1.5\n"
                               "staging_bytes = 64K\n"
                               "admin_group = staff\n"
                               "allow_nobody = yes\n"
                               "[limits]\n"
                               "clients_per_uid = 1\n"
                               "connects_per_uid = 6\n"
                               "uids = 7\n"
                               "jobs_per_uid = 2\n"
                               "arenas_per_uid = 3\n"
                               "fds_per_uid = 5\n"
                               "daemon_bytes = 300M\n"
                               "bytes_per_uid = 4GiB"),
                         0);
        assert_string_equal(config.device, "cpu:left");
        assert_string_equal(config.socket, "/tmp/here");
        assert_string_equal(config.socket_group, "trainers");
        assert_int_equal(config.socket_mode, 0600);
        assert_int_equal(config.workers, 3);
        assert_true(config.has_affinity);
        assert_int_equal(CPU_COUNT(&config.affinity), 4);
        assert_int_equal(config.log_priority, LOG_DEBUG);
        assert_int_equal(config.drain_timeout, 0);
        assert_int_equal(config.handshake_timeout, 500000);
        assert_int_equal(config.step_deadline, 120 * USEC_PER_SEC);
        assert_int_equal(config.stall_notice, 1500000);
        assert_int_equal(config.staging_bytes, 65536);
        assert_int_equal(config.limits[ACCOUNT_CLIENTS], 1);
        assert_int_equal(config.limits[ACCOUNT_JOBS], 2);
        assert_int_equal(config.limits[ACCOUNT_ARENAS], 3);
        assert_int_equal(config.limits[ACCOUNT_FDS], 5);
        assert_int_equal(config.connects_per_uid, 6);
        assert_int_equal(config.uids, 7);
        assert_string_equal(config.admin_group, "staff");
        assert_true(config.allow_nobody);
        assert_true(config.limits[ACCOUNT_BYTES] == UINT64_C(4) << 30);
        assert_int_equal(config.limits[ACCOUNT_OWN], 300 << 20);
}

TEST_WITH(an_empty_affinity_takes_it_back, set_up, tear_down) {
        assert_int_equal(parse("[daemon]\naffinity = 1\naffinity =\n"), 0);
        assert_false(config.has_affinity);
        assert_int_equal(parse("[daemon]\nmetrics_listen = 0.0.0.0:1\nmetrics_listen = [::1]:65535\n"), 0);
        assert_string_equal(config.metrics_listen, "[::1]:65535");
        assert_int_equal(parse("[daemon]\nmetrics_listen =\n"), 0);
        assert_string_equal(config.metrics_listen, "");
}

TEST_WITH(wrong_lines_are_named, set_up, tear_down) {
        static const struct {
                const char *text, *expected;
        } rows[] = {
                { "[daemon]\ncolour = red\n", "file:2: unknown key 'colour' in section [daemon]" },
                { "[limits]\nworkers = 1\n",
                  "file:2: unknown key 'workers' in section [limits]: it belongs to section [daemon]" },
                { "[daemon]\nkey_file = /k\n",
                  "file:2: unknown key 'key_file' in section [daemon]: it belongs to section [cluster]" },
                { "[daemon]\nlog-level = info\n",
                  "unknown key 'log-level' in section [daemon]: did you mean 'log_level' of section "
                  "[daemon]?" },
                { "[daemon]\njobs_per_user = 3\n",
                  "unknown key 'jobs_per_user' in section [daemon]: did you mean 'jobs_per_uid' of section "
                  "[limits]?" },
                { "\n\n[deamon]\nworkers = 1\n", "file:4: unknown section [deamon]: did you mean [daemon]?" },
                { "[limit]\njobs_per_uid = 1\n", "file:2: unknown section [limit]: did you mean [limits]?" },
                { "workers = 1\n", "file:1: key 'workers' stands before the first section: it belongs to "
                                   "section [daemon]" },
                { "[daemon]\n\nnonsense\n", "file:3: neither a section nor 'key = value'" },
                { "[daemon\n", "file:1: neither a section" },
                { "[daemon]\nnonsense\nworkers = x\n", "file:2: neither a section" },
                { "[daemon]\nworkers = x\nnonsense\n", "file:2: workers: 'x' is not a number" },
                { "[daemon]\nworkers = -1\n", "'-1' is not a number" },
                { "[daemon]\nworkers = 257\n", "'257' is out of range, 0 to 256 are accepted" },
                { "[daemon]\nworkers =\n", "workers: '' is not a number" },
                { "[daemon]\nworkers = 99999999999999999999999\n", "is not a number" },
                { "[daemon]\nsocket_mode = 0888\n", "socket_mode: '0888' is not an octal file mode" },
                { "[daemon]\nsocket_mode = 4755\n", "is not an octal file mode" },
                { "[daemon]\nallow_nobody = true\n", "allow_nobody: 'true' is not yes or no" },
                { "[daemon]\nmetrics_listen = here:1\n", "'here:1' is not an address with a port" },
                { "[daemon]\nmetrics_listen = 9464\n", "'9464' is not an address with a port" },
                { "[daemon]\nmetrics_listen = 127.0.0.1:0\n", "'127.0.0.1:0' is not an address with a port" },
                { "[daemon]\nmetrics_listen = unix:/tmp/x\n", "'unix:/tmp/x' is not an address with a port" },
                { "[daemon]\nmetrics_listen_jobs = some\n", "metrics_listen_jobs: 'some' is not yes or no" },
                { "[daemon]\naffinity = 3-1\n", "affinity: '3-1' is not a list of CPUs" },
                { "[daemon]\naffinity = 1024\n", "'1024' is not a list of CPUs from 0 to 1023" },
                { "[daemon]\nlog_level = loud\n", "log_level: 'loud' is not a log level" },
                { "[daemon]\nlog_level = 8\n", "is not a log level" },
                { "[daemon]\nstep_deadline = 5 parsecs\n", "step_deadline: '5 parsecs' is not a time" },
                { "[daemon]\nstep_deadline = 0\n", "'0' is out of range, 10ms to 720h are accepted" },
                { "[daemon]\nstep_deadline = 1.1234567s\n", "is not a time" },
                { "[daemon]\ndrain_timeout = 18446744073709551615h\n", "is not a time" },
                { "[daemon]\nstaging_bytes = 65537\n", "'65537' is not a multiple of 4096 bytes" },
                { "[daemon]\nstaging_bytes = 4096\n", "'4096' is out of range, 64K to 1G are accepted" },
                { "[daemon]\nstaging_bytes = 1Q\n", "is not a size" },
                { "[daemon]\nstaging_bytes = 1Kx\n", "is not a size" },
                { "[daemon]\nstaging_bytes = 18014398509481985K\n", "is not a size" },
                { "[daemon]\ndevice = gpu\n", "device: 'gpu' is not a device" },
                { "[daemon]\ndevice = none:x\n", "device: 'none:x' is not a device" },
                { "[daemon]\ndevice = cpu:\n", "is not a device" },
                { "[daemon]\ndevice = cpu:../x\n", "is not a device" },
                { "[limits]\nclients_per_uid = 0\n", "'0' is out of range, 1 to 1000000 are accepted" },
                { "[daemon]\nsocket = a\tb\x01\n", "file:2: the line holds a control character" },
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                error[0] = '\0';
                if (parse(rows[i].text) != -EINVAL)
                        fail_msg("accepted: %s", rows[i].text);
                assert_error(rows[i].expected);
        }
}

TEST_WITH(a_nul_is_no_end, set_up, tear_down) {
        static const char text[] = "[daemon]\nworkers = 1\0 2\n";

        assert_int_equal(parse_bytes(text, sizeof(text) - 1), -EINVAL);
        assert_error("file:2: the line holds a control character");
        assert_int_equal(config.workers, 0);
}

/* The parser's buffer is found by trying: the longest line that is accepted must arrive whole, one byte more
 * is an error. */
TEST_WITH(no_line_is_ever_cut, set_up, tear_down) {
        char text[4096];
        unsigned accepted = 0;

        for (unsigned length = 20; length < 3000; length++) {
                int used = snprintf(text, sizeof(text), "[daemon]\nsocket_group = ");
                memset(text + used, 'g', length);
                memcpy(text + used + length, "\nworkers = 2\n", 14);
                int r = parse(text);
                if (r == 0) {
                        assert_int_equal(strlen(config.socket_group), length);
                        assert_int_equal(accepted, length == 20 ? 0 : length - 1);
                        accepted = length;
                } else {
                        assert_int_equal(r, -EINVAL);
                        assert_error("file:2: the line is longer than ");
                }
        }
        assert_in_range(accepted, 100, 2900);
        char limit[16];
        snprintf(limit, sizeof(limit), "than %u ", accepted + (unsigned)strlen("socket_group = "));
        assert_error(limit);
}

/* Indentation is no continuation of the line above, and a comment may be too long as well as a key. */
TEST_WITH(lines_stand_alone, set_up, tear_down) {
        char text[1000] = "# ";

        assert_int_equal(parse("[daemon]\nsocket_group = a\n   workers = 4\n\t[limits]\n jobs_per_uid = 9\n"),
                         0);
        assert_string_equal(config.socket_group, "a");
        assert_int_equal(config.workers, 4);
        assert_int_equal(config.limits[ACCOUNT_JOBS], 9);
        memset(text + 2, 'x', sizeof(text) - 3);
        assert_int_equal(parse(text), -EINVAL);
        assert_error("file:1: the line is longer");
        assert_int_equal(parse(""), 0);
}

static int set_up_files(void **state) {
        /* An ordinary user needs one; nothing is put there. */
        setenv("XDG_RUNTIME_DIR", "/tmp/gs-run", 1);
        return tree_make(state) == 0 ? set_up(state) : -1;
}

static int tear_down_files(void **state) {
        tear_down(state);
        unsetenv("XDG_RUNTIME_DIR");
        return tree_remove(state);
}

/* Loads with `--config FOLDER/main.conf` and up to four more arguments. */
static int load(enum config_action *action, const char *a, const char *b, const char *c, const char *d) {
        char *argv[] = { (char *)"gradsyncd",
                         (char *)"--config",
                         in_tree("main.conf"),
                         (char *)a,
                         (char *)b,
                         (char *)c,
                         (char *)d,
                         NULL };
        int argc = 3 + !!a + !!b + !!c + !!d;

        error[0] = '\0';
        return config_load(&config, &(struct config_source){ .argc = argc, .argv = argv }, action, error,
                           sizeof(error));
}

TEST_WITH(later_sources_win, set_up_files, tear_down_files) {
        enum config_action action = CONFIG_HELP;

        put("main.conf", "[daemon]\nworkers = 1\nsocket_group = main\ndrain_timeout = 1\nlog_level = err\n");
        put("main.conf.d/20-second.conf", "[daemon]\nworkers = 3\nsocket_group = second\n");
        put("main.conf.d/10-first.conf", "[daemon]\nworkers = 2\nsocket_group = first\ndrain_timeout = 2\n");
        put("main.conf.d/99-ignored.txt", "nonsense");
        put("main.conf.d/.hidden.conf", "nonsense");
        assert_int_equal(load(&action, "--workers", "4", NULL, NULL), 0);
        assert_int_equal(action, CONFIG_RUN);
        assert_int_equal(config.workers, 4);
        assert_string_equal(config.socket_group, "second");
        assert_int_equal(config.drain_timeout, 2 * USEC_PER_SEC);
        assert_int_equal(config.log_priority, LOG_ERR);

        put("main.conf.d/30-wrong.conf", "[daemon]\n\nworkers = many\n");
        assert_int_equal(load(&action, NULL, NULL, NULL, NULL), -EINVAL);
        assert_error("/main.conf.d/30-wrong.conf:3: workers: 'many' is not a number");
}

TEST_WITH(a_named_file_must_be_there, set_up_files, tear_down_files) {
        enum config_action action;

        assert_int_equal(load(&action, NULL, NULL, NULL, NULL), -ENOENT);
        assert_error("/main.conf: No such file");
        assert_int_equal(load(&action, "--config", root, NULL, NULL), -EISDIR);
        assert_error("Is a directory");
}

/* A mistake of the command line, which is another one than that of a file. */
static void assert_usage(const char *a, const char *b, const char *expected) {
        enum config_action action = CONFIG_RUN;

        assert_int_equal(load(&action, a, b, NULL, NULL), -EINVAL);
        assert_int_equal(action, CONFIG_USAGE);
        assert_error(expected);
}

TEST_WITH(wrong_flags_are_named, set_up_files, tear_down_files) {
        enum config_action action;

        put("main.conf", "");
        assert_usage("--colour", "red", "cannot understand '--colour'; see --help");
        assert_usage("-xy", NULL, "cannot understand '-xy'; see --help");
        assert_usage("--workers", NULL, "a value is missing after '--workers'; see --help");
        assert_usage("--workers=x", NULL, "--workers: 'x' is not a number");
        assert_usage("--workers=2", "stray", "cannot understand 'stray'; see --help");
        assert_int_equal(load(&action, "--staging-bytes", "1M", "--clients-per-uid", "5"), 0);
        assert_int_equal(action, CONFIG_RUN);
        assert_int_equal(config.staging_bytes, 1 << 20);
        assert_int_equal(config.limits[ACCOUNT_CLIENTS], 5);
        put("main.conf", "nonsense");
        assert_int_equal(load(&action, "--workers=1", NULL, NULL, NULL), -EINVAL);
        assert_int_equal(action, CONFIG_RUN);
}

TEST_WITH(the_flag_that_was_meant_is_named, set_up_files, tear_down_files) {
        put("main.conf", "");
        assert_usage("--worker-s=2", NULL,
                     "cannot understand '--worker-s=2': did you mean '--workers'? See --help");
        assert_usage("--log_level=info", NULL, "did you mean '--log-level'?");
        assert_usage("-config", "x", "did you mean '--config'?");
        assert_usage("--device=cpu", "-socket", "cannot understand '-socket': did you mean '--socket'?");
        assert_usage("--check", "-xy", "cannot understand '-xy'; see --help");
        assert_usage("help", NULL, "cannot understand 'help': did you mean '--help'?");
        assert_usage("--check-conf=x", NULL, "did you mean '--check-config'?");
}

/* However many keys there are, none is taken for what getopt says of itself. */
TEST_WITH(every_key_is_a_flag, set_up_files, tear_down_files) {
        struct config defaults;

        put("main.conf", "");
        assert_int_equal(config_init(&defaults), 0);
        for (unsigned i = 0; i < option_count; i++) {
                enum config_action action = CONFIG_USAGE;
                char flag[256], value[128], now[128];

                option_format(&option_rows[i], &defaults, value, sizeof(value));
                snprintf(flag, sizeof(flag), "--%s=%s", option_rows[i].key, value);
                for (char *c = flag; *c != '='; c++)
                        *c = *c == '_' ? '-' : *c;
                if (load(&action, flag, NULL, NULL, NULL) < 0 || action != CONFIG_RUN)
                        fail_msg("%s: %s", flag, error);
                option_format(&option_rows[i], &config, now, sizeof(now));
                if (strcmp(option_rows[i].key, "socket") != 0) /* which is filled in */
                        assert_string_equal(now, value);
        }
        config_deinit(&defaults);
}

/* --help must help also when the file is what is wrong. */
TEST_WITH(help_and_version_read_no_file, set_up_files, tear_down_files) {
        enum config_action action;

        put("main.conf", "nonsense");
        assert_int_equal(load(&action, "--help", NULL, NULL, NULL), 0);
        assert_int_equal(action, CONFIG_HELP);
        assert_int_equal(load(&action, "--version", NULL, NULL, NULL), 0);
        assert_int_equal(action, CONFIG_VERSION);
        assert_int_equal(load(&action, "-h", NULL, NULL, NULL), 0);
        assert_int_equal(action, CONFIG_HELP);
        assert_int_equal(load(&action, "--workers=1", "-V", NULL, NULL), 0);
        assert_int_equal(action, CONFIG_VERSION);
}

TEST_WITH(the_socket_follows_the_device, set_up_files, tear_down_files) {
        enum config_action action;
        char *path = NULL, long_path[200], expected[128];

        put("main.conf", "");
        snprintf(expected, sizeof(expected), "%s/gradsync/cpu:b/socket",
                 geteuid() == 0 ? "/run" : "/tmp/gs-run");
        assert_int_equal(load(&action, "--device=cpu:b", NULL, NULL, NULL), 0);
        assert_string_equal(config.socket, expected);
        if (geteuid() != 0) {
                unsetenv("XDG_RUNTIME_DIR");
                assert_int_equal(config_default_socket("cpu", &path), -ENOENT);
        }
        memset(long_path, 'p', sizeof(long_path) - 1);
        long_path[sizeof(long_path) - 1] = '\0';
        assert_int_equal(load(&action, "--socket", long_path, NULL, NULL), -EINVAL);
        assert_error("--socket: the path has 199 bytes, a Unix socket's path at most 107");
        free(path);
}

TEST_WITH(reload_takes_what_can_change, set_up, tear_down) {
        struct config fresh;
        char ignored[256];

        assert_int_equal(config_init(&fresh), 0);
        config_reload(&config, &fresh, ignored, sizeof(ignored));
        assert_string_equal(ignored, "");

        static const char text[] = "[daemon]\nlog_level = debug\nstep_deadline = 7\nworkers = 9\n"
                                   "affinity = 0\nstaging_bytes = 1M\n"
                                   "device = cpu:x\n[limits]\njobs_per_uid = 1\n";
        assert_int_equal(config_parse_buffer(text, strlen(text), "file", &fresh, error, sizeof(error)), 0);
        config_reload(&config, &fresh, ignored, sizeof(ignored));
        assert_string_equal(ignored, "device, workers, affinity, staging_bytes");
        assert_int_equal(config.log_priority, LOG_DEBUG);
        assert_int_equal(config.step_deadline, 7 * USEC_PER_SEC);
        assert_int_equal(config.limits[ACCOUNT_JOBS], 1);
        assert_int_equal(config.workers, 0);
        assert_false(config.has_affinity);
        assert_string_equal(config.device, "cpu");
        config_reload(&config, &fresh, ignored, 10);
        assert_string_equal(ignored, "device, w");
        config_deinit(&fresh);
}

TEST_ALONE(help_lists_flags_with_defaults) {
        char flags[] =
                "--config FILE|-h, --help|-V, --version|--check-config|--device DEVICE|--socket PATH|"
                "--socket-group GROUP|--socket-mode MODE|--workers N|--affinity CPUS|--log-level LEVEL|"
                "--drain-timeout TIME|--handshake-timeout TIME|--step-deadline TIME|--stall-notice TIME|"
                "--staging-bytes SIZE|--clients-per-uid N|--jobs-per-uid N|--arenas-per-uid N|"
                "--bytes-per-uid SIZE|[daemon]|[limits]|[cpu]|[0660]|[10s]|[5s]|[30min]|[1s]|[8M]|[256]|"
                "[64]|[1024]";
        char *text = NULL, *rest = flags, *flag;
        size_t size;
        FILE *file = open_memstream(&text, &size);

        config_help(file);
        fclose(file);
        while ((flag = strsep(&rest, "|")) != NULL)
                if (!strstr(text, flag))
                        fail_msg("%s is missing in:\n%s", flag, text);
        free(text);
}
