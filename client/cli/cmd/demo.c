// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl demo: options, the trainer, and the order of the two trainings. See demo/demo.h. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>

#include "client/cli/ask/sockets.h"
#include "client/cli/base/beside.h"
#include "client/cli/base/moment.h"
#include "client/cli/cmd/cmd.h"
#include "client/cli/demo/demo.h"

#define LEAST_MEMBERS 3
#define MOST_MEMBERS 8
#define LEAST_BATCH 48 /* rows of a step; each member takes as many */

enum { OPT_PAUSE = CLI_OPT_OWN };

static int cmd_demo_option(struct cli *cli, void *data, int option) {
        struct demo *demo = data;

        if (option == 'n' && !cli_parse_number(optarg, LEAST_MEMBERS, MOST_MEMBERS, &demo->options.members))
                return cli_refuse_option(cli, "-n needs a number from %d to %d, not \"%s\"", LEAST_MEMBERS,
                                         MOST_MEMBERS, optarg);
        if (option == OPT_PAUSE && !cli_parse_seconds(optarg, &demo->pause_ms))
                return cli_refuse_option(cli, "--pause needs a number of seconds, not \"%s\"", optarg);
        if (option == 'j')
                demo->json = true;
        return option == 'n' || option == 'j' || option == OPT_PAUSE ? 0 : -1;
}

static int cmd_demo_parse(struct cli *cli, struct demo *demo, int argc, char **argv) {
        static const struct option longs[] = {
                CLI_COMMON_LONG,
                { "members", required_argument, NULL, 'n' },
                { "json", no_argument, NULL, 'j' },
                { "pause", required_argument, NULL, OPT_PAUSE },
                { 0 },
        };
        int r = cli_options(cli, argc, argv, ":" CLI_COMMON_SHORT "n:j", longs, cmd_demo_option, demo);

        if (!r && optind < argc)
                return cli_refuse_option(cli, "demo takes no argument");
        if (!r && cli->socket)
                return cli_refuse_option(cli, "demo starts a daemon of its own: --socket has no use here");
        return r;
}

/* The trainer that belongs to this program: installed, or in the build tree. NULL if there is none, which is
 * reported. */
static char *cmd_demo_trainer(void) {
        static const char *const beside[] = { "%s/" GRADSYNC_DEMO_TRAINER, "%s/../examples/digits" };
        char *found = beside_executable(beside, array_size(beside));

        if (!found) {
                _cleanup_(freep) char *installed = beside_path(beside[0]), *built = beside_path(beside[1]);
                cli_complain("the demo's trainer is not there, neither %s nor %s: "
                             "install gradsync with its examples "
                             "(meson configure -Dexamples=true, which needs zlib)",
                             installed ? installed : "?", built ? built : "?");
        }
        return found;
}

/* Time for the reader; Ctrl-C ends it. 0, or the exit code to end with. */
static int cmd_demo_pause_for_reader(const struct demo *demo) {
        struct pollfd signals = { .fd = demo->run.signal_fd, .events = POLLIN };
        int64_t until = moment_ms() + (int64_t)demo->pause_ms, left;
        struct signalfd_siginfo info;

        while ((left = until - moment_ms()) > 0) {
                if (poll(&signals, 1, (int)left) <= 0 ||
                    read(signals.fd, &info, sizeof info) != sizeof info || info.ssi_signo == SIGCHLD)
                        continue;
                if (info.ssi_signo != SIGTSTP)
                        return 128 + (int)info.ssi_signo;
                raise(SIGSTOP);
        }
        return 0;
}

static int cmd_demo_train_undisturbed(struct demo *demo) {
        demo_tell_act(demo, "1  Training, undisturbed");
        demo->phase = DEMO_UNDISTURBED;
        demo->training = &demo->undisturbed;
        int code = demo_train(demo, "undisturbed");
        if (!code)
                demo_tell_trained(demo, demo->training);
        return code;
}

static int cmd_demo_train_disturbed(struct demo *demo) {
        demo_tell_act(demo, "2  The same training; a trainer stops");
        demo->phase = DEMO_TO_STOP;
        demo->training = &demo->disturbed;
        int code = demo_train(demo, "disturbed");
        if (!code && demo->phase != DEMO_LAST) {
                cli_complain("the training was over before everything had happened to it; "
                             "is the machine busy? try again");
                code = CLI_ERROR;
        }
        if (!code) {
                demo_tell_act(demo, "4  The end");
                demo_tell_trained(demo, demo->training);
        }
        return code;
}

static int cmd_demo_story(struct demo *demo) {
        demo_tell(demo,
                  "%lu processes train a model that reads handwritten digits; "
                  "a gradsyncd of their own (pid %d) averages their gradients.",
                  demo->options.members, (int)demo->run.daemon.pid);
        int code = cmd_demo_train_undisturbed(demo);
        if (!code)
                code = cmd_demo_pause_for_reader(demo);
        if (!code)
                code = cmd_demo_train_disturbed(demo);
        return code ? code : demo_tell_end(demo);
}

static int cmd_demo_show(struct demo *demo, const struct cli *cli) {
        struct run *run = &demo->run;
        int code = run_daemon_start(&run->daemon, sockets_device(cli), &demo->options, run->signal_fd,
                                    &run->mask);

        run->socket = run->daemon.socket;
        if (!code) {
                if (talk_open(&demo->talk, run->socket, TALK_TIMEOUT) == TALK_OK)
                        code = cmd_demo_story(demo);
                else
                        code = demo_train_cannot_ask(demo);
                talk_close(&demo->talk);
        }
        run_daemon_stop(&run->daemon);
        return code;
}

int cmd_demo(struct cli *cli, int argc, char **argv) {
        /* These are set here, whatever the configuration of the machine says: the story depends on them. */
        static const char *daemon_args[] = { "--stall-notice", "1s", "--rejoin-grace", "60s" };
        struct demo demo = { .options = { .members = LEAST_MEMBERS,
                                          .grace_ms = 10000,
                                          .restarts = 1,
                                          .always_private = true,
                                          .daemon_args = daemon_args,
                                          .n_daemon_args = array_size(daemon_args) },
                             .run = { .daemon = RUN_DAEMON_INIT },
                             .color = cli->color };
        char epochs[16], batch[16];
        int r = cmd_demo_parse(cli, &demo, argc, argv);

        if (r)
                return r - 1;
        _cleanup_(freep) char *trainer = cmd_demo_trainer();
        _cleanup_(freep) struct run_member *members = calloc(demo.options.members, sizeof *members);
        if (!trainer || !members)
                return CLI_ERROR;
        unsigned long share = (LEAST_BATCH + demo.options.members - 1) / demo.options.members;
        snprintf(epochs, sizeof epochs, "%d", DEMO_EPOCHS);
        snprintf(batch, sizeof batch, "%lu", share * demo.options.members);
        char *command[] = { trainer, (char *)"--json", (char *)"--epochs", epochs, (char *)"--batch", batch,
                            NULL };
        demo.options.command = command;
        demo.run.options = &demo.options;
        demo.run.member = members;
        setenv("GRADSYNC_REJOIN_GRACE", "", 1); /* what the daemon_args above say counts */
        if (relay_prepare(&demo.run) < 0) {
                cli_complain("cannot prepare: %s", strerror(errno));
                return CLI_ERROR;
        }
        r = cmd_demo_show(&demo, cli);
        free(demo.stop.parameter);
        free(demo.stop.text);
        close(demo.run.signal_fd);
        close(demo.run.epoll_fd);
        return r;
}
