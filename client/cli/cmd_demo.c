// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl demo: options, the trainer, and the order of the two trainings. See demo.h. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>

#include "demo.h"
#include "find.h"

#define LEAST_MEMBERS 3
#define MOST_MEMBERS 8
#define LEAST_BATCH 48 /* rows of a step; each member takes as many */

enum { OPT_PAUSE = CLI_OPT_OWN };

static int own_option(struct cli *cli, struct demo *demo, int option) {
        switch (option) {
        case 'n':
                if (!cli_parse_number(optarg, LEAST_MEMBERS, MOST_MEMBERS, &demo->options.members))
                        return cli_refuse_option(cli, "-n needs a number from %d to %d, not \"%s\"", LEAST_MEMBERS,
                                                 MOST_MEMBERS, optarg);
                return 0;
        case 'j': demo->json = true; return 0;
        case OPT_PAUSE:
                if (!cli_parse_seconds(optarg, &demo->pause_ms))
                        return cli_refuse_option(cli, "--pause needs a number of seconds, not \"%s\"", optarg);
                return 0;
        default: return -1;
        }
}

static int parse(struct cli *cli, struct demo *demo, int argc, char **argv) {
        static const struct option longs[] = {
                CLI_COMMON_LONG,
                { "members", required_argument, NULL, 'n' },
                { "json", no_argument, NULL, 'j' },
                { "pause", required_argument, NULL, OPT_PAUSE },
                { 0 },
        };
        int option, r;

        optind = 0;
        opterr = 0;
        while ((option = getopt_long(argc, argv, ":" CLI_COMMON_SHORT "n:j", longs, NULL)) >= 0) {
                r = own_option(cli, demo, option);
                if (r < 0)
                        r = cli_common_option(cli, option, argv);
                if (r)
                        return r;
        }
        if (optind < argc)
                return cli_refuse_option(cli, "demo takes no argument");
        if (cli->socket)
                return cli_refuse_option(cli, "demo starts a daemon of its own: --socket has no use here");
        return 0;
}

/* The trainer that belongs to us: installed, or in the build tree. NULL if it is nowhere, which is told. */
static char *find_trainer(void) {
        static const char *const beside[] = { "%s/" GRADSYNC_DEMO_TRAINER, "%s/../examples/digits" };
        char self[PATH_MAX] = "", *path[array_size(beside)] = { NULL }, *found = NULL;
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        char *slash = n > 0 ? strrchr(self, '/') : NULL;

        if (slash)
                *slash = '\0';
        for (size_t i = 0; i < array_size(beside) && !found; i++) {
                if (asprintf(&path[i], beside[i], self) < 0)
                        path[i] = NULL;
                else if (access(path[i], X_OK) == 0)
                        found = strdup(path[i]);
        }
        if (!found)
                cli_complain("the demo's trainer is not there, neither %s nor %s: install gradsync with its examples "
                             "(meson configure -Dexamples=true, which needs zlib)",
                             path[0] ? path[0] : "?", path[1] ? path[1] : "?");
        for (size_t i = 0; i < array_size(beside); i++)
                free(path[i]);
        return found;
}

/* Time for the reader, in which Ctrl-C counts. 0, or the exit code to end with. */
static int pause_for_reader(const struct demo *demo) {
        struct pollfd signals = { .fd = demo->run.signal_fd, .events = POLLIN };
        int64_t until = run_now_ms() + (int64_t)demo->pause_ms, left;
        struct signalfd_siginfo info;

        while ((left = until - run_now_ms()) > 0) {
                if (poll(&signals, 1, (int)left) <= 0 ||
                    read(signals.fd, &info, sizeof info) != sizeof info || info.ssi_signo == SIGCHLD)
                        continue;
                if (info.ssi_signo != SIGTSTP)
                        return 128 + (int)info.ssi_signo;
                raise(SIGSTOP);
        }
        return 0;
}

static int train_undisturbed(struct demo *demo) {
        demo_tell_act(demo, "1  Training, undisturbed");
        demo->phase = DEMO_UNDISTURBED;
        demo->training = &demo->undisturbed;
        int code = demo_train(demo, "undisturbed");
        if (!code)
                demo_tell_trained(demo, demo->training);
        return code;
}

static int train_disturbed(struct demo *demo) {
        demo_tell_act(demo, "2  The same training; a trainer stops");
        demo->phase = DEMO_TO_STOP;
        demo->training = &demo->disturbed;
        int code = demo_train(demo, "disturbed");
        if (!code && demo->phase != DEMO_LAST) {
                cli_complain("the training was over before everything had happened to it; is the machine busy? try again");
                code = CLI_ERROR;
        }
        if (!code) {
                demo_tell_act(demo, "4  The end");
                demo_tell_trained(demo, demo->training);
        }
        return code;
}

static int show(struct demo *demo, const struct cli *cli) {
        struct run *run = &demo->run;
        int code = run_daemon_start(&run->daemon, find_device(cli), &demo->options, run->signal_fd, &run->mask);

        run->socket = run->daemon.socket;
        if (!code) {
                demo_tell(demo, "%lu processes train a model that reads handwritten digits; a gradsyncd of their own (pid %d) "
                          "averages their gradients.", demo->options.members, (int)run->daemon.pid);
                code = train_undisturbed(demo);
        }
        if (!code)
                code = pause_for_reader(demo);
        if (!code)
                code = train_disturbed(demo);
        if (!code)
                code = demo_tell_end(demo);
        if (demo->linked)
                link_close(&demo->link);
        run_daemon_stop(&run->daemon);
        return code;
}

int cmd_demo(struct cli *cli, int argc, char **argv) {
        /* Set here, whatever the machine's configuration says: the demo tells of these times. */
        static const char *daemon_args[] = { "--stall-notice", "1s", "--rejoin-grace", "60s" };
        struct demo demo = { .options = { .members = LEAST_MEMBERS, .grace_ms = 10000, .restarts = 1,
                                          .always_private = true, .daemon_args = daemon_args,
                                          .n_daemon_args = array_size(daemon_args) },
                             .run = { .daemon = RUN_DAEMON_INIT }, .color = cli->color };
        char epochs[16], batch[16];
        int r = parse(cli, &demo, argc, argv);

        if (r)
                return r - 1;
        _cleanup_(freep) char *trainer = find_trainer();
        _cleanup_(freep) struct run_member *members = calloc(demo.options.members, sizeof *members);
        if (!trainer || !members)
                return CLI_ERROR;
        unsigned long share = (LEAST_BATCH + demo.options.members - 1) / demo.options.members;
        snprintf(epochs, sizeof epochs, "%d", DEMO_EPOCHS);
        snprintf(batch, sizeof batch, "%lu", share * demo.options.members);
        char *command[] = { trainer, (char *)"--json", (char *)"--epochs", epochs, (char *)"--batch", batch, NULL };
        demo.options.command = command;
        demo.run.options = &demo.options;
        demo.run.member = members;
        setenv("GRADSYNC_REJOIN_GRACE", "", 1); /* the demo's own, see above */
        if (run_take_over_signals(&demo.run) < 0) {
                cli_complain("cannot prepare: %s", strerror(errno));
                return CLI_ERROR;
        }
        r = show(&demo, cli);
        free(demo.stop.parameter);
        free(demo.stop.text);
        close(demo.run.signal_fd);
        close(demo.run.epoll_fd);
        return r;
}
