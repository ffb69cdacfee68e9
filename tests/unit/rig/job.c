/* SPDX-License-Identifier: Apache-2.0 */
/* The rig of a job on the job layer: it goes on after losses with 2 to 3 members, or has as many as from the
 * start. The backend's tasks end when the script says so. Each command says what members hear, in that
 * order. */
#include "tests/unit/elastic_fixture.h"
#include "tests/unit/former.h"

#include "job/restart/takeover.h"
#include "job/watch/stall.h"
#include "proto/names.h"
#include "script.h"
#include "words.h"

/* For the sanitizers: what cannot be allocated is NULL, as without them. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void);

const char *__asan_default_options(void) {
        return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void) {
        return "allocator_may_return_null=1";
}

static void *state;
static uint32_t buckets;      /* of each plan */
static const char *last_name; /* of its last parameter; all others are "a" */
static bool is_left;          /* what is open is left to the next daemon */

static void rig_begin(void) {
        setup(&state);
        buckets = 1;
        last_name = "a";
        is_left = false;
}

static void rig_end(void) {
        if (is_left)
                close_jobs(fixture);
        else
                teardown(&state);
}

static void rig_before(struct script *script) {}

static void rig_after(struct script *script) {
        char *rest, *word = strtok_r(heard, ";", &rest);

        for (; word != NULL; word = strtok_r(NULL, ";", &rest))
                script_say(script, "%s", word);
        heard[0] = '\0';
}

static void say_code(struct script *script, int code) {
        if (code != 0 && fixture->refusal.has_culprit)
                script_say(script, "%s of rank %u", code_name((unsigned)code), fixture->refusal.rank);
        else if (code != 0)
                script_say(script, "%s", code_name((unsigned)code));
}

/* A text, in which # stands for the pid that all members here have. */
static void say_text(struct script *script, const char *text) {
        char pid[16], said[1024] = "";
        const char *at;

        snprintf(pid, sizeof(pid), "%d", (int)getpid());
        for (; (at = strstr(text, pid)) != NULL; text = at + strlen(pid))
                snprintf(said + strlen(said), sizeof(said) - strlen(said), "%.*s#", (int)(at - text), text);
        script_say(script, "%s%s", said, text);
}

/* RANK, or oldest or newest: the member that came first, or last */
static struct member *member_named(struct script *script) {
        if (script_flag(script, "oldest"))
                return list_entry(fixture->members.next, struct member, owner_link);
        return script_flag(script, "newest") ? newest(fixture) : fixture->member[script_number(script)];
}

static struct job *job_of(void) {
        return list_entry(fixture->members.next, struct member, owner_link)->job;
}

/* RANKS are one, or *. Returns the first, and the one after the last. */
static uint32_t ranks_named(struct script *script, uint32_t *ret_end) {
        uint32_t first;

        if (script_flag(script, "*")) {
                *ret_end = job_of()->world;
                return 0;
        }
        first = (uint32_t)script_number(script);
        *ret_end = first + 1;
        return first;
}

/* join [OPTION...] [times=N]: and the loop runs, except with `alone` */
static void do_join(struct script *script) {
        struct job_join join = elastic(fixture);
        uint64_t times = script_option(script, "times", 1);
        bool alone = script_flag(script, "alone");

        join.membership = words_request(script, &join.membership, 0);
        for (uint64_t i = 0; i < times; i++)
                say_code(script, jobs_join(fixture->jobs, &join, &fixture->refusal));
        if (!alone)
                pass(fixture);
}

/* form [OPTION...]: of two members */
static void do_form(struct script *script) {
        struct job_join join = elastic(fixture);

        join.membership = words_request(script, &join.membership, 0);
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(jobs_join(fixture->jobs, &join, &fixture->refusal), 0);
        pass(fixture);
        assert_heard("joined 0;joined 1;");
}

/* fixed N [grace=US]: of N members, as many from the start as ever, with plans of two buckets */
static void do_fixed(struct script *script) {
        struct job_join join = elastic(fixture);
        uint32_t world = (uint32_t)script_number(script);

        buckets = 2;
        last_name = "b";
        join.membership = (struct membership_request){ .min_world = world,
                                                       .max_world = world,
                                                       .has_rank = true,
                                                       .grace = script_option(script, "grace", 0) };
        for (; join.membership.rank < world; join.membership.rank++)
                assert_int_equal(jobs_join(fixture->jobs, &join, &fixture->refusal), 0);
        pass(fixture);
        heard[0] = '\0';
}

/* bring RANKS PLAN [name=NAME] [half]: half: they do not map it.
 * NAME is the last parameter's. */
