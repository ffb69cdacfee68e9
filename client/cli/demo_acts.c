// SPDX-License-Identifier: Apache-2.0
/*
 * What happens to the trainers of `gradsyncctl demo`, and when: looks at the daemon's status again and again, and
 * acts on what it sees. See demo.h.
 */
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "demo.h"
#include "text.h"

#define LOOK_MS 5
#define PATIENCE_MS 60000 /* for what comes within two seconds on an idle machine */

int64_t demo_now_us(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static double ms_since(int64_t us) {
        return (double)(demo_now_us() - us) / 1e3;
}

/* ---- what the trainers say ---- */

static void take_end(struct demo_training *training, json_t *said) {
        const char *hash = json_string_value(json_object_get(said, "hash"));

        if (!hash)
                return;
        if (training->ended++ == 0)
                snprintf(training->hash, sizeof training->hash, "%s", hash);
        else if (strcmp(training->hash, hash) != 0)
                training->differ = true;
        training->accuracy = json_number_value(json_object_get(said, "accuracy"));
}

static void take_event(struct demo *demo, json_t *said) {
        struct demo_training *training = demo->training;
        const char *event = json_string_value(json_object_get(said, "event"));

        if (event && strcmp(event, "start") == 0)
                training->epoch_steps = (uint64_t)json_integer_value(json_object_get(said, "steps"));
        else if (event && strcmp(event, "end") == 0)
                take_end(training, said);
}

/* On their own terminals the others say whom they wait for: each of them once. */
static void take_complaint(struct demo *demo, unsigned rank, const char *line, size_t length) {
        char name[32];

        snprintf(name, sizeof name, "(pid %d, stopped)", (int)demo->stop.pid);
        demo_tell_line(demo, rank, line, length);
        if (rank == DEMO_STOPPED || !memmem(line, length, name, strlen(name)))
                return;
        demo->stop.told++;
        demo->stop.told_ms = ms_since(demo->acted_us);
}

static void take_line(void *data, unsigned rank, int stream, const char *line, size_t length) {
        struct demo *demo = data;

        if (stream == RUN_STDERR) {
                take_complaint(demo, rank, line, length);
                return;
        }
        json_t *said = json_loadb(line, length, 0, NULL);
        take_event(demo, said);
        json_decref(said);
}

/* ---- what is done to them ---- */

static pid_t pid_of(const struct demo *demo, unsigned rank) {
        return demo->run.member[rank].pid;
}

static void act(struct demo *demo, unsigned rank, int number, enum demo_phase next) {
        demo->acted_us = demo_now_us();
        kill(pid_of(demo, rank), number);
        demo->phase = next;
}

static void stop_when_due(struct demo *demo, const Wire__StatusJob *job) {
        if (job->step < demo->until_step)
                return;
        demo->stop.pid = pid_of(demo, DEMO_STOPPED);
        demo->stop.told = 0; /* by those who have heard of an earlier attempt */
        act(demo, DEMO_STOPPED, SIGSTOP, DEMO_STOPPING);
}

static const Wire__StatusWait *wait_for_stopped(const struct snapshot_job *job) {
        for (size_t i = 0; i < job->n_waits; i++)
                if (job->wait[i]->rank == DEMO_STOPPED && job->wait[i]->process_state &&
                    strcmp(job->wait[i]->process_state, "stopped") == 0)
                        return job->wait[i];
        return NULL;
}

static int hear_name(struct demo *demo, const struct snapshot_job *job) {
        const Wire__StatusWait *wait = wait_for_stopped(job);
        struct demo_stop *stop = &demo->stop;

        if (!wait)
                return 0;
        if (!text_wait_is_step(wait)) { /* it was about to compare parameters: a step is what we want to show */
                demo->until_step = job->job->step + 1;
                act(demo, DEMO_STOPPED, SIGCONT, DEMO_TO_STOP);
                return 0;
        }
        stop->named_ms = ms_since(demo->acted_us);
        stop->step = wait->step;
        stop->bucket = wait->bucket;
        stop->since_ms = wait->since_ms;
        stop->parameter = strdup(wait->parameter ? wait->parameter : "");
        stop->text = text_wait(wait);
        if (!stop->parameter || !stop->text) {
                cli_complain("out of memory");
                return CLI_ERROR;
        }
        demo->named_us = demo_now_us();
        demo->phase = DEMO_NAMED;
        demo_tell_stopped(demo);
        demo_tell_named(demo);
        return 0;
}

/* Until all others have said it themselves, and the reader has had time. */
static void resume_when_heard(struct demo *demo) {
        if (demo->stop.told + 1 < demo->options.members || ms_since(demo->named_us) < (double)demo->pause_ms)
                return;
        demo_tell_heard(demo);
        act(demo, DEMO_STOPPED, SIGCONT, DEMO_RESUMING);
}

static void see_resumed(struct demo *demo, const Wire__StatusJob *job) {
        if (job->step < demo->stop.step)
                return;
        demo->stop.resumed_ms = ms_since(demo->acted_us);
        demo_tell_resumed(demo);
        demo->until_step = job->step + demo->training->epoch_steps;
        if (demo->until_step < demo->training->steps / 2)
                demo->until_step = demo->training->steps / 2;
        demo->phase = DEMO_TO_KILL;
}

static void kill_when_due(struct demo *demo, const Wire__StatusJob *job) {
        if (job->step < demo->until_step)
                return;
        demo->kill.pid = pid_of(demo, DEMO_KILLED);
        demo_tell_killed(demo);
        act(demo, DEMO_KILLED, SIGKILL, DEMO_KILLING);
}

static void see_back(struct demo *demo, const Wire__StatusJob *job) {
        struct demo_kill *killed = &demo->kill;

        if (!job->has_lost_pid || job->lost_pid != killed->pid || !job->has_lost_commit_us)
                return;
        killed->noticed_ms = (double)((int64_t)job->lost_us - demo->acted_us) / 1e3;
        killed->void_ms = job->has_lost_void_us ? killed->noticed_ms + (double)job->lost_void_us / 1e3 : -1;
        killed->committed_ms = killed->noticed_ms + (double)job->lost_commit_us / 1e3;
        killed->void_steps = job->lost_void_steps;
        killed->step = job->lost_step + 1;
        killed->successor = job->lost_successor;
        demo->phase = DEMO_LAST;
        demo_tell_back(demo);
}

/* Something that always comes has not come: better an end than a demo that hangs. */
static int check_patience(const struct demo *demo) {
        bool waits = demo->phase != DEMO_TO_STOP && demo->phase != DEMO_TO_KILL;

        if (!waits || ms_since(demo->acted_us) < PATIENCE_MS + (double)demo->pause_ms)
                return 0;
        cli_complain("%s within %d s; the daemon has logged:",
                     demo->phase == DEMO_STOPPING ? "the daemon has not named the stopped trainer"
                     : demo->phase == DEMO_NAMED  ? "the other trainers have not said whom they wait for"
                                                  : "no step has been committed",
                     PATIENCE_MS / 1000);
        run_daemon_show_log(&demo->run.daemon);
        return CLI_ERROR;
}

static int go_on(struct demo *demo, const struct snapshot_job *job) {
        switch (demo->phase) {
        case DEMO_TO_STOP: stop_when_due(demo, job->job); return 0;
        case DEMO_STOPPING: return hear_name(demo, job);
        case DEMO_NAMED: resume_when_heard(demo); return 0;
        case DEMO_RESUMING: see_resumed(demo, job->job); return 0;
        case DEMO_TO_KILL: kill_when_due(demo, job->job); return 0;
        case DEMO_KILLING: see_back(demo, job->job); return 0;
        default: return 0;
        }
}

static int open_link(struct demo *demo) {
        if (demo->linked)
                return LINK_OK;
        demo->linked = true;
        return link_open(&demo->link, demo->run.daemon.socket, LINK_TIMEOUT);
}

/* The trainers go on while we look, so we do not look more often than we need to. */
static int look(void *data) {
        struct demo *demo = data;
        struct snapshot snapshot = { 0 };
        int code = 0;

        demo->training->steps = demo->training->epoch_steps * DEMO_EPOCHS;
        if (demo->phase == DEMO_UNDISTURBED || demo->phase == DEMO_LAST || demo->training->steps == 0 ||
            demo_now_us() - demo->looked_us < LOOK_MS * 1000)
                return 0;
        if (demo->until_step == 0)
                demo->until_step = demo->training->steps / 4;
        enum link_result r = open_link(demo);
        if (!r)
                r = snapshot_fetch(&demo->link, demo->run.socket, demo->run.job, &snapshot);
        if (r) {
                cli_complain("cannot ask the private daemon: %s", demo->link.error);
                return CLI_ERROR;
        }
        if (snapshot.n_jobs > 0)
                code = go_on(demo, &snapshot.job[0]);
        if (!code)
                code = check_patience(demo);
        snapshot_deinit(&snapshot);
        demo->looked_us = demo_now_us();
        return code;
}

/* ---- one training ---- */

static int start(struct demo *demo) {
        struct run *run = &demo->run;
        int code = CLI_OK;

        memset(run->member, 0, demo->options.members * sizeof *run->member);
        for (unsigned rank = 0; rank < demo->options.members && !code; rank++)
                code = run_member_start(run, rank);
        return code;
}

int demo_train(struct demo *demo, const char *job) {
        const struct run_watcher watcher = {
                .data = demo, .line = take_line, .look = look, .interval_ms = LOOK_MS
        };
        struct run *run = &demo->run;
        int64_t from = demo_now_us();

        run->job = job;
        run->watcher = &watcher;
        run->stopping = run->killed = false;
        run->deadline = run->result = 0;
        close(run->epoll_fd); /* it knows the last training's processes */
        run->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (run->epoll_fd < 0) {
                cli_complain("epoll: %s", strerror(errno));
                return CLI_ERROR;
        }
        int code = start(demo);
        if (!code) {
                demo_tell_start(demo);
                run_watch(run);
                code = run->result;
        }
        run_members_end(run);
        run->watcher = NULL;
        demo->training->seconds = (double)(demo_now_us() - from) / 1e6;
        return code;
}
