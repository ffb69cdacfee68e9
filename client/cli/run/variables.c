// SPDX-License-Identifier: Apache-2.0
/*
 * Sets the environment of the members of `gradsyncctl run`: their place in the job, by gradsync's names and
 * by those of torchrun, and the other variables that a script for torchrun expects. See run.h.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include "client/cli/run/run.h"

/* Seconds for which the place of a lost member is kept. A process comes for the place only if processes are
 * started again. It may have to load a framework from a slow file system before it joins, so the time is
 * generous; if it does not come after all, this program ends the others. */
#define RESTART_GRACE_S 120
/* Assumed where the setting of the daemon counts, which may be short. */
#define UNKNOWN_GRACE_S 2
#define LONGEST_PAUSE_S 10
/* torchrun's port, for a machine on which no port is free. */
#define USUAL_PORT 29500

static void variables_set_number(const char *name, unsigned long value, bool replace) {
        char text[24];

        snprintf(text, sizeof text, "%lu", value);
        setenv(name, text, replace);
}

/* Finds a free port of this host, for a process group that the members may make besides. The port is not
 * reserved: the members themselves have to listen on it. */
static unsigned variables_free_port(void) {
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t size = sizeof address;
        _cleanup_(closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
            getsockname(fd, (struct sockaddr *)&address, &size) < 0)
                return USUAL_PORT;
        return ntohs(address.sin_port);
}

/* The threads for each member: the CPUs of this program divided among the members. */
static unsigned variables_threads(unsigned long members) {
        cpu_set_t allowed;
        unsigned n = 1;

        if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
                n = (unsigned)CPU_COUNT(&allowed) / (unsigned)members;
        return n > 0 ? n : 1;
}

void run_set_common_variables(const struct run *run) {
        unsigned long members = run->options->members;

        setenv("GRADSYNC_JOB", run->job, 1);
        if (run->token && !environ_get("GRADSYNC_JOB_TOKEN"))
                setenv("GRADSYNC_JOB_TOKEN", run->token, 1);
        setenv("GRADSYNC_SOCKET", run->socket, 1);
        variables_set_number("GRADSYNC_WORLD_SIZE", members, true);
        variables_set_number("GRADSYNC_REJOIN_GRACE", run->options->restarts ? RESTART_GRACE_S : 0, false);
        variables_set_number("WORLD_SIZE", members, true);
        variables_set_number("LOCAL_WORLD_SIZE", members, true);
        setenv("MASTER_ADDR", "127.0.0.1", 0);
        if (!getenv("MASTER_PORT"))
                variables_set_number("MASTER_PORT", variables_free_port(), false);
        variables_set_number("OMP_NUM_THREADS", variables_threads(members), false);
        setenv("PYTHONUNBUFFERED", "1", 0);
}

int64_t run_longest_pause(void) {
        const char *text = environ_get("GRADSYNC_REJOIN_GRACE");
        double grace = text ? strtod(text, NULL) : UNKNOWN_GRACE_S;

        if (!(grace > 0))
                return 0;
        return grace / 4 < LONGEST_PAUSE_S ? (int64_t)(grace / 4 * 1000) : LONGEST_PAUSE_S * 1000;
}

void run_set_member_variables(unsigned rank) {
        variables_set_number("GRADSYNC_RANK", rank, true);
        variables_set_number("GRADSYNC_LOCAL_RANK", rank, true);
        variables_set_number("RANK", rank, true);
        variables_set_number("LOCAL_RANK", rank, true);
}
