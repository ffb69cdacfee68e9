/* SPDX-License-Identifier: Apache-2.0 */
#include "report/views.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "report/private.h"

#define VIEW_KEPT (60 * USEC_PER_SEC) /* what others say: after the last question */
#define PART_KEPT (5 * USEC_PER_SEC)  /* a statement or a record */
#define ROWS_MOST (256u << 10)        /* bytes of what others say */
#define RECORD_MOST (1u << 20)        /* bytes of a record */

/* Frames, one after the other. */
struct rows {
        uint8_t *data;
        size_t bytes;
        struct charge charge;
};

struct view {
        struct list link;
        struct views *views;
        uid_t uid;
        uint64_t incarnation;
        enum view_of what;
        uint32_t node;
        uint32_t id;    /* of the open question; 0: there is none */
        uint64_t asked; /* when; 0: never */
        uint64_t of;    /* when the question was asked that these have answered, or the statement came: */
        struct rows rows, coming;
        bool unanswered; /* by the coordinator */
        struct charge charge;
        char name[];
};

/* The member that a wait is for, as text that outlives the row. */
struct blamed {
        char host[LIMIT_NAME + 1], state[16], parameter[LIMIT_NAME + 1], text[WAIT_TEXT];
};

struct views {
        struct users *accounts;
        struct list list;
        struct loop_timer *timer;
        uint32_t last; /* id */
        struct codec codec;
        struct blamed blamed[VIEWS_NAMED];
        void (*trouble)(void *data, char *text, size_t size);
        void *trouble_data;
        void (*complete)(void *data);
        void *complete_data;
};

static void rows_clear(struct rows *rows) {
        free(rows->data);
        charge_release(&rows->charge);
        *rows = (struct rows){ 0 };
}

/* Adds the frames, unless they exceed the bound or the user's budget. */
static void view_add(struct view *view, struct rows *rows, const void *frames, size_t bytes) {
        size_t most = view->what == VIEW_RECORD ? RECORD_MOST : ROWS_MOST;
        struct charge charge = { 0 };
        uint8_t *more;

        if (bytes > most - rows->bytes || charge_take(&charge, view->views->accounts, view->uid, ACCOUNT_OWN,
                                                      rows->bytes + bytes, NULL) != 0)
                return;
        more = realloc(rows->data, rows->bytes + bytes);
        if (more == NULL) {
                charge_release(&charge);
                return;
        }
        memcpy(more + rows->bytes, frames, bytes);
        charge_release(&rows->charge);
        *rows = (struct rows){ .data = more, .bytes = rows->bytes + bytes, .charge = charge };
}

static void view_free(struct view *view) {
        list_remove(&view->link);
        rows_clear(&view->rows);
        rows_clear(&view->coming);
        charge_release(&view->charge);
        free(view);
}

static uint64_t view_due(const struct view *view) {
        if (view->id != 0)
                return view->asked + VIEWS_WAIT;
        return view->what == VIEW_OTHERS ? view->asked + VIEW_KEPT : view->of + PART_KEPT;
}

static void views_arm(struct views *views) {
        uint64_t soonest = UINT64_MAX;
        struct view *view;

        list_for_each(view, &views->list, link)
                if (view_due(view) < soonest)
                        soonest = view_due(view);
        if (soonest == UINT64_MAX)
                loop_timer_disarm(views->timer);
        else
                loop_timer_arm_at(views->timer, soonest);
}

static void view_complete(struct view *view, bool unanswered) {
        struct views *views = view->views;

        rows_clear(&view->rows);
        view->rows = view->coming;
        view->coming = (struct rows){ 0 };
        view->unanswered = unanswered;
        view->of = view->asked;
        view->id = 0;
        views_arm(views);
        if (views->complete != NULL)
                views->complete(views->complete_data);
}

static void views_on_time(void *data) {
        struct views *views = data;
        uint64_t now = clock_now();
        struct view *view, *spare;

        list_for_each_safe(view, spare, &views->list, link)
                if (now < view_due(view))
                        continue;
                else if (view->id != 0)
                        view_complete(view, true);
                else
                        view_free(view);
        views_arm(views);
}

int views_new(struct loop *loop, struct users *accounts, struct views **ret) {
        struct views *views = calloc(1, sizeof(*views));

        if (views == NULL)
                return -ENOMEM;
        views->accounts = accounts;
        list_init(&views->list);
        int r = codec_init(&views->codec);
        if (r == 0)
                r = loop_timer_new(loop, views_on_time, views, &views->timer);
        if (r < 0) {
                views_free(views);
                return r;
        }
        *ret = views;
        return 0;
}