static int bring_plan(struct member *member, uint32_t plan, const char *name, bool half) {
        int r = describe_plan(fixture, member, plan, buckets, name);

        if (r == 0)
                r = plan_commit(member, plan, 8, &fixture->refusal);
        return r == 0 && !half ? plan_mapped(member, plan, 9, &fixture->refusal) : r;
}

static void do_bring(struct script *script) {
        uint32_t end, rank = ranks_named(script, &end), plan = (uint32_t)script_number(script);
        const char *name = script_text(script, "name");
        bool half = script_flag(script, "half");

        for (; rank < end; rank++)
                say_code(script,
                         bring_plan(fixture->member[rank], plan, name != NULL ? name : last_name, half));
}

/* agree PLAN...: all bring it */
static void do_agree(struct script *script) {
        while (script_has_word(script)) {
                uint32_t plan = (uint32_t)script_number(script);

                for (uint32_t rank = 0; rank < job_of()->world; rank++)
                        assert_int_equal(bring_plan(fixture->member[rank], plan, last_name, false), 0);
        }
        heard[0] = '\0';
}

/* spoil MEMBER PLAN [empty]: it brings one whose parameter has no name, or that has none */
static void do_spoil(struct script *script) {
        struct member *member = member_named(script);
        struct offer begin = offer_of((uint32_t)script_number(script), 1);
        struct offer_param param = { 0 };
        int r;

        begin.params = script_flag(script, "empty") ? 0 : begin.params;
        r = plan_begin(member, &begin, &fixture->refusal);
        say_code(script, r == 0 ? plan_params(member, begin.plan, &param, 1, &fixture->refusal) : r);
}

/* mapped, drop MEMBER PLAN */
static void do_mapped(struct script *script) {
        struct member *member = member_named(script);

        say_code(script, plan_mapped(member, (uint32_t)script_number(script), 9, &fixture->refusal));
}

static void do_drop(struct script *script) {
        struct member *member = member_named(script);

        say_code(script, plan_drop(member, (uint32_t)script_number(script), 10, &fixture->refusal));
}

/* ready RANKS PLAN STEP [bucket=N] [divisor=N] [generation=N] [absent=BITS [short]]: in that bucket,
 * or in all; short: BITS have no byte */
static void do_ready(struct script *script) {
        uint32_t end, rank = ranks_named(script, &end);
        struct ready message = { .generation = job_of()->generation };
        uint32_t all = (uint32_t)-1, first = (uint32_t)script_option(script, "bucket", all);
        uint64_t absent = script_option(script, "absent", UINT64_MAX);
        uint8_t bits = (uint8_t)absent;

        message.plan = (uint32_t)script_number(script);
        message.step = script_number(script);
        message.divisor = (uint32_t)script_option(script, "divisor", 0);
        message.generation = (uint32_t)script_option(script, "generation", message.generation);
        message.has_absent = absent != UINT64_MAX;
        message.absent = &bits;
        message.absent_bytes = message.has_absent && !script_flag(script, "short");
        for (; rank < end; rank++)
                for (uint32_t b = first != all ? first : 0; b <= (first != all ? first : buckets - 1); b++) {
                        message.bucket = b;
                        say_code(script, step_ready(fixture->member[rank], &message, &fixture->refusal));
                }
}

/* staging RANKS: they get it, and map it */
static void do_staging(struct script *script) {
        for (uint32_t end, rank = ranks_named(script, &end); rank < end; rank++) {
                int r = staging_ask(fixture->member[rank], 11, &fixture->refusal);

                say_code(script, r == 0 ? staging_attach(fixture->member[rank], 12, &fixture->refusal) : r);
        }
}

/* call RANKS SEQUENCE [KIND] [BYTES] [total=BYTES]: barrier, if the script says no kind */
static void do_call(struct script *script) {
        uint32_t end, rank = ranks_named(script, &end);
        struct operation_request call = { .sequence = script_number(script),
                                          .kind = WIRE__OPERATION_KIND__BARRIER,
                                          .dtype = WIRE__DTYPE__F32,
                                          .reduce = WIRE__REDUCE__SUM,
                                          .output = 32768 };
        const char *kind = script_has_word(script) ? script_word(script) : "barrier";

        while (strcmp(operation_name(call.kind), kind) != 0 && strcmp(operation_name(call.kind), "?") != 0)
                call.kind++;
        call.bytes = script_has_word(script) ? script_number(script) : 0;
        call.total = script_option(script, "total", 0);
        for (; rank < end; rank++)
                say_code(script, operation_call(fixture->member[rank], 20 + rank, &call, &fixture->refusal));
}

