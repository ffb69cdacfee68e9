/* SPDX-License-Identifier: Apache-2.0 */
/* For each class a list of users, each with a list of places: the first place of the first user is next. */
#include "line.h"

#include <assert.h>

#include "clock.h"

static uint64_t line_pass_budget(struct line *line) {
        uint64_t pass = loop_passes(line->loop);

        if (line->pass != pass) {
                line->pass = pass;
                line->spent = 0;
        }
        return line->spent < LINE_BUDGET ? LINE_BUDGET - line->spent : 0;
}

/* Returns the time that requests may take now, in us: at most one budget, and in the long run one part in
 * LINE_PART. */
static uint64_t line_share(struct line *line) {
        uint64_t now = clock_now();

        if (now - line->stepped > LINE_CALM)
                line->part = (struct token_bucket){ 0 };
        double left = token_bucket_fill(&line->part, (double)USEC_PER_SEC / LINE_PART, LINE_BUDGET, now);
        return left > 0 ? (uint64_t)left : 0;
}

static uint64_t line_budget(struct line *line, enum line_class kind) {
        uint64_t budget = line_pass_budget(line);
        uint64_t share = budget > 0 && kind != LINE_OPERATORS ? line_share(line) : budget;

        return budget < share ? budget : share;
}

/* Whether no place of this class waits. */
static bool line_lacks(const struct line *line, enum line_class kind) {
        return list_empty(&line->users[kind]);
}

static bool line_is_empty(const struct line *line) {
        for (enum line_class kind = 0; kind < LINE_CLASSES; kind++)
                if (!line_lacks(line, kind))
                        return false;
        return true;
}

static void line_append(struct line *line, struct line_queue *queue) {
        list_append(&line->users[line->class_of(queue)], &queue->link);
}

static bool line_may_serve(struct line *line, enum line_class kind) {
        return !line_lacks(line, kind) && line_budget(line, kind) > 0;
}

/* Returns the class whose turn it is among those that may be served in this pass; LINE_CLASSES if none. */
static enum line_class line_whose_turn(struct line *line) {
        enum line_class whose = LINE_CLASSES, kind = LINE_CLASSES;
        bool behind = false; /* a class behind `whose` may be served, too */

        while (kind-- > 0) {
                if (!line_may_serve(line, kind) || (whose != LINE_CLASSES && line->turns[kind] == LINE_FIRST))
                        continue;
                behind = whose != LINE_CLASSES;
                whose = kind;
        }
        if (whose == LINE_CLASSES)
                return whose;
        for (kind = 0; kind < whose; kind++)
                line->turns[kind] = 0;
        line->turns[whose] = behind ? line->turns[whose] + 1 : 0;
        return whose;
}

/* Takes the next place out of the line. NULL: the rest waits. */
static struct line_place *line_next(struct line *line) {
        enum line_class kind = line_whose_turn(line);

        if (kind == LINE_CLASSES)
                return NULL;
        struct line_queue *queue = list_entry(line->users[kind].next, struct line_queue, link);
        struct line_place *place = list_entry(queue->places.next, struct line_place, link);
        list_remove(&place->link);
        list_remove(&queue->link);
        if (!list_empty(&queue->places))
                line_append(line, queue);
        return place;
}

/* Serves the rest in the next pass, or when `part` allows it again. */
static void line_serve_later(struct line *line) {
        if (!line_lacks(line, LINE_OPERATORS) || line_share(line) > 0 ||
            loop_timer_arm(line->due, (uint64_t)((1 - line->part.left) * LINE_PART)) < 0)
                loop_defer(line->loop, &line->serving);
}

static void line_serve(void *data) {
        struct line *line = data;
        struct line_place *place;

        while ((place = line_next(line)) != NULL)
                line->serve(place);
        if (!line_is_empty(line))
                line_serve_later(line);
}

int line_init(struct line *line, struct loop *loop, void (*serve)(struct line_place *place),
              enum line_class (*class_of)(const struct line_queue *queue)) {
        *line = (struct line){ .loop = loop,
                               .serve = serve,
                               .class_of = class_of,
                               .serving = { .fn = line_serve, .data = line } };
        for (enum line_class kind = 0; kind < LINE_CLASSES; kind++)
                list_init(&line->users[kind]);
        return loop_timer_new(loop, line_serve, line, &line->due);
}

void line_deinit(struct line *line) {
        assert(line_is_empty(line));
        loop_defer_cancel(line->loop, &line->serving);
        line->due = loop_timer_free(line->due);
}

void line_stepped(struct line *line) {
        line_share(line);
        line->stepped = line->part.last;
}

uint64_t line_left(struct line *line, const struct line_queue *queue) {
        enum line_class kind = line->class_of(queue);

        if (kind == LINE_OPERATORS ? line_lacks(line, kind) : line_is_empty(line))
                return line_budget(line, kind);
        return 0;
}

void line_charge(struct line *line, const struct line_queue *queue, uint64_t us) {
        line_pass_budget(line);
        line->spent += us;
        if (line->class_of(queue) == LINE_OPERATORS)
                return;
        line_share(line);
        line->part.left -= (double)us;
        if (line->part.left < -(double)LINE_BUDGET) /* the thread was not running all that time */
                line->part.left = -(double)LINE_BUDGET;
}

void line_add(struct line *line, struct line_queue *queue, struct line_place *place) {
        if (!list_empty(&place->link))
                return;
        if (list_empty(&queue->places))
                line_append(line, queue);
        list_append(&queue->places, &place->link);
        loop_defer(line->loop, &line->serving);
}

void line_leave(struct line_queue *queue, struct line_place *place) {
        if (list_empty(&place->link))
                return;
        list_remove(&place->link);
        if (list_empty(&queue->places))
                list_remove(&queue->link);
}