struct views *views_free(struct views *views) {
        if (views == NULL)
                return NULL;
        while (!list_empty(&views->list))
                view_free(list_entry(views->list.next, struct view, link));
        loop_timer_free(views->timer);
        codec_deinit(&views->codec);
        free(views);
        return NULL;
}

void views_on_complete(struct views *views, void (*complete)(void *data), void *data) {
        views->complete = complete;
        views->complete_data = data;
}

void views_set_trouble(struct views *views, void (*trouble)(void *data, char *text, size_t size),
                       void *data) {
        views->trouble = trouble;
        views->trouble_data = data;
}

struct view *views_find(const struct views *views, const struct hub_job *job, enum view_of what,
                        uint32_t node) {
        struct view *view;

        list_for_each(view, &views->list, link)
                if (view->what == what && view->node == node && view->uid == job->uid &&
                    view->incarnation == job->incarnation && strcmp(view->name, job->name) == 0)
                        return view;
        return NULL;
}

struct view *views_get(struct views *views, const struct hub_job *job, enum view_of what, uint32_t node) {
        struct view *view = views_find(views, job, what, node);
        size_t bytes = sizeof(*view) + strlen(job->name) + 1;
        struct charge charge = { 0 };

        if (view != NULL)
                return view;
        if (charge_take(&charge, views->accounts, job->uid, ACCOUNT_OWN, bytes, NULL) != 0)
                return NULL;
        view = calloc(1, bytes);
        if (view == NULL) {
                charge_release(&charge);
                return NULL;
        }
        view->charge = charge;
        view->views = views;
        view->what = what;
        view->node = node;
        view->uid = job->uid;
        view->incarnation = job->incarnation;
        strcpy(view->name, job->name);
        list_append(&views->list, &view->link);
        return view;
}

bool view_is_of(const struct view *view, uint64_t after) {
        return view->of != 0 && view->of >= after;
}

bool view_is_coming(const struct view *view) {
        return view->id != 0;
}

uint32_t view_begin(struct view *view) {
        struct views *views = view->views;

        rows_clear(&view->coming);
        view->asked = clock_now();
        if (++views->last == 0)
                views->last++;
        view->id = views->last;
        views_arm(views);
        return view->id;
}

/* The answer may have come already. */
void view_asked(struct view *view, uint32_t id, bool asked) {
        if (!asked && view->id == id)
                view_complete(view, true);
}

/* An answer that comes too late belongs to no question. */
void view_take(struct view *view, const void *frames, size_t bytes) {
        struct views *views = view->views;
        struct frame_header head;
        size_t at = 0;

        if (view->id == 0 || views_decode(views, frames, bytes, &at, &head) == NULL)
                return;
        bool last = head.type == WIRE__MESSAGE_TYPE__STATUS_END || head.type == WIRE__MESSAGE_TYPE__TRACE_END;
        if (last && head.request != view->id) {
                rows_clear(&view->coming);
                return;
        }
        view_add(view, &view->coming, frames, bytes);
        if (last)
                view_complete(view, false);
}

void view_keep(struct view *view, const void *frames, size_t bytes) {
        bool first = view->of == 0;

        rows_clear(&view->rows);
        view_add(view, &view->rows, frames, bytes);
        view->of = clock_now();
        if (first)
                views_arm(view->views);
}

const void *view_rows(const struct view *view, size_t *ret_bytes) {
        *ret_bytes = view->rows.bytes;
        return view->rows.data;
}

const ProtobufCMessage *views_decode(struct views *views, const void *frames, size_t bytes, size_t *at,
                                     struct frame_header *ret) {
        const uint8_t *frame = (const uint8_t *)frames + *at;
        size_t left = bytes - *at;

        if (left < FRAME_HEADER || frame_decode_header(frame, FRAME_PAYLOAD_MAX, ret) != FRAME_OK ||
            ret->length > left - FRAME_HEADER)
                return NULL;
        *at += FRAME_HEADER + ret->length;
        return codec_unpack(&views->codec, ret->type, frame + FRAME_HEADER, ret->length, NULL);
}

/* A malformed row ends the rows: what follows it is not trusted. */
const ProtobufCMessage *view_next(struct view *view, size_t *at, uint16_t *ret_type) {
        struct frame_header header;
        const ProtobufCMessage *row =
                views_decode(view->views, view->rows.data, view->rows.bytes, at, &header);

        *ret_type = row != NULL ? header.type : 0;
        return row;
}

