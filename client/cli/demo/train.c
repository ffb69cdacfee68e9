// SPDX-License-Identifier: Apache-2.0
/*
 * What happens to the trainers of `gradsyncctl demo`, and when: looks at the daemon's status again and again,
 * and acts on what it sees. See demo.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/epoll.h>

#include "client/cli/base/moment.h"
#include "client/cli/demo/demo.h"
#include "client/cli/view/document.h"
#include "client/cli/view/text.h"

#define LOOK_MS 5
#define PATIENCE_MS 60000 /* for what comes within two seconds on an idle machine */

static double demo_train_ms_since(int64_t us) {
        return (double)(moment_us() - us) / 1e3;
}

/* ---- what the trainers say ---- */

static void demo_train_take_end(struct demo_training *training, json_t *said) {
        const char *hash = json_string_value(json_object_get(said, "hash"));

        if (!hash)
                return;
        if (training->ended++ == 0)
                snprintf(training->hash, sizeof training->hash, "%s", hash);
        else if (strcmp(training->hash, hash) != 0)
                training->differ = true;
        training->accuracy = json_number_value(json_object_get(said, "accuracy"));
}

static void demo_train_take_event(struct demo *demo, json_t *said) {
        struct demo_training *training = demo->training;
        const char *event = json_string_value(json_object_get(said, "event"));

        if (event && strcmp(event, "start") == 0)
                training->epoch_steps = (uint64_t)json_integer_value(json_object_get(said, "steps"));
        else if (event && strcmp(event, "end") == 0)
                demo_train_take_end(training, said);
}

/* Each of the other trainers says once, on its own terminal, which member it waits for. */
static void demo_train_take_complaint(struct demo *demo, unsigned rank, const char *line, size_t length) {
        char name[32];

        snprintf(name, sizeof name, "(pid %d, stopped)", (int)demo->stop.pid);
        demo_tell_line(demo, rank, line, length);
        if (rank == DEMO_STOPPED || !memmem(line, length, name, strlen(name)))
                return;
        demo->stop.told++;
        demo->stop.told_ms = demo_train_ms_since(demo->acted_us);
}

static void demo_train_take_line(void *data, unsigned rank, int stream, const char *line, size_t length) {
        struct demo *demo = data;

        if (stream == RUN_STDERR) {
                demo_train_take_complaint(demo, rank, line, length);
                return;
        }
        json_t *said = json_loadb(line, length, 0, NULL);
        demo_train_take_event(demo, said);
        json_decref(said);
}

/* ---- what is done to them ---- */

static pid_t demo_train_pid_of(const struct demo *demo, unsigned rank) {
        return demo->run.member[rank].pid;
}

static void demo_train_act(struct demo *demo, unsigned rank, int number, enum demo_phase next) {
        demo->acted_us = moment_us();
        kill(demo_train_pid_of(demo, rank), number);
        demo->phase = next;
}

static void demo_train_stop_when_due(struct demo *demo, const Wire__StatusJob *job) {
        if (job->step < demo->until_step)
                return;
        demo->stop.pid = demo_train_pid_of(demo, DEMO_STOPPED);
        demo->stop.told = 0; /* some trainers may have spoken of an earlier attempt */
        demo_train_act(demo, DEMO_STOPPED, SIGSTOP, DEMO_STOPPING);
}

static const Wire__StatusWait *demo_train_wait_for_stopped(const struct snapshot_job *job) {
        for (size_t i = 0; i < job->n_waits; i++)
                if (job->wait[i]->rank == DEMO_STOPPED && job->wait[i]->process_state &&
                    strcmp(job->wait[i]->process_state, "stopped") == 0)
                        return job->wait[i];
        return NULL;
}

static int demo_train_hear_name(struct demo *demo, const struct snapshot_job *job) {
        const Wire__StatusWait *wait = demo_train_wait_for_stopped(job);
        struct demo_stop *stop = &demo->stop;

        if (!wait)
                return 0;
        /* The stopped trainer was about to compare parameters; what the demo shows is a step. */
        if (!snapshot_wait_is_step(wait)) {
                demo->until_step = job->job->step + 1;
                demo_train_act(demo, DEMO_STOPPED, SIGCONT, DEMO_TO_STOP);
                return 0;
        }
        stop->named_ms = demo_train_ms_since(demo->acted_us);
        stop->step = wait->step;
        stop->bucket = wait->bucket;
        stop->parameter = strdup(wait->parameter ? wait->parameter : "");
        stop->text = text_wait(wait);
        if (!stop->parameter || !stop->text)
                return cli_out_of_memory();
        demo->named_us = moment_us();
        demo->phase = DEMO_NAMED;
        demo_tell_named(demo);
        return 0;
}

/* The stop lasts until all other trainers have said it themselves, and the reader has had time. */
static void demo_train_resume_when_heard(struct demo *demo) {
        if (demo->stop.told + 1 < demo->options.members ||
            demo_train_ms_since(demo->named_us) < (double)demo->pause_ms)
                return;
        demo_tell(demo, "   %.2f s after the stop all of them have said so. It goes on: kill -CONT %d",
                  demo->stop.told_ms / 1e3, (int)demo->stop.pid);
        demo_train_act(demo, DEMO_STOPPED, SIGCONT, DEMO_RESUMING);
}

