// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl trace: fetches a job's flight records piece by piece, those of its nodes on other hosts, too,
 * and writes them as one trace. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/ask/observe.h"
#include "client/cli/base/format.h"
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
                return cli_refuse_option(cli, "trace wants to know one job: NAME or USER/NAME");
        if (!options->output || !*options->output)
                return cli_refuse_option(cli,
                                         "trace wants to know where to write: --output FILE, \"-\" for here");
        return cli_job(cli, argv[optind], &options->job);
}

/* A node of a live job, as the daemon at `via` names it. */
struct traced_node {
        char *job, *via, *host;
        uint32_t node;
        bool self, clocked, taken;
        int64_t clock;
        uint64_t round_trip;
};

struct tracing {
        struct perfetto *trace;
        struct traced_node *node;
        size_t n;
        char **live; /* jobs of the daemon that is being asked, as UID/NAME */
        size_t n_live;
};

static void tracing_forget_live(struct tracing *tracing) {
        for (size_t i = 0; i < tracing->n_live; i++)
                free(tracing->live[i]);
        free(tracing->live);
        tracing->live = NULL;
        tracing->n_live = 0;
}

static void tracing_deinit(struct tracing *tracing) {
        tracing_forget_live(tracing);
        for (size_t i = 0; i < tracing->n; i++) {
                free(tracing->node[i].job);
                free(tracing->node[i].via);
                free(tracing->node[i].host);
        }
        free(tracing->node);
}

/* Notes the job of the step if it is alive. Several records may be of one job: it is noted once. 0 or
 * -ENOMEM. */
static int tracing_add_live(struct tracing *tracing, const Wire__TraceStep *step) {
        _cleanup_(freep) char *job =
                step->name && !step->ended_job ? format_new("%u/%s", step->uid, step->name) : NULL;

        if (!step->name || step->ended_job)
                return 0;
        for (size_t i = 0; job && i < tracing->n_live; i++)
                if (strcmp(tracing->live[i], job) == 0)
                        return 0;
        char **grown = job ? realloc(tracing->live, (tracing->n_live + 1) * sizeof *grown) : NULL;
        if (!grown)
                return -ENOMEM;
        tracing->live = grown;
        grown[tracing->n_live++] = job;
        job = NULL;
        return 0;
}

/* 0 or -ENOMEM. */
static int tracing_add_node(struct tracing *tracing, const char *via, const char *job,
                            const Wire__TraceNode *from) {
        struct traced_node *grown = realloc(tracing->node, (tracing->n + 1) * sizeof *grown);

        if (!grown)
                return -ENOMEM;
        tracing->node = grown;
        struct traced_node *node = &grown[tracing->n++];
        *node = (struct traced_node){ .job = strdup(job),
                                      .via = strdup(via),
                                      .host = strdup(from->host ? from->host : ""),
                                      .node = from->node,
                                      .self = from->self,
                                      .clocked = from->has_clock_us,
                                      .clock = from->clock_us,
                                      .round_trip = from->round_trip_us };
        return node->job && node->via && node->host ? 0 : -ENOMEM;
}

/* Takes the replies to one TRACE; *ret_end says how to go on, and is valid until the next one. */
static enum talk_result cmd_trace_fetch_piece(struct talk *talk, struct tracing *tracing,
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
                const Wire__TraceStep *step = (const Wire__TraceStep *)reply.message;
                int fed = reply.type == WIRE__MESSAGE_TYPE__TRACE_STEP ? perfetto_step(tracing->trace, step)
                                                                       : -EPROTO;
                if (fed == 0)
                        fed = tracing_add_live(tracing, step);
                if (fed == -ENOMEM)
                        return talk_fail(talk, TALK_FAILED, "out of memory");
                if (fed < 0)
                        return talk_fail(talk, TALK_BROKEN, "the daemon's answer is out of order");
        }
}

/* Which nodes a live job has, if it spans daemons. */
static enum talk_result cmd_trace_list_nodes(struct talk *talk, const char *path, const char *job,
                                             struct tracing *tracing, bool *ret_found) {
        Wire__Trace request = WIRE__TRACE__INIT;
        const ProtobufCMessage *reply;

        request.job = (char *)job;
        SET(request, nodes, true);
        enum talk_result r = talk_ask(talk, WIRE__MESSAGE_TYPE__TRACE, &request.base,
                                      WIRE__MESSAGE_TYPE__TRACE_END, "the question for its nodes", &reply);
        if (r)
                return r;
        const Wire__TraceEnd *end = (const Wire__TraceEnd *)reply;
        *ret_found = *ret_found || end->found;
        for (size_t i = 0; i < end->n_node; i++)
                if (tracing_add_node(tracing, path, job, end->node[i]) < 0)
                        return talk_fail(talk, TALK_FAILED, "out of memory");
        return TALK_OK;
}

