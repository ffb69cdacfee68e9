/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the probe's command line. A mistake is answered with one line that names it, and exit status 2.
 */
#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static const char help[] =
        "usage: probe [OPTION...]\n"
        "\n"
        "Finds out what this machine's GPU, driver and libraries really do, and prints a JSON row for "
        "each fact.\n"
        "\n"
        "  --list            print the names of the facts, run nothing\n"
        "  --only PATTERN    run only these facts (shell pattern; may be given again)\n"
        "  --seconds S       time for everything (340)\n"
        "  --deadline S      time for each fact, instead of its own\n"
        "  --out FILE        append each row to FILE, too, and sync it\n"
        "  --uid N           the other user in facts about two users (65534)\n"
        "  --libcuda PATH    the driver library (libcuda.so.1)\n"
        "  --nccl PATH       a libnccl to look at before those that are found (may be given again)\n"
        "  --root DIR        where files that describe the machine are looked for, instead of /\n"
        "  --kernels         print the PTX of the kernels, run nothing\n"
        "\n"
        "Exit status: 0 all rows are printed, whatever they say; 1 the GPU or the rows failed; 2 usage; "
        "77 no GPU.\n"
        "--role, --board, --place and --channel are how the probe starts its own processes.\n";

static int options_wrong(const char *option, const char *value, const char *wanted) {
        fprintf(stderr, "probe: --%s %s: %s\n", option, value, wanted);
        return 2;
}

static bool options_read_seconds(const char *text, double *seconds) {
        char *end;

        errno = 0;
        *seconds = strtod(text, &end);
        return errno == 0 && end != text && *end == '\0' && *seconds > 0 && *seconds <= 86400;
}

static bool options_read_number(const char *text, long least, long most, long *number) {
        char *end;

        errno = 0;
        *number = strtol(text, &end, 10);
        return errno == 0 && end != text && *end == '\0' && *number >= least && *number <= most;
}

static bool options_read_fd(const char *text, int *fd) {
        long number;

        if (!options_read_number(text, 3, INT_MAX, &number) || fcntl((int)number, F_GETFD) < 0)
                return false;
        *fd = (int)number;
        return true;
}

enum {
        OPTION_HELP = 256,
        OPTION_LIST,
        OPTION_ONLY,
        OPTION_SECONDS,
        OPTION_DEADLINE,
        OPTION_OUT,
        OPTION_UID,
        OPTION_LIBCUDA,
        OPTION_NCCL,
        OPTION_ROOT,
        OPTION_KERNELS,
        OPTION_ROLE,
        OPTION_BOARD,
        OPTION_PLACE,
        OPTION_CHANNEL,
};

static const struct option table[] = {
        { "help", no_argument, NULL, OPTION_HELP },
        { "list", no_argument, NULL, OPTION_LIST },
        { "only", required_argument, NULL, OPTION_ONLY },
        { "seconds", required_argument, NULL, OPTION_SECONDS },
        { "deadline", required_argument, NULL, OPTION_DEADLINE },
        { "out", required_argument, NULL, OPTION_OUT },
        { "uid", required_argument, NULL, OPTION_UID },
        { "libcuda", required_argument, NULL, OPTION_LIBCUDA },
        { "nccl", required_argument, NULL, OPTION_NCCL },
        { "root", required_argument, NULL, OPTION_ROOT },
        { "kernels", no_argument, NULL, OPTION_KERNELS },
        { "role", required_argument, NULL, OPTION_ROLE },
        { "board", required_argument, NULL, OPTION_BOARD },
        { "place", required_argument, NULL, OPTION_PLACE },
        { "channel", required_argument, NULL, OPTION_CHANNEL },
        { 0 },
};

/* Options by which one process of the probe starts another. */
static int options_take_role(struct options *o, int which, const char *value) {
        long number;

        switch (which) {
        case OPTION_ROLE: o->role = value; return -1;
        case OPTION_BOARD:
                return options_read_fd(value, &o->board)
                               ? -1
                               : options_wrong("board", value, "not an open descriptor");
        case OPTION_CHANNEL:
                return options_read_fd(value, &o->channel)
                               ? -1
                               : options_wrong("channel", value, "not an open descriptor");
        case OPTION_PLACE:
                if (!options_read_number(value, 0, INT_MAX, &number))
                        return options_wrong("place", value, "not the number of a place");
                o->place = (int)number;
                return -1;
        default: return 2; /* getopt has named what is wrong */
        }
}

static int options_take(struct options *o, int which, const char *value) {
        long number;

        switch (which) {
        case OPTION_HELP: fputs(help, stdout); return 0;
        case OPTION_LIST: o->list = true; return -1;
        case OPTION_KERNELS: o->kernels = true; return -1;
        case OPTION_ONLY:
                if (o->n_only == OPTIONS_ONLY)
                        return options_wrong("only", value, "too many patterns");
                o->only[o->n_only++] = value;
                return -1;
        case OPTION_NCCL:
                if (o->n_nccl == OPTIONS_NCCL)
                        return options_wrong("nccl", value, "too many libraries");
                o->nccl[o->n_nccl++] = value;
                return -1;
        case OPTION_SECONDS:
                return options_read_seconds(value, &o->seconds)
                               ? -1
                               : options_wrong("seconds", value, "not a number of seconds");
        case OPTION_DEADLINE:
                return options_read_seconds(value, &o->deadline)
                               ? -1
                               : options_wrong("deadline", value, "not a number of seconds");
        case OPTION_UID:
                if (!options_read_number(value, 1, 0xfffffffel, &number))
                        return options_wrong("uid", value, "not a uid other than root's");
                o->other_uid = (uid_t)number;
                return -1;
        case OPTION_OUT: o->out = value; return -1;
        case OPTION_LIBCUDA: o->libcuda = value; return -1;
        case OPTION_ROOT: o->root = value; return -1;
        default: return options_take_role(o, which, value);
        }
}

int options_read(struct options *o, int argc, char **argv) {
        int which, status;

        *o = (struct options){
                .libcuda = "libcuda.so.1",
                .root = "",
                .seconds = 340,
                .other_uid = 65534,
                .board = -1,
                .place = -1,
                .channel = -1,
        };
        while ((which = getopt_long(argc, argv, "", table, NULL)) != -1) {
                status = options_take(o, which, optarg);
                if (status != -1)
                        return status;
        }
        if (optind != argc) {
                fprintf(stderr, "probe: what is '%s'? See probe --help\n", argv[optind]);
                return 2;
        }
        if ((o->role != NULL) != (o->board >= 0) || (o->role != NULL) != (o->place >= 0)) {
                fputs("probe: --role, --board and --place belong together\n", stderr);
                return 2;
        }
        return -1;
}