static void demo_train_see_resumed(struct demo *demo, const Wire__StatusJob *job) {
        if (job->step < demo->stop.step)
                return;
        demo->stop.resumed_ms = demo_train_ms_since(demo->acted_us);
        demo_tell(demo, "   Step %" PRIu64 " is committed within %.0f ms.", demo->stop.step,
                  demo->stop.resumed_ms);
        demo_tell_act(demo, "3  A trainer dies");
        demo->until_step = job->step + demo->training->epoch_steps;
        if (demo->until_step < demo->training->steps / 2)
                demo->until_step = demo->training->steps / 2;
        demo->phase = DEMO_TO_KILL;
}

static void demo_train_kill_when_due(struct demo *demo, const Wire__StatusJob *job) {
        if (job->step < demo->until_step)
                return;
        demo->kill.pid = demo_train_pid_of(demo, DEMO_KILLED);
        demo_tell(demo, "   Rank %d is killed: kill -9 %d", DEMO_KILLED, (int)demo->kill.pid);
        demo_train_act(demo, DEMO_KILLED, SIGKILL, DEMO_KILLING);
}

static void demo_train_see_back(struct demo *demo, const Wire__StatusJob *job) {
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

/* The demo ends, instead of hanging, when something has not come that always comes. */
static int demo_train_check_patience(const struct demo *demo) {
        bool waits = demo->phase != DEMO_TO_STOP && demo->phase != DEMO_TO_KILL;

        if (!waits || demo_train_ms_since(demo->acted_us) < PATIENCE_MS + (double)demo->pause_ms)
                return 0;
        cli_complain("%s within %d s; the daemon has logged:",
                     demo->phase == DEMO_STOPPING ? "the daemon has not named the stopped trainer"
                     : demo->phase == DEMO_NAMED  ? "the other trainers have not said whom they wait for"
                                                  : "no step has been committed",
                     PATIENCE_MS / 1000);
        run_daemon_show_log(&demo->run.daemon);
        return CLI_ERROR;
}

static int demo_train_go_on(struct demo *demo, const struct snapshot_job *job) {
        switch (demo->phase) {
        case DEMO_TO_STOP: demo_train_stop_when_due(demo, job->job); return 0;
        case DEMO_STOPPING: return demo_train_hear_name(demo, job);
        case DEMO_NAMED: demo_train_resume_when_heard(demo); return 0;
        case DEMO_RESUMING: demo_train_see_resumed(demo, job->job); return 0;
        case DEMO_TO_KILL: demo_train_kill_when_due(demo, job->job); return 0;
        case DEMO_KILLING: demo_train_see_back(demo, job->job); return 0;
        default: return 0;
        }
}

int demo_train_cannot_ask(const struct demo *demo) {
        cli_complain("cannot ask the private daemon: %s", demo->talk.error);
        return CLI_ERROR;
}

/* The trainers go on while this program looks, so it looks no more often than it needs to. */
static int demo_train_look(void *data) {
        struct demo *demo = data;
        struct snapshot snapshot = { 0 };
        int code = 0;

        demo->training->steps = demo->training->epoch_steps * DEMO_EPOCHS;
        if (demo->phase == DEMO_UNDISTURBED || demo->phase == DEMO_LAST || demo->training->steps == 0 ||
            moment_us() - demo->looked_us < LOOK_MS * 1000)
                return 0;
        if (demo->until_step == 0)
                demo->until_step = demo->training->steps / 4;
        if (snapshot_fetch(&demo->talk, demo->run.socket, demo->run.job, &snapshot))
                return demo_train_cannot_ask(demo);
        if (snapshot.n_jobs > 0)
                code = demo_train_go_on(demo, &snapshot.job[0]);
        if (!code)
                code = demo_train_check_patience(demo);
        snapshot_deinit(&snapshot);
        demo->looked_us = moment_us();
        return code;
}

/* ---- one training ---- */

int demo_train(struct demo *demo, const char *job) {
        const struct run_watcher watcher = {
                .data = demo, .line = demo_train_take_line, .look = demo_train_look, .interval_ms = LOOK_MS
        };
        struct run *run = &demo->run;
        int64_t from = moment_us();

        run->job = job;
        run->watcher = &watcher;
        run->stopping = run->killed = false;
        run->deadline = run->result = 0;
        close(run->epoll_fd); /* it knows the processes of the training before */
        run->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (run->epoll_fd < 0) {
                cli_complain("epoll: %s", strerror(errno));
                return CLI_ERROR;
        }
        memset(run->member, 0, demo->options.members * sizeof *run->member);
        int code = run_members_start(run);
        if (!code) {
                demo_tell_pids(demo);
                relay_run(run);
                code = run->result;
        }
        run_members_end(run);
        run->watcher = NULL;
        demo->training->seconds = (double)(moment_us() - from) / 1e6;
        return code;
}
