// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl trace: fetches a job's flight record piece by piece and writes it as a trace. */
#include <errno.h>
#include <string.h>

#include "client/cli/ask/observe.h"
#include "client/cli/cmd/cmd.h"
#include "client/cli/view/perfetto.h"

struct trace_options {
        const char *job, *output;
};

/* 0 to go on, else 1 + the exit code. */
static int cmd_trace_parse(struct cli *cli, struct trace_options *options, int argc, char **argv) {
        int r = cli_options(cli, argc, argv, false,
                            &(struct cli_option){ "output", 'o', CLI_TEXT, .value = &options->output }, 1);

        if (r)
                return r;
        if (argc - optind != 1 || !*argv[optind])
                return cli_refuse_option(cli, "trace wants to know one job: NAME or UID/NAME");
        if (!options->output || !*options->output)
                return cli_refuse_option(cli,
                                         "trace wants to know where to write: --output FILE, \"-\" for here");
        options->job = argv[optind];
        return 0;
}

/* Takes the replies to one TRACE; *ret_end says how to go on. */
static enum talk_result cmd_trace_fetch_piece(struct talk *talk, struct perfetto *trace,
                                              Wire__TraceEnd *ret_end) {
        for (;;) {
                struct talk_reply reply;
                enum talk_result r = talk_receive(talk, &reply);
                if (r)
                        return r;
                if (reply.type == WIRE__MESSAGE_TYPE__TRACE_END) {
                        *ret_end = *(const Wire__TraceEnd *)reply.message;
                        return TALK_OK;
                }
                int fed = reply.type == WIRE__MESSAGE_TYPE__TRACE_STEP
                                  ? perfetto_step(trace, (const Wire__TraceStep *)reply.message)
                                  : -EPROTO;
                if (fed == -ENOMEM)
                        return talk_fail(talk, TALK_FAILED, "out of memory");
                if (fed < 0)
                        return talk_fail(talk, TALK_BROKEN, "the daemon's answer is out of order");
        }
}

static enum talk_result cmd_trace_fetch(struct talk *talk, const char *path, const char *job, void *data,
                                        bool *ret_found) {
        struct perfetto *trace = data;
        Wire__Trace request = WIRE__TRACE__INIT;
        Wire__TraceEnd end = WIRE__TRACE_END__INIT;

        if (talk->minor < FRAME_MINOR_1)
                return talk_fail(talk, TALK_FAILED,
                                 "this gradsyncd is of an older release, which keeps no record of steps");
        perfetto_daemon(trace, path);
        request.job = (char *)job;
        do {
                enum talk_result r = talk_send(talk, WIRE__MESSAGE_TYPE__TRACE, &request.base);
                if (!r)
                        r = cmd_trace_fetch_piece(talk, trace, &end);
                if (r)
                        return r;
                *ret_found = *ret_found || end.found;
                if (!request.has_until_us)
                        SET(request, until_us, end.now_us);
                SET(request, record, end.record);
                SET(request, after, end.after);
        } while (end.has_record);
        return TALK_OK;
}

static int cmd_trace_write_out(const char *path, const char *text, size_t size) {
        bool here = strcmp(path, "-") == 0;
        FILE *to = here ? stdout : fopen(path, "we");
        bool fine = to && fwrite(text, 1, size, to) == size && fflush(to) == 0;

        if (to && !here && fclose(to) != 0)
                fine = false;
        if (!fine)
                cli_complain("cannot write %s: %s", path, strerror(errno));
        return fine ? CLI_OK : CLI_ERROR;
}

int cmd_trace(struct cli *cli, int argc, char **argv) {
        _cleanup_(freep) char *text = NULL;
        struct trace_options options = { 0 };
        size_t size;
        int code = cmd_trace_parse(cli, &options, argc, argv);

        if (code)
                return code - 1;
        FILE *to = open_memstream(&text, &size);
        struct perfetto *trace = to ? perfetto_new(to) : NULL;
        if (trace)
                code = observe_each(cli, &(struct inquiry){
                                                 .job = options.job, .ask = cmd_trace_fetch, .data = trace });
        bool fine = trace && perfetto_close(trace) == 0;
        if (!to || fclose(to) != 0 || !fine)
                return cli_out_of_memory();
        return code ? code : cmd_trace_write_out(options.output, text, size);
}