/* Fetches the records of one daemon, and a list of the other nodes. */
static enum talk_result cmd_trace_fetch(struct talk *talk, const char *path, const char *job, void *data,
                                        bool *ret_found) {
        struct tracing *tracing = data;
        Wire__Trace request = WIRE__TRACE__INIT;
        Wire__TraceEnd end = WIRE__TRACE_END__INIT;
        enum talk_result r = TALK_OK;

        perfetto_daemon(tracing->trace, path);
        tracing_forget_live(tracing);
        request.job = (char *)job;
        do {
                r = talk_send(talk, WIRE__MESSAGE_TYPE__TRACE, &request.base);
                if (!r)
                        r = cmd_trace_fetch_piece(talk, tracing, &end);
                if (r)
                        return r;
                *ret_found = *ret_found || end.found;
                if (!request.has_until_us)
                        SET(request, until_us, end.now_us);
                SET(request, record, end.record);
                SET(request, after, end.after);
        } while (end.has_record);
        for (size_t i = 0; i < tracing->n_live && !r; i++)
                r = cmd_trace_list_nodes(talk, path, tracing->live[i], tracing, ret_found);
        if (tracing->n_live == 0)
                r = cmd_trace_list_nodes(talk, path, job, tracing, ret_found);
        return r;
}

/* Whether the record of the node is there: its own daemon has sent it, or another one has fetched it. */
static bool traced_node_is_known(const struct tracing *tracing, const struct traced_node *node) {
        for (size_t i = 0; i < tracing->n; i++) {
                const struct traced_node *other = &tracing->node[i];

                if (other != node && (other->self || other->taken) && other->node == node->node &&
                    strcmp(other->host, node->host) == 0 && strcmp(other->job, node->job) == 0)
                        return true;
        }
        return false;
}

static enum talk_result cmd_trace_fetch_node(struct talk *talk, struct tracing *tracing,
                                             struct traced_node *node) {
        _cleanup_(freep) char *place = format_new("host %s, node %u", node->host, node->node);
        _cleanup_(freep) char *note =
                node->clocked ? format_new("clock %+.3f ms, exact to %.3f ms", (double)node->clock / 1e3,
                                           (double)node->round_trip / 2e3)
                              : strdup("how its clock differs is not known");
        Wire__Trace request = WIRE__TRACE__INIT;
        Wire__TraceEnd end = WIRE__TRACE_END__INIT;
        enum talk_result r;

        if (!place || !note)
                return talk_fail(talk, TALK_FAILED, "out of memory");
        node->taken = true;
        perfetto_node(tracing->trace, place, node->clock, note);
        request.job = node->job;
        SET(request, node, node->node);
        r = talk_send(talk, WIRE__MESSAGE_TYPE__TRACE, &request.base);
        if (!r)
                r = cmd_trace_fetch_piece(talk, tracing, &end);
        if (!r && !end.found)
                cli_complain("job %s on host %s: nothing is recorded there, or its gradsyncd does not answer",
                             node->job, node->host);
        return r;
}

/* Fetches the records of nodes whose daemons are not on this host. */
static enum talk_result cmd_trace_fetch_others(struct talk *talk, const char *path, const char *job,
                                               void *data, bool *ret_found) {
        struct tracing *tracing = data;
        enum talk_result r = TALK_OK;

        *ret_found = true;
        for (size_t i = 0; i < tracing->n && !r; i++)
                if (!tracing->node[i].self && strcmp(tracing->node[i].via, path) == 0 &&
                    !traced_node_is_known(tracing, &tracing->node[i]))
                        r = cmd_trace_fetch_node(talk, tracing, &tracing->node[i]);
        return r;
}

static bool tracing_has_others(const struct tracing *tracing) {
        for (size_t i = 0; i < tracing->n; i++)
                if (!tracing->node[i].self)
                        return true;
        return false;
}

static int cmd_trace_ask(const struct cli *cli, const char *job, struct tracing *tracing) {
        struct inquiry inquiry = { .job = job, .ask = cmd_trace_fetch, .data = tracing };
        int code = observe_each(cli, &inquiry);

        inquiry.ask = cmd_trace_fetch_others;
        return code == CLI_OK && tracing_has_others(tracing) ? observe_each(cli, &inquiry) : code;
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
        struct tracing tracing = { .trace = to ? perfetto_new(to) : NULL };
        if (tracing.trace)
                code = cmd_trace_ask(cli, options.job, &tracing);
        tracing_deinit(&tracing);
        bool fine = tracing.trace && perfetto_close(tracing.trace) == 0;
        if (!to || fclose(to) != 0 || !fine)
                return cli_out_of_memory();
        return code ? code : cmd_trace_write_out(options.output, text, size);
}
