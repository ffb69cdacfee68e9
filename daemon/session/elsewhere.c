/* SPDX-License-Identifier: Apache-2.0 */
#include "session/elsewhere.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define VIEW_KEPT (60 * USEC_PER_SEC) /* after the last question */
#define VIEW_MOST (256u << 10)        /* bytes of rows */

/* Frames, one after the other. */
struct rows {
        uint8_t *data;
        size_t bytes;
        struct charge charge;
};

struct view {
        struct list link;
        struct elsewhere *elsewhere;
        uid_t uid;
        uint64_t incarnation;
        uint32_t id;    /* of the open question; 0: there is none */
        uint64_t asked; /* when; 0: never */
        uint64_t of;    /* when the question was asked that these have answered: */
        struct rows rows, coming;
        struct hub_told last;
        bool unanswered; /* by the coordinator */
        char name[];
};

/* The member that a wait is for, as text that outlives the row. */
struct blamed {
        char host[HUB_HOST + 1], state[16], parameter[LIMIT_NAME + 1], text[WAIT_TEXT];
};

struct elsewhere {
        struct users *accounts;
        struct list views;
        struct loop_timer *timer;
        uint32_t last; /* id */
        struct codec codec;
        struct blamed blamed[ELSEWHERE_NAMED];
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
static void rows_add(struct rows *rows, struct users *accounts, uid_t uid, const void *data, size_t bytes) {
        struct charge charge = { 0 };
        uint8_t *more;

        if (bytes > VIEW_MOST - rows->bytes ||
            charge_take(&charge, accounts, uid, ACCOUNT_OWN, rows->bytes + bytes, NULL) != 0)
                return;
        more = realloc(rows->data, rows->bytes + bytes);
        if (more == NULL) {
                charge_release(&charge);
                return;
        }
        memcpy(more + rows->bytes, data, bytes);
        charge_release(&rows->charge);
        *rows = (struct rows){ .data = more, .bytes = rows->bytes + bytes, .charge = charge };
}

static void view_free(struct view *view) {
        list_remove(&view->link);
        rows_clear(&view->rows);
        rows_clear(&view->coming);
        free(view);
}

static void elsewhere_arm(struct elsewhere *elsewhere) {
        uint64_t soonest = UINT64_MAX, now = clock_now();
        struct view *view;

        list_for_each(view, &elsewhere->views, link) {
                uint64_t due = view->id != 0 ? view->asked + ELSEWHERE_WAIT : view->asked + VIEW_KEPT;

                if (due < soonest)
                        soonest = due;
        }
        if (soonest == UINT64_MAX)
                loop_timer_disarm(elsewhere->timer);
        else
                loop_timer_arm(elsewhere->timer, soonest > now ? soonest - now : 0);
}

static void view_complete(struct view *view, const struct hub_told *last, bool unanswered) {
        struct elsewhere *elsewhere = view->elsewhere;

        rows_clear(&view->rows);
        view->rows = view->coming;
        view->coming = (struct rows){ 0 };
        view->last = *last;
        view->unanswered = unanswered;
        view->of = view->asked;
        view->id = 0;
        elsewhere_arm(elsewhere);
        if (elsewhere->complete != NULL)
                elsewhere->complete(elsewhere->complete_data);
}

static void elsewhere_on_time(void *data) {
        struct elsewhere *elsewhere = data;
        uint64_t now = clock_now();
        struct view *view, *spare;

        list_for_each_safe(view, spare, &elsewhere->views, link)
                if (view->id != 0 && now >= view->asked + ELSEWHERE_WAIT)
                        view_complete(view, &(struct hub_told){ 0 }, true);
                else if (view->id == 0 && now >= view->asked + VIEW_KEPT)
                        view_free(view);
        elsewhere_arm(elsewhere);
}

int elsewhere_new(struct loop *loop, struct users *accounts, struct elsewhere **ret) {
        struct elsewhere *elsewhere = calloc(1, sizeof(*elsewhere));

        if (elsewhere == NULL)
                return -ENOMEM;
        elsewhere->accounts = accounts;
        list_init(&elsewhere->views);
        int r = codec_init(&elsewhere->codec);
        if (r == 0)
                r = loop_timer_new(loop, elsewhere_on_time, elsewhere, &elsewhere->timer);
        if (r < 0) {
                elsewhere_free(elsewhere);
                return r;
        }
        *ret = elsewhere;
        return 0;
}

struct elsewhere *elsewhere_free(struct elsewhere *elsewhere) {
        if (elsewhere == NULL)
                return NULL;
        while (!list_empty(&elsewhere->views))
                view_free(list_entry(elsewhere->views.next, struct view, link));
        loop_timer_free(elsewhere->timer);
        codec_deinit(&elsewhere->codec);
        free(elsewhere);
        return NULL;
}

void elsewhere_on_complete(struct elsewhere *elsewhere, void (*complete)(void *data), void *data) {
        elsewhere->complete = complete;
        elsewhere->complete_data = data;
}

void elsewhere_set_trouble(struct elsewhere *elsewhere, void (*trouble)(void *data, char *text, size_t size),
                           void *data) {
        elsewhere->trouble = trouble;
        elsewhere->trouble_data = data;
}

struct view *elsewhere_find(const struct elsewhere *elsewhere, uid_t uid, const char *name,
                            uint64_t incarnation) {
        struct view *view;

        list_for_each(view, &elsewhere->views, link)
                if (view->uid == uid && view->incarnation == incarnation && strcmp(view->name, name) == 0)
                        return view;
        return NULL;
}

struct view *elsewhere_get(struct elsewhere *elsewhere, uid_t uid, const char *name, uint64_t incarnation) {
        struct view *view = elsewhere_find(elsewhere, uid, name, incarnation);

