/* SPDX-License-Identifier: Apache-2.0 */
/* The rig of a job that goes on after losses, on the job layer: 2 to 3 members, and a backend whose tasks
 * end when the script says so. Each command says what members hear, in that order. */
#include "tests/unit/elastic_fixture.h"

#include "proto/names.h"
#include "script.h"
#include "words.h"

static void *state;

static void rig_begin(void) {
        setup(&state);
}

static void rig_end(void) {
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

static struct member *member_named(struct script *script) {
        return script_flag(script, "newest") ? newest(fixture) : fixture->member[script_number(script)];
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

/* agree PLAN...: both bring it */
static void do_agree(struct script *script) {
        while (script_has_word(script))
                agree(fixture, 2, (uint32_t)script_number(script));
}

/* bring MEMBER PLAN [name=NAME] [half]: half: it does not map it */
static void do_bring(struct script *script) {
        struct member *member = member_named(script);
        uint32_t plan = (uint32_t)script_number(script);
        const char *name = script_text(script, "name");
        bool half = script_flag(script, "half");
        int r = commit_named(fixture, member, plan, name != NULL ? name : "a");

        if (r == 0 && !half)
                r = plan_mapped(member, plan, 9, &fixture->refusal);
        say_code(script, r);
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

/* ready RANK PLAN STEP, barrier RANK SEQUENCE */
static void do_ready(struct script *script) {
        uint32_t rank = (uint32_t)script_number(script), plan = (uint32_t)script_number(script);

        say_code(script, ready(fixture, rank, plan, script_number(script)));
}

static void do_barrier(struct script *script) {
        uint32_t rank = (uint32_t)script_number(script);

        say_code(script, barrier(fixture, rank, script_number(script)));
}

/* done [one] [withdrawn=N] [found=N]: the backend's tasks end; input N - 1 of the first has lost its
 * memory */
static void do_done(struct script *script) {
        bool one = script_flag(script, "one");

        fixture->fake.task[0].withdrawn = (unsigned)script_option(script, "withdrawn", 0);
        do
                fake_end_one(&fixture->fake);
        while (!one && fixture->fake.n_tasks > 0);
}

/* counts=N of what is not finite, of input INPUT, as the backend finds it from now on */
static void do_counts(struct script *script) {
        uint64_t input = script_number(script);

        fixture->fake.counts[input] = script_number(script);
}

/* tasks: how many the backend has */
static void do_tasks(struct script *script) {
        script_say(script, "%u", fixture->fake.n_tasks);
}

/* gone MEMBER [CAUSE], and then the loop runs, except with `alone` */
static void do_gone(struct script *script) {
        bool alone = script_flag(script, "alone");
        struct member *member = member_named(script);

        member_gone(member, words_cause(script));
        if (!alone)
                pass(fixture);
}

static void do_pass(struct script *script) {
        pass(fixture);
}

/* pause, and at once resume */
static void do_pause(struct script *script) {
        job_pause(fixture->member[0]->job);
        job_resume(fixture->member[0]->job);
}

/* job: what the generation before was lost for, its plans, the next one of each member; blame: whose was not
 * finite. why: the text of the last refusal, which
 * must name no pid */
static void do_job(struct script *script) {
        const struct job *job = fixture->member[0]->job;
        char next[64] = "";
        const struct list *link;
        size_t used = 0;
        unsigned n = 0;

        for (link = job->plans.next; link != &job->plans; link = link->next)
                n++;
        for (uint32_t rank = 0; rank < job->world; rank++)
                used += (size_t)snprintf(next + used, sizeof(next) - used, " %u",
                                         fixture->member[rank]->next_plan);
        script_say(script, "%s, %u plans in %u arenas, next%s", cause_name(job->loss.cause), n,
                   fixture->fake.n_arenas, next);
        if (job->blame.step > 0)
                script_say(script, "blame for step %u: %s", (unsigned)job->blame.step, job->blame.parameter);
}

static void do_why(struct script *script) {
        script_say(script, "%s", fixture->refusal.text);
}

static const struct script_command commands[] = {
#define C(name)                                                                                              \
        { #name, do_##name }
        C(agree), C(barrier), C(bring), C(counts), C(done),  C(drop),  C(form), C(gone),        C(job),
        C(join),  C(mapped),  C(pass),  C(pause),  C(ready), C(tasks), C(why),  { NULL, NULL },
#undef C
};

const struct rig rig = {
        .commands = commands, .begin = rig_begin, .before = rig_before, .after = rig_after, .end = rig_end
};
