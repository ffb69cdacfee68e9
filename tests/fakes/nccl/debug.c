/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that NCCL writes: those of src/transport/p2p.cc, shm.cc, nvls.cc and net.cc of 2.28.9. */
#include "debug.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

/* %h is the host, %p the process. */
static FILE *debug_open(const char *host) {
        const char *name = getenv("NCCL_DEBUG_FILE"), *level = getenv("NCCL_DEBUG");
        char path[4096];
        size_t used = 0;

        if (name == NULL || level == NULL ||
            (strcasecmp(level, "INFO") != 0 && strcasecmp(level, "TRACE") != 0))
                return NULL;
        for (; *name != '\0' && used < sizeof(path) - 128; name++)
                if (name[0] == '%' && (name[1] == 'h' || name[1] == 'p')) {
                        used += (size_t)(name[1] == 'h' ? snprintf(path + used, 100, "%s", host)
                                                        : snprintf(path + used, 100, "%d", getpid()));
                        name++;
                } else {
                        path[used++] = *name;
                }
        path[used] = '\0';
        return fopen(path, "ae");
}

struct line {
        FILE *file;
        const char *host, *transport;
        int device;
};

static void debug_print(const struct line *line, const char *channel, unsigned from, int from_device,
                        unsigned to, int to_device, const char *way) {
        fprintf(line->file, "%s:%d:%ld [%d] NCCL INFO Channel %s : %u[%d] -> %u[%d]%s via %s\n", line->host,
                getpid(), syscall(SYS_gettid), line->device, channel, from, from_device, to, to_device, way,
                line->transport);
}

void debug_print_channels(const struct ncclComm *comm) {
        const char *wanted = getenv("FAKE_NCCL_TRANSPORT");
        char host[65] = "";

        gethostname(host, sizeof(host) - 1);
        struct line line = { debug_open(host), host, wanted != NULL ? wanted : "P2P/CUMEM", comm->device };
        if (line.file == NULL)
                return;
        bool net = strncmp(line.transport, "NET/", 4) == 0, shm = strncmp(line.transport, "SHM/", 4) == 0;
        if (getenv("FAKE_NCCL_NVLS") != NULL)
                fprintf(line.file, "%s:%d:%ld [%d] NCCL INFO NVLS comm %p headRank 0 nHeads %u\n", host,
                        getpid(), syscall(SYS_gettid), comm->device, (const void *)comm, comm->ranks);
        for (unsigned r = 0; r < comm->ranks; r++) {
                int device = comm->board->rank[r].device;
                if (r == comm->rank)
                        continue;
                if (net)
                        debug_print(&line, "00/0", r, device, comm->rank, comm->device, " [receive]");
                debug_print(&line, shm ? "00" : "00/0", comm->rank, comm->device, r, device,
                            net ? " [send]" : "");
        }
        fclose(line.file);
}