        if (view != NULL)
                return view;
        view = calloc(1, sizeof(*view) + strlen(name) + 1);
        if (view == NULL)
                return NULL;
        view->elsewhere = elsewhere;
        view->uid = uid;
        view->incarnation = incarnation;
        strcpy(view->name, name);
        list_append(&elsewhere->views, &view->link);
        return view;
}

bool view_is_of(const struct view *view, uint64_t after) {
        return view->of != 0 && view->of >= after;
}

bool view_is_coming(const struct view *view) {
        return view->id != 0;
}

uint32_t elsewhere_number(struct elsewhere *elsewhere) {
        if (++elsewhere->last == 0)
                elsewhere->last++;
        return elsewhere->last;
}

uint32_t view_begin(struct view *view) {
        struct elsewhere *elsewhere = view->elsewhere;

        rows_clear(&view->coming);
        view->asked = clock_now();
        view->id = elsewhere_number(elsewhere);
        elsewhere_arm(elsewhere);
        return view->id;
}

/* The answer may have come already. */
void view_asked(struct view *view, uint32_t id, bool asked) {
        if (!asked && view->id == id)
                view_complete(view, &(struct hub_told){ 0 }, true);
}

void elsewhere_told(struct elsewhere *elsewhere, const struct hub_told *told) {
        struct view *view;

        list_for_each(view, &elsewhere->views, link) {
                if (view->id == 0 || view->id != told->id)
                        continue;
                if (told->bytes > 0)
                        rows_add(&view->coming, elsewhere->accounts, view->uid, told->rows, told->bytes);
                if (told->last)
                        view_complete(view, told, false);
                return;
        }
}

const ProtobufCMessage *elsewhere_decode(struct elsewhere *elsewhere, const void *frames, size_t bytes,
                                         size_t *at, uint16_t *ret_type) {
        const uint8_t *frame = (const uint8_t *)frames + *at;
        size_t left = bytes - *at;
        struct frame_header header;

        if (left < FRAME_HEADER || frame_decode_header(frame, FRAME_PAYLOAD_MAX, &header) != FRAME_OK ||
            header.length > left - FRAME_HEADER)
                return NULL;
        *at += FRAME_HEADER + header.length;
        *ret_type = header.type;
        return codec_unpack(&elsewhere->codec, header.type, frame + FRAME_HEADER, header.length, NULL);
}

/* A malformed row ends the rows: what follows it is not trusted. */
const ProtobufCMessage *view_next(struct view *view, size_t *at, uint16_t *ret_type) {
        return elsewhere_decode(view->elsewhere, view->rows.data, view->rows.bytes, at, ret_type);
}

static bool wait_is_meant(const struct job_wait *wait, const Wire__StatusWait *row) {
        const char *what = row->what != NULL ? row->what : "";

        if (row->host == NULL || row->host[0] == '\0' || !row->has_rank || !row->has_pid)
                return false;
        switch (wait->purpose) {
        case WAIT_STEP:
                return strcmp(what, "step") == 0 && row->plan == wait->plan && row->step == wait->step;
        case WAIT_PLAN: return strcmp(what, "plan") == 0 && row->plan == wait->plan;
        default: return strcmp(what, "operation") == 0;
        }
}

static struct job_wait wait_from(struct blamed *blamed, const struct job_wait *wait,
                                 const Wire__StatusWait *row) {
        snprintf(blamed->host, sizeof(blamed->host), "%s", row->host);
        snprintf(blamed->state, sizeof(blamed->state), "%s",
                 row->process_state != NULL ? row->process_state : "");
        snprintf(blamed->parameter, sizeof(blamed->parameter), "%s",
                 row->parameter != NULL ? row->parameter : "");
        return (struct job_wait){ .kind = wait->purpose,
                                  .rank = row->rank,
                                  .pid = row->pid,
                                  .plan = row->plan,
                                  .bucket = row->has_bucket ? row->bucket : UINT32_MAX,
                                  .process_state = blamed->state,
                                  .parameter = blamed->parameter,
                                  .host = blamed->host,
                                  .text = "",
                                  .step = wait->step,
                                  .sequence = wait->sequence,
                                  .since = wait->since };
}

static struct job_wait wait_silent(const struct blamed *blamed, uint64_t since) {
        return (struct job_wait){ .kind = WAIT_SILENT,
                                  .rank = UINT32_MAX,
                                  .bucket = UINT32_MAX,
                                  .process_state = "",
                                  .parameter = "",
                                  .host = blamed->host,
                                  .text = blamed->text,
                                  .since = since };
}

/* The engine's process on another node. */
static struct job_wait wait_helper(struct blamed *blamed, const struct job_wait *wait,
                                   const Wire__StatusWait *row) {
        snprintf(blamed->host, sizeof(blamed->host), "%s", row->host != NULL ? row->host : "");
        snprintf(blamed->state, sizeof(blamed->state), "%s",
                 row->process_state != NULL ? row->process_state : "");
        snprintf(blamed->text, sizeof(blamed->text), "%s", row->text);
        struct job_wait helper = wait_silent(blamed, 0);
        helper.kind = WAIT_HELPER;
        helper.process_state = blamed->state;
        wait_take_purpose(&helper, wait);
        return helper;
}

static bool wait_is_helper(const Wire__StatusWait *row) {
        return row->what != NULL && strcmp(row->what, "helper") == 0 && row->text != NULL &&
               row->text[0] != '\0';
}

/* The next one, from *at on, that the wait is for. */
static bool view_next_meant(struct view *view, const struct job_wait *wait, size_t *at, struct blamed *blamed,
                            struct job_wait *ret) {
        const ProtobufCMessage *message;
        uint16_t type;

