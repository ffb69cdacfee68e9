/* SPDX-License-Identifier: Apache-2.0 */
/* The rig of one membership: who asks for a place in it, who goes, and the time. */
#include <stdio.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "proto/names.h"
#include "rendezvous/machine/membership.h"
#include "script.h"
#include "words.h"

#define LINE 1024u

static struct seat room[LIMIT_LOCAL + 1];
static struct membership m;
static struct membership_request wish; /* as a member asks that says nothing else */
static struct refusal refusal;
static uint64_t now;
static char before[LINE]; /* how it stood after the last command */

/* ---- how it stands ---- */

static void add(char *text, const char *format, ...) {
        size_t used = strlen(text);
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(text + used, LINE - used, format, arguments);
        va_end(arguments);
}

/* A member, and as far as it is not what everybody expects the id of its place, its local rank, its host. */
static void add_place(char *text, const struct seat *seat, uint32_t rank) {
        if (seat->state == SEAT_LOST || seat->state == SEAT_GONE) {
                add(text, seat->state == SEAT_LOST ? " -" : " x");
                return;
        }
        add(text, " %s%llu", seat->state == SEAT_TAKEN ? "+" : "", (unsigned long long)seat->request.member);
        if (seat->id != 0 && seat->id != rank + 1)
                add(text, "#%llu", (unsigned long long)seat->id);
        if (m.state != MEMBERSHIP_FORMING && seat->slot != rank)
                add(text, "/%d", (int)seat->slot);
        if (seat->behind)
                add(text, "*");
}

static void add_others(char *text) {
        static const char *const names[N_SEAT_STATES] = { [SEAT_ASKS] = "asks",
                                                          [SEAT_CLAIMS] = "claims",
                                                          [SEAT_REFUSED] = "refused",
                                                          [SEAT_FENCED] = "fenced" };

        for (uint32_t i = 0; i < m.n_waiting; i++)
                add(text, "%s %llu", i == 0 ? ", waiting" : "",
                    (unsigned long long)m.seat[m.n + i].request.member);
        for (uint32_t i = m.n + m.n_waiting; i < membership_all(&m); i++) {
                if (i == m.n + m.n_waiting || m.seat[i].state != m.seat[i - 1].state)
                        add(text, ", %s", names[m.seat[i].state]);
                add(text, " %llu", (unsigned long long)m.seat[i].request.member);
        }
}

static void describe(char *text) {
        static const char *const states[] = { "forming", "formed", "replacing", "broken" };

        text[0] = '\0';
        add(text, "%s", states[m.state]);
        if (m.generation > 0)
                add(text, " %u", m.generation);
        add(text, ":");
        for (uint32_t i = 0; i < m.n && m.n <= 8; i++) {
                add_place(text, &m.seat[i], i);
                if (m.state == MEMBERSHIP_FORMED && (m.seat[i].rank != i || m.seat[i].state != SEAT_HELD))
                        add(text, "?");
        }
        if (m.n > 8)
                add(text, " %u places", m.n);
        if (m.n_waiting + m.n_others <= 8)
                add_others(text);
        else
                add(text, ", %u wait, %u others", m.n_waiting, m.n_others);
        if (m.busy && m.state == MEMBERSHIP_REPLACING)
                add(text, ", busy");
        if (membership_deadline(&m) != UINT64_MAX)
                add(text, ", due %llu", (unsigned long long)membership_deadline(&m));
}

static void membership_after(struct script *script) {
        static struct membership_loss loss;
        char text[LINE];

        describe(text);
        if (strcmp(text, before) != 0)
                script_say(script, "%s", text);
        strcpy(before, text);
        if (m.loss.cause != 0 && memcmp(&m.loss, &loss, sizeof(loss)) != 0)
                script_say(script, "lost rank %u, pid %d: %s", m.loss.rank, m.loss.pid,
                           cause_name(m.loss.cause));
        loss = m.loss;
}

static void membership_begin(void) {
        m = (struct membership){ .seat = room, .most = LIMIT_LOCAL };
        wish = (struct membership_request){ .min_world = 1, .max_world = 1, .grace = 1000 };
        now = 0;
        membership_init(&m, "j", 0);
        describe(before);
}

static void membership_over(void) {}

/* at=T: the time, from now on */
static void membership_before(struct script *script) {
        now = script_option(script, "at", now);
}

/* ---- commands ---- */

/* membership [incarnation=N] [most=N]: another one, which is empty */
static void do_membership(struct script *script) {
        m = (struct membership){ .seat = room, .most = (uint32_t)script_option(script, "most", LIMIT_LOCAL) };
        membership_init(&m, "j", script_option(script, "incarnation", 0));
        describe(before);
}

/* wish OPTION...: what members ask for that say nothing else */
static void do_wish(struct script *script) {
        wish = words_request(script, &wish, wish.member);
}