/* done [one] [withdrawn=N]: the backend's tasks end; input N - 1 of the first has lost its memory */
static void do_done(struct script *script) {
        bool one = script_flag(script, "one");

        if (fixture->fake.n_tasks == 0)
                script_refuse(script, "there is no task");
        fixture->fake.task[0].withdrawn = (unsigned)script_option(script, "withdrawn", 0);
        do
                fake_end_one(&fixture->fake);
        while (!one && fixture->fake.n_tasks > 0);
}

/* backend [submit=ERRNO] [arena=ERRNO] [room=BYTES] [untouched] [nowhere] [inline]: from now on submit() and
 * new() fail with that, and a task needs so much room; arenas are found untouched; no search finds anything;
 * tasks end at once. An option that is missing is as ever. */
static void do_backend(struct script *script) {
        struct fake_backend *fake = &fixture->fake;

        fake->submit_error = -(int)script_option(script, "submit", 0);
        fake->arena_error = -(int)script_option(script, "arena", 0);
        fake->room = script_option(script, "room", 0);
        fake->refuse_attach = script_flag(script, "untouched");
        fake->found = script_flag(script, "nowhere") ? BACKEND_NOWHERE : 0;
        fake->inline_results = script_flag(script, "inline");
}

/* counts INPUT N of what is not finite, of that input, as the backend finds it from now on */
static void do_counts(struct script *script) {
        uint64_t input = script_number(script);

        fixture->fake.counts[input] = script_number(script);
}

/* tasks: how many the backend has, and how many of them are called off */
static void do_tasks(struct script *script) {
        unsigned cancelled = 0;

        for (unsigned i = 0; i < fixture->fake.n_tasks; i++)
                cancelled += fixture->fake.task[i].cancelled;
        script_say(script, "%u", fixture->fake.n_tasks);
        if (cancelled > 0)
                script_say(script, "%u called off", cancelled);
}

/* gone MEMBER [CAUSE], end CAUSE: and then the loop runs, except with `alone`; end: the job */
static void do_gone(struct script *script) {
        bool alone = script_flag(script, "alone");
        struct member *member = member_named(script);

        member_gone(member, words_cause(script));
        if (!alone)
                pass(fixture);
}

static void do_end(struct script *script) {
        job_end(job_of(), words_cause(script));
        pass(fixture);
}

/* evict MEMBER UID. fault MEMBER WORD...: for which its session is about to end */
static void do_evict(struct script *script) {
        struct member *member = member_named(script);

        member_evict(member, (uid_t)script_number(script));
}

static void do_fault(struct script *script) {
        struct member *member = member_named(script);
        char fault[256] = "";

        while (script_has_word(script))
                snprintf(fault + strlen(fault), sizeof(fault) - strlen(fault), "%s%s",
                         fault[0] != '\0' ? " " : "", script_word(script));
        member_note_fault(member, fault);
}

/* check MEMBER: whether it may go on */
static void do_check(struct script *script) {
        say_code(script, member_check(member_named(script), &fixture->refusal));
}

static void do_pass(struct script *script) {
        pass(fixture);
}

/* pause, resume: the job. hold, release: all of them. drain, shutdown: the daemon is about to end, and does
 * so */
static void do_pause(struct script *script) {
        job_pause(job_of());
}

static void do_resume(struct script *script) {
        job_resume(job_of());
}

static void do_hold(struct script *script) {
        jobs_hold(fixture->jobs, true);
}

static void do_release(struct script *script) {
        jobs_hold(fixture->jobs, false);
}

static void do_drain(struct script *script) {
        jobs_drain(fixture->jobs);
}

static void do_shutdown(struct script *script) {
        jobs_end(fixture->jobs);
}

/* open: how many steps and operations are, and whether the daemon has to wait for one */
static void do_open(struct script *script) {
        script_say(script, "%u%s", jobs_open(fixture->jobs), jobs_busy(fixture->jobs) ? ", busy" : "");
}

/* kept: from now on the daemon has a journal. leave: it ends, and leaves what is open to the next one */
static void do_kept(struct script *script) {
        former_journal(fixture->jobs);
}

static void do_leave(struct script *script) {
        end_tasks(fixture);
        jobs_suspend(fixture->jobs);
        all_gone(fixture, WIRE__CAUSE__SHUTDOWN);
        pass(fixture);
        is_left = true;
}

/* former [OPTION...]: the former daemon had a job of two members in generation 3. back RANK: a member of it
 * is, and will say what it has; told RANK: it has said all. expect SECONDS: no member is awaited that has not
 * come by then. due SECONDS: so much time from now is the time at which it is looked who is late. */
static void do_former(struct script *script) {
        struct job_join wish = elastic(fixture);

        wish.membership = words_request(script, &wish.membership, 0);
        former_state(former_job(fixture->jobs, &wish, 3, 2, 0));
}