        while ((message = view_next(view, at, &type)) != NULL) {
                const Wire__StatusWait *row = (const Wire__StatusWait *)(const void *)message;

                if (type != WIRE__MESSAGE_TYPE__STATUS_WAIT)
                        continue;
                bool helper = wait_is_helper(row);
                if (!helper && !wait_is_meant(wait, row))
                        continue;
                *ret = helper ? wait_helper(blamed, wait, row) : wait_from(blamed, wait, row);
                return true;
        }
        return false;
}

unsigned view_blame(struct view *view, const struct job_wait *wait, struct job_wait *waits, unsigned max) {
        size_t at = 0;
        unsigned n = 0;

        if (view == NULL)
                return 0;
        while (n < max && n < ELSEWHERE_NAMED &&
               view_next_meant(view, wait, &at, &view->elsewhere->blamed[n], &waits[n]))
                n++;
        if (n > 0)
                return n;
        n = view_silent(view, true, waits, max);
        for (unsigned i = 0; i < n; i++)
                wait_take_purpose(&waits[i], wait);
        return n;
}

unsigned view_silent(struct view *view, bool coordinator, struct job_wait *waits, unsigned max) {
        struct elsewhere *elsewhere = view->elsewhere;
        unsigned n = 0;

        for (uint32_t i = 0; i < view->last.n_hosts && n < max && n < ELSEWHERE_NAMED; i++) {
                const struct hub_host *host = &view->last.host[i];
                struct blamed *blamed = &elsewhere->blamed[n];
                uint64_t silent = host->since + (clock_now() - view->of);

                if (host->how != HUB_SILENT && host->how != HUB_AWAY)
                        continue;
                snprintf(blamed->host, sizeof(blamed->host), "%s", host->name);
                snprintf(blamed->text, sizeof(blamed->text),
                         host->how == HUB_SILENT ? "the node on host %s: no report for %.1f s"
                                                 : "the node on host %s: not connected for %.1f s",
                         host->name, (double)silent / 1e6);
                waits[n++] = wait_silent(blamed, clock_now() - silent);
        }
        if (coordinator && n == 0 && max > 0 && view->unanswered && elsewhere->trouble != NULL) {
                elsewhere->blamed[0].host[0] = '\0';
                elsewhere->trouble(elsewhere->trouble_data, elsewhere->blamed[0].text,
                                   sizeof(elsewhere->blamed[0].text));
                waits[n++] = wait_silent(&elsewhere->blamed[0], view->of);
        }
        return n;
}

void view_empty(const struct view *view, char *text, size_t size) {
        uint32_t n = 0, named = 0;
        size_t used = 0;

        text[0] = '\0';
        for (uint32_t i = 0; i < view->last.n_hosts; i++)
                n += view->last.host[i].how == HUB_EMPTY;
        for (uint32_t i = 0; i < view->last.n_hosts && used < size; i++) {
                const struct hub_host *host = &view->last.host[i];

                if (host->how != HUB_EMPTY)
                        continue;
                const char *before = named == 0                               ? ""
                                     : named + 1 == n && view->last.more == 0 ? " and "
                                                                              : ", ";
                named++;
                used += (size_t)snprintf(text + used, size - used, "%shost %s", before, host->name);
        }
        if (view->last.more > 0 && used < size)
                used += (size_t)snprintf(text + used, size - used, " and %u more", view->last.more);
        if (n > 0 && used < size)
                snprintf(text + used, size - used, n + view->last.more == 1 ? " has none" : " have none");
}