static bool wait_is_meant(const struct job_wait *wait, enum wait_kind kind, const Wire__StatusWait *row) {
        if (kind == WAIT_HELPER)
                return row->text != NULL && row->text[0] != '\0';
        if (kind != wait->purpose || row->host == NULL || row->host[0] == '\0' || !row->has_rank ||
            !row->has_pid)
                return false;
        return kind == WAIT_OPERATION ||
               (row->plan == wait->plan && (kind == WAIT_PLAN || row->step == wait->step));
}

/* As the row says, with strings that outlive it. */
static struct job_wait wait_from(struct blamed *blamed, enum wait_kind kind, const Wire__StatusWait *row) {
        snprintf(blamed->host, sizeof(blamed->host), "%s", row->host != NULL ? row->host : "");
        snprintf(blamed->state, sizeof(blamed->state), "%s",
                 row->process_state != NULL ? row->process_state : "");
        snprintf(blamed->parameter, sizeof(blamed->parameter), "%s",
                 row->parameter != NULL ? row->parameter : "");
        snprintf(blamed->text, sizeof(blamed->text), "%s", row->text != NULL ? row->text : "");
        return (struct job_wait){ .kind = kind,
                                  .rank = row->has_rank ? row->rank : UINT32_MAX,
                                  .pid = row->pid,
                                  .plan = row->plan,
                                  .bucket = row->has_bucket ? row->bucket : UINT32_MAX,
                                  .process_state = blamed->state,
                                  .parameter = blamed->parameter,
                                  .host = blamed->host,
                                  .text = blamed->text,
                                  .since = wait_row_since(row) };
}

/* The waits in other nodes' rows that `wait` is for; NULL: the nodes that say nothing. */
static unsigned view_find_waits(struct view *view, const struct job_wait *wait, struct job_wait *waits,
                                unsigned max) {
        const ProtobufCMessage *message;
        enum wait_kind kind;
        unsigned n = 0;
        uint16_t type;
        size_t at = 0;

        while (n < max && n < VIEWS_NAMED && (message = view_next(view, &at, &type)) != NULL) {
                const Wire__StatusWait *row = CAST(Wire__StatusWait, message);

                if (type != WIRE__MESSAGE_TYPE__STATUS_WAIT || !wait_row_kind(row->what, &kind) ||
                    !(wait != NULL ? wait_is_meant(wait, kind, row) : kind == WAIT_SILENT))
                        continue;
                waits[n] = wait_from(&view->views->blamed[n], kind, row);
                if (wait != NULL)
                        wait_take_purpose(&waits[n], wait);
                n++;
        }
        return n;
}

unsigned view_silent(struct view *view, struct job_wait *waits, unsigned max) {
        return view_find_waits(view, NULL, waits, max);
}

bool view_trouble(const struct view *view, struct job_wait *ret) {
        struct views *views = view->views;
        Wire__StatusWait row = WIRE__STATUS_WAIT__INIT;
        char text[WAIT_TEXT];

        if (!view->unanswered || views->trouble == NULL)
                return false;
        views->trouble(views->trouble_data, text, sizeof(text));
        row.text = text;
        *ret = wait_from(&views->blamed[0], WAIT_SILENT, &row);
        ret->since = view->of;
        return true;
}

unsigned view_blame(struct view *view, const struct job_wait *wait, struct job_wait *waits, unsigned max) {
        unsigned n = view != NULL ? view_find_waits(view, wait, waits, max) : 0;

        if (view == NULL || n > 0)
                return n;
        n = view_silent(view, waits, max);
        if (n == 0 && max > 0 && view_trouble(view, waits))
                n = 1;
        for (unsigned i = 0; i < n; i++)
                wait_take_purpose(&waits[i], wait);
        return n;
}

static bool view_is_spare(const Wire__StatusMember *row) {
        return row->state != NULL && strcmp(row->state, "spare") == 0;
}

/* Only the coordinator's daemon sends a row of a job that has no name: it has the hosts without a node. */
void view_missing(struct view *view, unsigned here, uint32_t world, char *text, size_t size) {
        const ProtobufCMessage *message;
        char empty[512] = "";
        uint16_t type;
        size_t at = 0;

        while ((message = view_next(view, &at, &type)) != NULL) {
                const Wire__StatusJob *row = CAST(Wire__StatusJob, message);

                if (type == WIRE__MESSAGE_TYPE__STATUS_MEMBER)
                        here += !view_is_spare(CAST(Wire__StatusMember, message));
                else if (type == WIRE__MESSAGE_TYPE__STATUS_JOB && row->name == NULL && row->text != NULL)
                        snprintf(empty, sizeof(empty), "; %s", row->text);
        }
        snprintf(text, size, "%u of %u members%s", here, world, empty);
}
