// SPDX-License-Identifier: Apache-2.0
/* The words of `gradsyncctl demo`: see demo.h. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "demo.h"
#include "escape.h"
#include "json.h"
#include "paint.h"

void demo_tell(const struct demo *demo, const char *format, ...) {
        va_list args;

        if (demo->json)
                return;
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        putchar('\n');
        fflush(stdout); /* it is told while it happens */
}

void demo_tell_act(const struct demo *demo, const char *title) {
        demo_tell(demo, "\n%s%s%s", paint_on(demo->color, PAINT_BOLD), title, paint_off(demo->color, PAINT_BOLD));
}

/* What it says belongs to the story, but with --json it must not be lost either: it may be why nothing works. */
void demo_tell_line(const struct demo *demo, unsigned rank, const char *line, size_t length) {
        _cleanup_(freep) char *copy = strndup(line, length), *shown = copy ? escape_text(copy) : NULL;

        if (demo->json)
                fprintf(stderr, "[%u] %s\n", rank, shown ? shown : "");
        else
                demo_tell(demo, "      %s[%u] %s%s", paint_on(demo->color, PAINT_DIM), rank, shown ? shown : "",
                          paint_off(demo->color, PAINT_DIM));
}

/* "pid 101, 102 and 103" */
static void pids(const struct demo *demo, char *out, size_t size) {
        unsigned long n = demo->options.members;
        size_t at = 0;

        for (unsigned long i = 0; i < n && at < size; i++)
                at += (size_t)snprintf(out + at, size - at, "%s%d", i == 0 ? "" : i + 1 == n ? " and " : ", ",
                                       (int)demo->run.member[i].pid);
}

void demo_tell_start(const struct demo *demo) {
        char list[160];

        pids(demo, list, sizeof list);
        demo_tell(demo, "   Ranks 0 to %lu are pid %s.", demo->options.members - 1, list);
}

void demo_tell_trained(const struct demo *demo, const struct demo_training *training) {
        demo_tell(demo, "   %" PRIu64 " steps in %.1f s. Accuracy %.4f, parameters %s.", training->steps,
                  training->seconds, training->accuracy, training->hash);
}

void demo_tell_stopped(const struct demo *demo) {
        demo_tell(demo, "   Rank %d is stopped in step %" PRIu64 ": kill -STOP %d", DEMO_STOPPED, demo->stop.step,
                  (int)demo->stop.pid);
}

void demo_tell_named(const struct demo *demo) {
        demo_tell(demo, "   After %.0f ms gradsyncctl status says:", demo->stop.named_ms);
        demo_tell(demo, "      %s%s%s", paint_on(demo->color, PAINT_WARN), demo->stop.text,
                  paint_off(demo->color, PAINT_WARN));
        if (demo->pause_ms)
                demo_tell(demo, "   It stays stopped for %.0f s and more: see for yourself on another terminal.",
                          (double)demo->pause_ms / 1e3);
        demo_tell(demo, "   The trainers that wait hear it too, and say it on their own terminals:");
}

void demo_tell_heard(const struct demo *demo) {
        demo_tell(demo, "   %.2f s after the stop all of them have said so. It goes on: kill -CONT %d", demo->stop.told_ms / 1e3,
                  (int)demo->stop.pid);
}

void demo_tell_resumed(const struct demo *demo) {
        demo_tell(demo, "   Step %" PRIu64 " is committed within %.0f ms.", demo->stop.step, demo->stop.resumed_ms);
        demo_tell_act(demo, "3  A trainer dies");
}

void demo_tell_killed(const struct demo *demo) {
        demo_tell(demo, "   Rank %d is killed: kill -9 %d", DEMO_KILLED, (int)demo->kill.pid);
}

void demo_tell_back(const struct demo *demo) {
        const struct demo_kill *killed = &demo->kill;

        if (killed->void_ms >= 0)
                demo_tell(demo, "   %.1f ms after the kill the others knew that step %" PRIu64 " is void.",
                          killed->void_ms, killed->step);
        else
                demo_tell(demo, "   It died between two steps; the daemon noticed %.1f ms after the kill.",
                          killed->noticed_ms);
        demo_tell(demo, "   Only its process was started again, as pid %d. The others waited inside gradsync and gave it their "
                  "state.", (int)killed->successor);
        demo_tell(demo, "   %s%" PRIu64 " step%s void, back in %.2f s, same ranks.%s (On one host there is no communicator that "
                  "could break.)",
                  paint_on(demo->color, PAINT_GOOD), killed->void_steps, killed->void_steps == 1 ? "" : "s",
                  killed->committed_ms / 1e3, paint_off(demo->color, PAINT_GOOD));
}

static json_t *milliseconds(double ms) {
        return ms >= 0 ? json_real(ms) : json_null();
}

static json_t *training_object(const struct demo_training *training) {
        return json_pack("{s:I, s:f, s:f, s:s}", "steps", (json_int_t)training->steps, "seconds", training->seconds,
                         "accuracy", training->accuracy, "hash", training->hash);
}

static json_t *stop_object(const struct demo_stop *stop) {
        return json_pack("{s:i, s:i, s:I, s:i, s:s, s:f, s:f, s:f}", "rank", DEMO_STOPPED, "pid", (int)stop->pid, "step",
                         (json_int_t)stop->step, "bucket", (int)stop->bucket, "parameter", stop->parameter, "named_ms",
                         stop->named_ms, "told_ms", stop->told_ms, "resumed_ms", stop->resumed_ms);
}

static json_t *kill_object(const struct demo_kill *killed) {
        return json_pack("{s:i, s:i, s:i, s:I, s:I, s:f, s:o, s:f}", "rank", DEMO_KILLED, "pid", (int)killed->pid,
                         "successor_pid", (int)killed->successor, "step", (json_int_t)killed->step, "void_steps",
                         (json_int_t)killed->void_steps, "noticed_ms", killed->noticed_ms, "void_ms",
                         milliseconds(killed->void_ms), "committed_ms", killed->committed_ms);
}

static bool equal(const struct demo *demo) {
        const struct demo_training *a = &demo->undisturbed, *b = &demo->disturbed;

        return a->ended == demo->options.members && b->ended == a->ended && !a->differ && !b->differ &&
               strcmp(a->hash, b->hash) == 0;
}

static int document(const struct demo *demo) {
        json_t *all = json_pack("{s:i, s:I, s:o, s:o, s:o, s:o, s:b}", "schema_version", JSON_SCHEMA_VERSION, "members",
                                (json_int_t)demo->options.members, "undisturbed", training_object(&demo->undisturbed),
                                "stop", stop_object(&demo->stop), "kill", kill_object(&demo->kill), "disturbed",
                                training_object(&demo->disturbed), "equal", equal(demo));
        return json_print(all, false);
}

int demo_tell_end(const struct demo *demo) {
        bool same = equal(demo);
        int code = demo->json ? document(demo) : CLI_OK;

        if (same)
                demo_tell(demo, "   %sEqual to the undisturbed run's, bit for bit, on all %lu members.%s",
                          paint_on(demo->color, PAINT_GOOD), demo->options.members, paint_off(demo->color, PAINT_GOOD));
        else
                cli_complain("the parameters differ: %s undisturbed, %s disturbed, and each should be the same on all %lu "
                             "members", demo->undisturbed.hash, demo->disturbed.hash, demo->options.members);
        return same ? code : CLI_ERROR;
}
