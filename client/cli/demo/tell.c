// SPDX-License-Identifier: Apache-2.0
/* The words of `gradsyncctl demo`: see demo.h. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "client/cli/base/escape.h"
#include "client/cli/base/format.h"
#include "client/cli/demo/demo.h"
#include "client/cli/view/document.h"
#include "client/cli/view/paint.h"

void demo_tell(const struct demo *demo, const char *format, ...) {
        va_list args;

        if (demo->json)
                return;
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        putchar('\n');
        fflush(stdout); /* the reader sees it while it happens */
}

void demo_tell_act(const struct demo *demo, const char *title) {
        demo_tell(demo, "\n%s%s%s", paint_on(demo->color, PAINT_BOLD), title,
                  paint_off(demo->color, PAINT_BOLD));
}

/* What a trainer writes belongs to the story, but with --json it must not be lost either: it may be why
 * nothing works. */
void demo_tell_line(const struct demo *demo, unsigned rank, const char *line, size_t length) {
        _cleanup_(freep) char *copy = strndup(line, length), *shown = copy ? escape_text(copy) : NULL;

        if (demo->json)
                fprintf(stderr, "[%u] %s\n", rank, shown ? shown : "");
        else
                demo_tell(demo, "      %s[%u] %s%s", paint_on(demo->color, PAINT_DIM), rank,
                          shown ? shown : "", paint_off(demo->color, PAINT_DIM));
}

void demo_tell_pids(const struct demo *demo) {
        unsigned long n = demo->options.members;
        char list[160]; /* "101, 102 and 103" */
        size_t at = 0;

        for (unsigned long i = 0; i < n && at < sizeof list; i++)
                at += (size_t)snprintf(list + at, sizeof list - at, "%s%d",
                                       i == 0       ? ""
                                       : i + 1 == n ? " and "
                                                    : ", ",
                                       (int)demo->run.member[i].pid);
        demo_tell(demo, "   Ranks 0 to %lu are pid %s.", n - 1, list);
}

void demo_tell_trained(const struct demo *demo, const struct demo_training *training) {
        demo_tell(demo, "   %" PRIu64 " steps in %.1f s. Accuracy %.4f, parameters %s.", training->steps,
                  training->seconds, training->accuracy, training->hash);
}

void demo_tell_named(const struct demo *demo) {
        demo_tell(demo, "   Rank %d is stopped in step %" PRIu64 ": kill -STOP %d", DEMO_STOPPED,
                  demo->stop.step, (int)demo->stop.pid);
        demo_tell(demo, "   After %.0f ms gradsyncctl status says:", demo->stop.named_ms);
        demo_tell(demo, "      %s%s%s", paint_on(demo->color, PAINT_WARN), demo->stop.text,
                  paint_off(demo->color, PAINT_WARN));
        if (demo->pause_ms)
                demo_tell(demo,
                          "   It stays stopped for %.0f s and more: see for yourself on another terminal.",
                          (double)demo->pause_ms / 1e3);
        demo_tell(demo, "   The trainers that wait hear it too, and say it on their own terminals:");
}

void demo_tell_back(const struct demo *demo) {
        const struct demo_kill *killed = &demo->kill;

        if (killed->void_ms >= 0)
                demo_tell(demo, "   %.1f ms after the kill the others knew that step %" PRIu64 " is void.",
                          killed->void_ms, killed->step);
        else
                demo_tell(demo, "   It died between two steps; the daemon noticed %.1f ms after the kill.",
                          killed->noticed_ms);
        demo_tell(demo,
                  "   Only its process was started again, as pid %d. "
                  "The others waited inside gradsync and gave it their state.",
                  (int)killed->successor);
        demo_tell(demo,
                  "   %s%" PRIu64 " step%s void, back in %.2f s, same ranks.%s "
                  "(On one host there is no communicator that could break.)",
                  paint_on(demo->color, PAINT_GOOD), killed->void_steps, format_plural(killed->void_steps),
                  killed->committed_ms / 1e3, paint_off(demo->color, PAINT_GOOD));
}

static json_t *demo_tell_training_object(const struct demo_training *training) {
        return OBJECT(AS("steps", value_number(training->steps)),
                      AS("seconds", value_real(true, training->seconds)),
                      AS("accuracy", value_real(true, training->accuracy)),
                      AS("hash", value_text(training->hash)));
}

static json_t *demo_tell_stop_object(const struct demo_stop *stop) {
        return OBJECT(AS("rank", value_number(DEMO_STOPPED)), AS("pid", value_number((uint64_t)stop->pid)),
                      AS("step", value_number(stop->step)), AS("bucket", value_number(stop->bucket)),
                      AS("parameter", value_text(stop->parameter)),
                      AS("named_ms", value_real(true, stop->named_ms)),
                      AS("told_ms", value_real(true, stop->told_ms)),
                      AS("resumed_ms", value_real(true, stop->resumed_ms)));
}

static json_t *demo_tell_kill_object(const struct demo_kill *killed) {
        return OBJECT(AS("rank", value_number(DEMO_KILLED)), AS("pid", value_number((uint64_t)killed->pid)),
                      AS("successor_pid", value_number((uint64_t)killed->successor)),
                      AS("step", value_number(killed->step)),
                      AS("void_steps", value_number(killed->void_steps)),
                      AS("noticed_ms", value_real(true, killed->noticed_ms)),
                      AS("void_ms", value_real(killed->void_ms >= 0, killed->void_ms)),
                      AS("committed_ms", value_real(true, killed->committed_ms)));
}

static bool demo_tell_equal(const struct demo *demo) {
        const struct demo_training *a = &demo->undisturbed, *b = &demo->disturbed;

        return a->ended == demo->options.members && b->ended == a->ended && !a->differ && !b->differ &&
               strcmp(a->hash, b->hash) == 0;
}

static int demo_tell_document(const struct demo *demo, bool equal) {
        return document_print(OBJECT(DOCUMENT_VERSION, AS("members", value_number(demo->options.members)),
                                     AS("undisturbed", demo_tell_training_object(&demo->undisturbed)),
                                     AS("stop", demo_tell_stop_object(&demo->stop)),
                                     AS("kill", demo_tell_kill_object(&demo->kill)),
                                     AS("disturbed", demo_tell_training_object(&demo->disturbed)),
                                     AS("equal", json_boolean(equal))),
                              false);
}

int demo_tell_end(const struct demo *demo) {
        bool same = demo_tell_equal(demo);
        int code = demo->json ? demo_tell_document(demo, same) : CLI_OK;

        if (same)
                demo_tell(demo, "   %sEqual to the undisturbed run's, bit for bit, on all %lu members.%s",
                          paint_on(demo->color, PAINT_GOOD), demo->options.members,
                          paint_off(demo->color, PAINT_GOOD));
        else
                cli_complain("the parameters differ: %s undisturbed, %s disturbed, "
                             "and each should be the same on all %lu members",
                             demo->undisturbed.hash, demo->disturbed.hash, demo->options.members);
        return same ? code : CLI_ERROR;
}
