// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl demo: options, and the files that it needs. The story is told by a program of its own, demo.py,
 * which is run beside a private daemon as `gradsyncctl run` does it. */
#include <limits.h>
#include <string.h>

#include "client/cli/base/bundled.h"
#include "client/cli/cmd/cmd.h"

struct demo_options {
        unsigned long members, pause_ms, hosts;
        bool json;
};

static int cmd_demo_parse(struct cli *cli, struct demo_options *demo, int argc, char **argv) {
        const struct cli_option own[] = {
                { "members", 'n', CLI_NUMBER, &demo->members, "-n needs a number from 3 to 8", 3, 8 },
                { "hosts", '\0', CLI_NUMBER, &demo->hosts, "--hosts needs 1 or 2", 1, 2 },
                { "json", 'j', CLI_FLAG, .value = &demo->json },
                { "pause", '\0', CLI_DELAY, .value = &demo->pause_ms },
        };
        int r = cli_options(cli, argc, argv, false, own, array_size(own));

        if (!r && optind < argc)
                return cli_refuse_option(cli, "demo takes no argument");
        if (!r && cli->socket)
                return cli_refuse_option(cli, "demo starts a daemon of its own: --socket has no use here");
        return r;
}

/* A file that belongs to this program: installed, or in the build tree. NULL if there is none, which is
 * reported. */
static char *cmd_demo_find(const char *what, const char *installed, const char *built) {
        const char *const beside[] = { installed, built };
        char *found = bundled_executable(beside, array_size(beside));

        if (!found) {
                _cleanup_(freep) char *first = bundled_path(installed), *second = bundled_path(built);
                cli_complain("the demo's %s is not there, neither %s nor %s: "
                             "install gradsync with its examples "
                             "(meson configure -Dexamples=true, which needs zlib)",
                             what, first ? first : "?", second ? second : "?");
        }
        return found;
}

int cmd_demo(struct cli *cli, int argc, char **argv) {
        /* These are set here, whatever the configuration of the machine says: the story depends on them. */
        static const char *daemon_args[] = { "--stall-notice", "1s", "--rejoin-grace", "60s" };
        struct demo_options demo = { .members = 3, .hosts = 1 };
        char self[PATH_MAX] = "", members[24], pause_ms[24];
        int r = cmd_demo_parse(cli, &demo, argc, argv);

        if (r)
                return r - 1;
        _cleanup_(freep) char *trainer =
                cmd_demo_find("trainer", "%s/" GRADSYNC_LIBEXEC "/digits", "%s/../examples/digits");
        _cleanup_(freep) char *story =
                trainer ? cmd_demo_find("story", "%s/" GRADSYNC_LIBEXEC "/demo.py", "%s/demo.py") : NULL;
        _cleanup_(freep) char *helper =
                story && demo.hosts > 1
                        ? cmd_demo_find("way between hosts (Gloo)", "%s/" GRADSYNC_LIBEXEC "/gradsync-gloo",
                                        "%s/../../daemon/engine/gloo/gradsync-gloo")
                        : NULL;
        _cleanup_(freep) char *daemon = bundled_daemon();
        if (!daemon || (demo.hosts > 1 && !helper))
                return CLI_ERROR;
        if (!story || readlink("/proc/self/exe", self, sizeof self - 1) < 0)
                return CLI_ERROR;
        snprintf(members, sizeof members, "%lu", demo.members);
        snprintf(pause_ms, sizeof pause_ms, "%lu", demo.pause_ms);
        const char *command[] = { "python3",
                                  story,
                                  self,
                                  trainer,
                                  members,
                                  pause_ms,
                                  demo.json ? "json" : "",
                                  cli->color ? "color" : "",
                                  helper ? daemon : "",
                                  helper ? helper : "",
                                  NULL };
        setenv("GRADSYNC_REJOIN_GRACE", "", 1); /* what the daemon_args above say counts */
        return cmd_run_with(cli,
                            &(struct run_options){ .members = 1,
                                                   .grace_ms = 10000,
                                                   .always_private = true,
                                                   .bare = true,
                                                   .daemon_args = { daemon_args, array_size(daemon_args) },
                                                   .command = (char **)command });
}