static void say_refusal(struct script *script, int code) {
        if (code != 0 && refusal.has_culprit)
                script_say(script, "%s of rank %u, pid %d", code_name((unsigned)code), refusal.rank,
                           refusal.pid);
        else if (code != 0)
                script_say(script, "%s", code_name((unsigned)code));
}

/* join MEMBER... [OPTION...] */
static void do_join(struct script *script) {
        struct membership_request request = words_request(script, &wish, 0);

        while (script_has_word(script)) {
                request.member = script_number(script);
                request.pid = (int32_t)request.member + 100;
                say_refusal(script, membership_join(&m, &request, now, &refusal));
                if (m.fenced != 0)
                        script_say(script, "%llu fences %llu", (unsigned long long)request.member,
                                   (unsigned long long)m.fenced);
        }
}

static void do_tick(struct script *script);

/* form MEMBER... [OPTION...]: they wish for that, as all others do then, and come, and the time passes */
static void do_form(struct script *script) {
        bool ranks = script_flag(script, "ranks");

        wish = words_request(script, &wish, 0);
        for (uint32_t rank = 0; script_has_word(script); rank++) {
                struct membership_request request = wish;

                request.member = script_number(script);
                request.pid = (int32_t)request.member + 100;
                request.has_rank = ranks;
                request.rank = rank;
                say_refusal(script, membership_join(&m, &request, now, &refusal));
        }
        do_tick(script);
}

/* tick [T] [idle] [boundary]: time passes, once. `idle`: nothing of the old generation is held any more;
 * `boundary`: no step is open. */
static void do_tick(struct script *script) {
        uint64_t gone = 0;

        if (script_flag(script, "idle"))
                m.busy = false;
        m.boundary = script_flag(script, "boundary");
        if (script_has_word(script))
                now = script_number(script);
        switch (membership_tick(&m, now, &gone, &refusal)) {
        case MEMBERSHIP_NOTHING: script_say(script, "nothing"); break;
        case MEMBERSHIP_HAS_FORMED: m.loss = (struct membership_loss){ 0 }; break; /* as the caller does */
        case MEMBERSHIP_EXPIRED:
                script_say(script, "%llu: %s", (unsigned long long)gone, code_name(refusal.code));
                break;
        case MEMBERSHIP_HAS_BROKEN: script_say(script, "it breaks"); break;
        }
}

/* lose MEMBER [CAUSE] */
static void do_lose(struct script *script) {
        uint64_t member = script_number(script);

        if (membership_remove(&m, member, words_cause(script), now))
                script_say(script, "ends");
}

/* end CAUSE: of the whole job */
static void do_end(struct script *script) {
        if (membership_end(&m, words_cause(script)))
                script_say(script, "it ends");
}

/* idle: nothing of the old generation is held any more */
static void do_idle(struct script *script) {
        m.busy = false;
}

/* claim MEMBER rank=N [id=N] [OPTION...]: reported as a member of a generation */
static void do_claim(struct script *script) {
        uint64_t member = script_number(script);
        uint32_t rank = (uint32_t)script_option(script, "rank", 0);
        uint64_t id = script_option(script, "id", 0);
        struct membership_request request = words_request(script, &wish, member);
        struct seat *seat = membership_note(&m, &request);

        seat->rank = rank;
        seat->id = id;
        seat_set_state(seat, SEAT_CLAIMS);
}

/* note MEMBER...: reported */
static void do_note(struct script *script) {
        while (script_has_word(script)) {
                struct membership_request request = { .member = script_number(script) };

                if (membership_note(&m, &request) == NULL)
                        script_say(script, "no room");
        }
}

/* behind MEMBER: it has not taken the state yet */
static void do_behind(struct script *script) {
        membership_find(&m, script_number(script))->behind = true;
}

/* restore GENERATION world=N left=RANKS: a bit for each that was left */
static void do_restore(struct script *script) {
        uint32_t generation = (uint32_t)script_number(script);
        uint32_t world = (uint32_t)script_option(script, "world", 0);
        uint64_t left = script_option(script, "left", 0);

        membership_restore(&m, generation, world, (struct nodeset){ &left, 1 }, now);
}

/* fitting: how many of those that wait a larger world has room for */
static void do_fitting(struct script *script) {
        script_say(script, "%u", membership_fitting(&m));
}

/* why: the text of the last refusal */
static void do_why(struct script *script) {
        script_say(script, "%s", refusal.text);
}

static const struct script_command commands[] = {
        { "behind", do_behind },   { "claim", do_claim },     { "end", do_end },
        { "fitting", do_fitting }, { "form", do_form },       { "idle", do_idle },
        { "join", do_join },       { "lose", do_lose },       { "membership", do_membership },
        { "note", do_note },       { "restore", do_restore }, { "tick", do_tick },
        { "why", do_why },         { "wish", do_wish },       { NULL, NULL },
};

const struct rig rig = { .commands = commands,
                         .begin = membership_begin,
                         .before = membership_before,
                         .after = membership_after,
                         .end = membership_over };
