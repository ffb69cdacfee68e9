// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl doctor: finds the daemon once, runs the table of checks, prints one line a finding. */
#include <stdarg.h>
#include <string.h>

#include "doctor.h"
#include "escape.h"
#include "json.h"
#include "paint.h"

static void (*const checks[])(const struct checkup *checkup, struct report *report) = {
        check_socket,        check_permissions, check_version,       check_library,     check_open_files,
        check_locked_memory, check_memory,      check_shared_memory, check_environment, check_leftovers,
};

static const char *const verdict_names[] = { "ok", "warn", "fail" };

void report_add(struct report *report, const char *check, enum verdict verdict, char *what, char *fix) {
        struct finding *grown = what ? realloc(report->finding, (report->n + 1) * sizeof *grown) : NULL;

        if (!grown) {
                report->incomplete = true;
                free(what);
                free(fix);
                return;
        }
        report->finding = grown;
        grown[report->n++] = (struct finding){ check, verdict, what, fix };
}

char *say(const char *format, ...) {
        char *text;
        va_list args;

        va_start(args, format);
        if (vasprintf(&text, format, args) < 0)
                text = NULL;
        va_end(args);
        return text;
}

static void report_deinit(struct report *report) {
        for (size_t i = 0; i < report->n; i++) {
                free(report->finding[i].what);
                free(report->finding[i].fix);
        }
        free(report->finding);
}

/* Of several failures the one that says most: something is there beats nothing is there. */
static bool tells_more(enum link_result fresh, enum link_result known) {
        return known == LINK_ABSENT && fresh != LINK_ABSENT;
}

/* Looks for the first daemon that answers; else remembers the place that says most. */
static void examine(struct checkup *checkup) {
        for (size_t i = 0; i < checkup->places.n; i++) {
                struct link link;
                const char *path = checkup->places.path[i];
                enum link_result r = link_open(&link, path, LINK_TIMEOUT);
                if (!r)
                        r = snapshot_fetch(&link, path, NULL, &checkup->snapshot);
                if (i == 0 || !r || tells_more(r, checkup->result)) {
                        checkup->path = path;
                        checkup->result = r;
                        memcpy(checkup->error, link.error, sizeof checkup->error);
                }
                if (!r) {
                        checkup->version = strdup(link.version);
                        checkup->device = strdup(link.device);
                        checkup->minor = link.minor;
                }
                link_close(&link);
                if (!r)
                        return;
        }
}

static int print_json(const struct report *report) {
        json_t *list = json_array();

        for (size_t i = 0; i < report->n; i++) {
                const struct finding *f = &report->finding[i];
                _cleanup_(freep) char *what = escape_text(f->what), *fix = escape_text(f->fix);
                json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s?}", "check", f->check, "result",
                                                      verdict_names[f->verdict], "text", what, "fix",
                                                      f->fix ? fix : NULL));
        }
        return json_print(json_pack("{s:i, s:o}", "schema_version", JSON_SCHEMA_VERSION, "checks", list),
                          false);
}

static void print_text(const struct report *report, bool color) {
        static const enum paint paints[] = { PAINT_GOOD, PAINT_WARN, PAINT_BAD };

        for (size_t i = 0; i < report->n; i++) {
                const struct finding *f = &report->finding[i];
                _cleanup_(freep) char *what = escape_text(f->what), *fix = escape_text(f->fix);
                printf("%s%-4s%s  %-13s  %s%s%s\n", paint_on(color, paints[f->verdict]),
                       verdict_names[f->verdict], paint_off(color, paints[f->verdict]), f->check,
                       what ? what : "", f->fix ? " -- " : "", fix ? fix : "");
        }
}

static int parse(struct cli *cli, bool *json, int argc, char **argv) {
        static const struct option longs[] = { CLI_COMMON_LONG, { "json", no_argument, NULL, 'j' }, { 0 } };
        int option, r;

        optind = 0;
        opterr = 0;
        while ((option = getopt_long(argc, argv, ":" CLI_COMMON_SHORT "j", longs, NULL)) >= 0) {
                if (option == 'j')
                        *json = true;
                else if ((r = cli_common_option(cli, option, argv)))
                        return r;
        }
        return optind < argc ? cli_refuse_option(cli, "doctor takes no argument") : 0;
}

int cmd_doctor(struct cli *cli, int argc, char **argv) {
        struct checkup checkup = { .cli = cli, .result = LINK_ABSENT };
        struct report report = { 0 };
        bool json = false;
        int r = parse(cli, &json, argc, argv), code = CLI_OK;

        if (r)
                return r - 1;
        if (find_all(cli, &checkup.places) < 0)
                report.incomplete = true;
        else
                examine(&checkup);
        for (size_t i = 0; i < array_size(checks); i++)
                checks[i](&checkup, &report);
        for (size_t i = 0; i < report.n; i++)
                if (report.finding[i].verdict == VERDICT_FAIL)
                        code = CLI_ERROR;
        if (json)
                r = print_json(&report);
        else
                print_text(&report, cli->color);
        if (report.incomplete) {
                cli_complain("out of memory");
                code = CLI_ERROR;
        }
        report_deinit(&report);
        snapshot_deinit(&checkup.snapshot);
        free(checkup.version);
        free(checkup.device);
        places_deinit(&checkup.places);
        return code ? code : r;
}
