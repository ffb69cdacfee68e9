// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl trace: fetches a job's flight record piece by piece and writes it as a trace. */
#include <errno.h>
#include <string.h>

#include "observe.h"
#include "perfetto.h"

struct options {
        const char *job, *output;
};

/* 0 to go on, else 1 + the exit code. */
static int parse(struct cli *cli, struct options *options, int argc, char **argv) {
        static const struct option longs[] = { CLI_COMMON_LONG,
                                               { "output", required_argument, NULL, 'o' },
                                               { 0 } };
        int option, r;

        optind = 0;
        opterr = 0;
        while ((option = getopt_long(argc, argv, ":" CLI_COMMON_SHORT "o:", longs, NULL)) >= 0) {
                if (option == 'o')
                        options->output = optarg;
                else if ((r = cli_common_option(cli, option, argv)))
                        return r;
        }
        if (argc - optind != 1 || !*argv[optind])
                return cli_refuse_option(cli, "trace wants to know one job: NAME or UID/NAME");
        if (!options->output || !*options->output)
                return cli_refuse_option(cli,
                                         "trace wants to know where to write: --output FILE, \"-\" for here");
        options->job = argv[optind];
        return 0;
}

/* Replies to one TRACE; *ret_end says how it went on. */
static enum link_result fetch_piece(struct link *link, struct perfetto *trace, Wire__TraceEnd *ret_end) {
        for (;;) {
                const ProtobufCMessage *message;
                const uint8_t *payload;
                size_t length;
                uint16_t type;
                enum link_result r = link_receive(link, &type, &message, &payload, &length);
                if (r)
                        return r;
                if (type == WIRE__MESSAGE_TYPE__TRACE_END) {
                        *ret_end = *(const Wire__TraceEnd *)message;
                        return LINK_OK;
                }
                int fed = type == WIRE__MESSAGE_TYPE__TRACE_STEP
                                  ? perfetto_step(trace, (const Wire__TraceStep *)message)
                                  : -EPROTO;
                if (fed == -ENOMEM)
                        return link_failed(link, "out of memory");
                if (fed < 0)
                        return link_confused(link, "the daemon's answer is out of order");
        }
}

static enum link_result fetch(struct link *link, const char *path, const char *job, void *data,
                              bool *ret_found) {
        struct perfetto *trace = data;
        Wire__Trace request = WIRE__TRACE__INIT;
        Wire__TraceEnd end = WIRE__TRACE_END__INIT;

        if (link->minor < FRAME_MINOR_1)
                return link_failed(link,
                                   "this gradsyncd is of an older release, which keeps no record of steps");
        perfetto_daemon(trace, path);
        request.job = (char *)job;
        do {
                enum link_result r = link_send(link, WIRE__MESSAGE_TYPE__TRACE, &request.base);
                if (!r)
                        r = fetch_piece(link, trace, &end);
                if (r)
                        return r;
                *ret_found = *ret_found || end.found;
                if (!request.has_until_us)
                        request.until_us = end.now_us;
                request.has_until_us = request.has_record = request.has_after = true;
                request.record = end.record;
                request.after = end.after;
        } while (end.has_record);
        return LINK_OK;
}

static int write_out(const char *path, const char *text, size_t size) {
        bool here = strcmp(path, "-") == 0;
        FILE *to = here ? stdout : fopen(path, "we");
        bool fine = to && fwrite(text, 1, size, to) == size && fflush(to) == 0;

        if (!fine)
                cli_complain("cannot write %s: %s", path, strerror(errno));
        if (to && !here && fclose(to) != 0 && fine) {
                cli_complain("cannot write %s: %s", path, strerror(errno));
                fine = false;
        }
        return fine ? CLI_OK : CLI_ERROR;
}

int cmd_trace(struct cli *cli, int argc, char **argv) {
        _cleanup_(freep) char *text = NULL;
        struct options options = { 0 };
        size_t size;
        int code = parse(cli, &options, argc, argv);

        if (code)
                return code - 1;
        FILE *to = open_memstream(&text, &size);
        struct perfetto *trace = to ? perfetto_new(to) : NULL;
        if (trace)
                code = inquire(cli, &(struct inquiry){ .job = options.job, .ask = fetch, .data = trace });
        bool fine = trace && perfetto_close(trace) == 0;
        if (!to || fclose(to) != 0 || !fine) {
                cli_complain("out of memory");
                return CLI_ERROR;
        }
        return code ? code : write_out(options.output, text, size);
}
