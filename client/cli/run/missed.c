// SPDX-License-Identifier: Apache-2.0
/* Ranks that others wait for in vain: see missed.h. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "client/cli/ask/snapshot.h"
#include "client/cli/base/moment.h"
#include "client/cli/run/missed.h"
#include "client/cli/run/ranks.h"
#include "client/cli/run/run.h"

/* The first question comes soon after the end of a rank. The others may go on for hours, by themselves. */
#define FIRST_MS 50
#define LONGEST_MS 2000

struct verdict {
        bool missing[LIMIT_LOCAL], waiting[LIMIT_LOCAL];
        unsigned n_missing, n_waiting;
};

void missed_begin(struct missed *missed) {
        missed->asked = 0;
        if (missed->pipe < 0)
                missed->at = moment_ms() + FIRST_MS;
}

/* Whether the member waits for others. One that joins a job which has lost a member waits for a place if it
 * was started again; otherwise it returns to a daemon that was started again, and does not count. */
static bool missed_waits(const struct run *run, bool forming, unsigned rank, const char *state) {
        if (strcmp(state, "joining") == 0)
                return forming || run->member[rank].restarts > 0;
        return !forming && strcmp(state, "waiting") == 0;
}

/* False: the job has members of another program, so nothing is known. */
static bool missed_judge_members(const struct run *run, const struct snapshot_job *job, bool forming,
                                 struct verdict *verdict) {
        for (size_t i = 0; i < job->n_members; i++) {
                const Wire__StatusMember *member = job->member[i];
                int rank = run_member_of(run, member->pid);

                if (rank < 0)
                        continue;
                if (member->rank != (unsigned)rank)
                        return false;
                if (member->state && missed_waits(run, forming, (unsigned)rank, member->state)) {
                        verdict->waiting[rank] = true;
                        verdict->n_waiting++;
                }
        }
        return true;
}

static void missed_judge_waits(const struct run *run, const struct snapshot_job *job,
                               struct verdict *verdict) {
        for (size_t i = 0; i < job->n_waits; i++) {
                const Wire__StatusWait *wait = job->wait[i];

                if (!wait->what || strcmp(wait->what, "join") != 0 || wait->rank >= run->n_members ||
                    !run->member[wait->rank].done)
                        continue;
                verdict->missing[wait->rank] = true;
                verdict->n_missing++;
        }
}

static void missed_judge(const struct run *run, const struct snapshot_job *job, char text[MISSED_TEXT]) {
        bool forming = job->job->state && strcmp(job->job->state, "forming") == 0;
        char missing[RANKS_TEXT], waiting[RANKS_TEXT];
        struct verdict verdict = { 0 };

        if (!forming && (!job->job->state || strcmp(job->job->state, "replacing") != 0))
                return;
        missed_judge_waits(run, job, &verdict);
        if (!verdict.n_missing || !missed_judge_members(run, job, forming, &verdict) || !verdict.n_waiting)
                return;
        ranks_text(verdict.missing, run->n_members, missing);
        ranks_text(verdict.waiting, run->n_members, waiting);
        snprintf(text, MISSED_TEXT,
                 "%s ended with status 0, but %s wait%s for %s %s job '%.300s'; the job is ended. %s",
                 missing, waiting, verdict.n_waiting == 1 ? "s" : "", verdict.n_missing == 1 ? "it" : "them",
                 forming ? "to join" : "in", run->job,
                 forming ? "Every rank has to join it"
                         : "Every rank has to take part in each step and collective until the last one");
}

/* Runs in the child. A daemon that does not answer is asked again later. */
static void missed_find(const struct run *run, char text[MISSED_TEXT]) {
        struct snapshot snapshot;
        struct talk talk;

        if (talk_open(&talk, run->socket, TALK_TIMEOUT) == TALK_OK &&
            snapshot_fetch(&talk, run->socket, run->job, &snapshot) == TALK_OK) {
                for (size_t i = 0; i < snapshot.n_jobs && !*text; i++)
                        if (snapshot.job[i].job->uid == geteuid())
                                missed_judge(run, &snapshot.job[i], text);
                snapshot_deinit(&snapshot);
        }
        talk_close(&talk);
}

/* A forked child has all descriptors of its parent: as long as it keeps a pidfd or a pipe open, that one
 * stays in the parent's epoll, and a lock of the parent stays held. The child needs only `to` and the
 * standard streams. Returns the new number of `to`. */
static int missed_keep_only(int to) {
        const int kept = STDERR_FILENO + 1;

        if (to != kept && dup2(to, kept) < 0)
                return to;
        close_range((unsigned)kept + 1, ~0U, 0);
        return kept;
}

_Noreturn static void missed_become(const struct run *run, int to, pid_t parent) {
        char text[MISSED_TEXT] = "";

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        to = missed_keep_only(to);
        if (getppid() == parent)
                missed_find(run, text);
        ssize_t written = write(to, text, strlen(text));
        _exit(written < 0);
}

int missed_ask(struct missed *missed, const struct run *run) {
        pid_t parent = getpid();
        int both[2];

        if (!missed->at || moment_ms() < missed->at)
                return 0;
        missed->at = 0;
        if (pipe2(both, O_CLOEXEC) < 0)
                return -errno;
        pid_t pid = fork();
        if (pid == 0)
                missed_become(run, both[1], parent);
        int r = pid < 0 ? -errno : 0;
        close(both[1]);
        if (r == 0)
                missed->pidfd = pidfd_open(pid, 0);
        if (r == 0 && missed->pidfd < 0)
                r = -errno;
        if (r < 0)
                close(both[0]);
        else
                missed->pipe = both[0];
        return r;
}

static void missed_reap(struct missed *missed) {
        siginfo_t info;

        if (missed->pidfd >= 0)
                waitid(P_PIDFD, (id_t)missed->pidfd, &info, WEXITED);
        missed->pidfd = fd_close(missed->pidfd);
        missed->pipe = fd_close(missed->pipe);
}

void missed_take(struct missed *missed, char text[MISSED_TEXT]) {
        ssize_t n = read(missed->pipe, text, MISSED_TEXT - 1);
        int64_t pause = FIRST_MS << (missed->asked < 8 ? missed->asked : 8);

        text[n > 0 ? n : 0] = '\0';
        missed->asked++;
        missed_reap(missed);
        missed->at = moment_ms() + (pause < LONGEST_MS ? pause : LONGEST_MS);
}

void missed_deinit(struct missed *missed) {
        if (missed->pidfd >= 0)
                pidfd_send_signal(missed->pidfd, SIGKILL, NULL, 0);
        missed_reap(missed);
}