static void do_back(struct script *script) {
        uint32_t rank = (uint32_t)script_number(script);
        struct job_rejoin rejoin = {
                .join = elastic(fixture), .secret = former_secret(rank), .generation = 3, .wait = GRACE
        };

        rejoin.join.returns = true;
        say_code(script, jobs_rejoin(fixture->jobs, &rejoin, &fixture->member[rank], &fixture->refusal));
}

static void do_told(struct script *script) {
        struct member *member = member_named(script);

        say_code(script, takeover_told(member, 0, 40, &fixture->refusal));
}

static void do_expect(struct script *script) {
        job_of()->takeover->deadline = clock_now() + script_number(script) * USEC_PER_SEC;
}

static void do_due(struct script *script) {
        rejoin_check(job_of(), clock_now() + script_number(script) * USEC_PER_SEC);
}

/* forget RANK: no member comes back to it. returns: members will come back to the next daemon */
static void do_forget(struct script *script) {
        assert_true(takeover_forget(job_of(), (uint32_t)script_number(script)));
}

static void do_returns(struct script *script) {
        for (uint32_t rank = 0; rank < job_of()->world; rank++)
                fixture->member[rank]->returns = true;
}

/* stall SECONDS: so much time from now is the time at which the job is looked at */
static void do_stall(struct script *script) {
        stall_check(job_of(), clock_now() + script_number(script) * USEC_PER_SEC);
}

/* limit own|plans|bytes BYTES: of the user */
static void do_limit(struct script *script) {
        enum account_slot slot = script_flag(script, "own")     ? ACCOUNT_OWN
                                 : script_flag(script, "plans") ? ACCOUNT_PLANS
                                                                : ACCOUNT_BYTES;

        if (slot == ACCOUNT_BYTES && !script_flag(script, "bytes"))
                script_refuse(script, "which limit?");
        set_limit(fixture, slot, script_number(script));
}

/* running: how many jobs of the user do */
static void do_running(struct script *script) {
        struct charge hold = { 0 };

        assert_int_equal(charge_take(&hold, fixture->accounts, 1000, ACCOUNT_CLIENTS, 1, NULL), 0);
        script_say(script, "%u", (unsigned)hold.user->running);
        charge_release(&hold);
}

/* job: what the generation before was lost for, its plans, how many of them are in the journal, the next one
 * of each member; blame: whose was not finite. steps: what has become of them. loss, why: the text of the
 * loss, and of the last refusal. */
static void do_job(struct script *script) {
        const struct job *job = job_of();
        char next[64] = "";
        const struct plan *plan;
        unsigned n = 0, kept = 0;
        size_t used = 0;

        list_for_each(plan, &job->plans, link) {
                kept += plan->kept != NULL;
                n++;
        }
        for (uint32_t rank = 0; rank < job->world; rank++)
                used += (size_t)snprintf(next + used, sizeof(next) - used, " %u",
                                         fixture->member[rank]->next_plan);
        script_say(script, "%s, %u plans in %u arenas, next%s", cause_name(job->loss.cause), n,
                   fixture->fake.n_arenas, next);
        if (kept > 0)
                script_say(script, "%u kept", kept);
        if (job->blame.step > 0)
                script_say(script, "blame for step %u: %u of rank %u, \"%s\"", (unsigned)job->blame.step,
                           (unsigned)job->blame.count, job->blame.rank, job->blame.parameter);
}

static void do_steps(struct script *script) {
        const struct job *job = job_of();

        script_say(script, "last %u, %u of rank 0, %u void, %u bytes in %u tasks", (unsigned)job->last_step,
                   (unsigned)fixture->member[0]->last_step, (unsigned)job->void_steps,
                   (unsigned)job->bytes_reduced, fixture->fake.submitted);
}

static void do_loss(struct script *script) {
        say_text(script, job_of()->loss_text);
}

static void do_why(struct script *script) {
        say_text(script, fixture->refusal.text);
}

static const struct script_command commands[] = {
#define C(name)                                                                                              \
        { #name, do_##name }
        C(agree),   C(back),   C(backend), C(bring),   C(call),        C(check),  C(counts),  C(done),
        C(drain),   C(drop),   C(due),     C(end),     C(evict),       C(expect), C(fault),   C(fixed),
        C(forget),  C(form),   C(former),  C(gone),    C(hold),        C(job),    C(join),    C(kept),
        C(leave),   C(limit),  C(loss),    C(mapped),  C(open),        C(pass),   C(pause),   C(ready),
        C(release), C(resume), C(returns), C(running), C(shutdown),    C(spoil),  C(staging), C(stall),
        C(steps),   C(tasks),  C(told),    C(why),     { NULL, NULL },
#undef C
};

const struct rig rig = {
        .commands = commands, .begin = rig_begin, .before = rig_before, .after = rig_after, .end = rig_end
};
