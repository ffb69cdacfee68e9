// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl doctor: finds the daemon once, lets each group of checks look, and prints one line a finding.
 * */
#include <string.h>

#include "client/cli/base/escape.h"
#include "client/cli/cmd/cmd.h"
#include "client/cli/doctor/doctor.h"
#include "client/cli/view/document.h"
#include "client/cli/view/paint.h"

/* Whether the fresh failure says more than the known one: the least is said by a place without a daemon. */
static bool cmd_doctor_tells_more(enum talk_result fresh, enum talk_result known) {
        return known == TALK_ABSENT && fresh != TALK_ABSENT;
}

/* Looks for the first daemon that answers; if none does, remembers the place that says most. */
static void cmd_doctor_examine(struct checkup *checkup) {
        for (size_t i = 0; i < checkup->sockets.n; i++) {
                struct talk talk, other = checkup->talk;
                const char *path = checkup->sockets.at[i].path;
                enum talk_result r = talk_open(&talk, path, TALK_TIMEOUT);
                if (!r)
                        r = snapshot_fetch(&talk, path, NULL, &checkup->snapshot);
                if (i == 0 || !r || cmd_doctor_tells_more(r, checkup->result)) {
                        checkup->path = path;
                        checkup->result = r;
                        checkup->talk = talk;
                } else {
                        other = talk;
                }
                talk_close(&other);
                if (!r)
                        return;
        }
}

static int cmd_doctor_print_json(const struct findings *findings) {
        json_t *list = json_array();

        for (size_t i = 0; i < findings->n; i++) {
                const struct finding *f = &findings->finding[i];
                _cleanup_(freep) char *what = escape_text(f->what),
                                      *fix = f->fix ? escape_text(f->fix) : NULL;
                value_append(&list, OBJECT(AS("check", value_text(f->check)),
                                           AS("result", value_text(verdict_names[f->verdict])),
                                           AS("text", value_text(what)), AS("fix", value_text(fix))));
        }
        return document_print(OBJECT(DOCUMENT_VERSION, AS("checks", list)), false);
}

static void cmd_doctor_print_text(const struct findings *findings, bool color) {
        static const enum paint paints[] = { PAINT_GOOD, PAINT_WARN, PAINT_BAD };

        for (size_t i = 0; i < findings->n; i++) {
                const struct finding *f = &findings->finding[i];
                _cleanup_(freep) char *what = escape_text(f->what), *fix = escape_text(f->fix);
                printf("%s%-4s%s  %-13s  %s%s%s\n", paint_on(color, paints[f->verdict]),
                       verdict_names[f->verdict], paint_off(color, paints[f->verdict]), f->check,
                       what ? what : "", f->fix ? " -- " : "", fix ? fix : "");
        }
}

int cmd_doctor(struct cli *cli, int argc, char **argv) {
        struct checkup checkup = { .cli = cli, .result = TALK_ABSENT, .talk.fd = -1 };
        struct findings findings = { 0 };
        bool json = false;
        int r = cli_plain_options(cli, argc, argv, &json), code = CLI_OK;

        if (r)
                return r - 1;
        if (optind < argc)
                return cli_usage_error(cli, "doctor takes no argument");
        bundled_advice(&checkup.advice);
        if (sockets_find_all(cli, &checkup.sockets) < 0)
                findings.incomplete = true;
        else
                cmd_doctor_examine(&checkup);
        doctor_daemon(&checkup, &findings);
        doctor_cluster(&checkup, &findings);
        doctor_limits(&checkup, &findings);
        doctor_gpu(&checkup, &findings);
        doctor_nccl(&checkup, &findings);
        doctor_environment(&findings);
        doctor_leftovers(&findings);
        for (size_t i = 0; i < findings.n; i++)
                if (findings.finding[i].verdict == VERDICT_FAIL)
                        code = CLI_ERROR;
        if (json)
                r = cmd_doctor_print_json(&findings);
        else
                cmd_doctor_print_text(&findings, cli->color);
        if (findings.incomplete)
                code = cli_out_of_memory();
        findings_deinit(&findings);
        snapshot_deinit(&checkup.snapshot);
        talk_close(&checkup.talk);
        sockets_deinit(&checkup.sockets);
        return code ? code : r;
}
