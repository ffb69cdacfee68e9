/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/transports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_AT_MOST (4 << 20) /* bytes; a longer log of one communicator is not read */

static off_t log_size(int fd) {
        struct stat info;

        return fd >= 0 && fstat(fd, &info) == 0 ? info.st_size : 0;
}

void transports_begin(struct communicator *comm) {
        struct communicator *other;

        pthread_mutex_lock(&comm->common->lock);
        comm->log_from = log_size(comm->common->config.log);
        list_for_each(other, &comm->common->comms, link)
                if (other != comm && other->state == COMMUNICATOR_FORMING)
                        other->log_mixed = comm->log_mixed = true;
        pthread_mutex_unlock(&comm->common->lock);
}

/* Takes the kind and the way, "NET/Socket", without the rest. The name also has "/GDRDMA" if the network
 * reaches into the GPU's memory, as for "NET/IB/0/GDRDMA". */
static void transport_take_name(char name[TRANSPORT], const char *from) {
        static const char direct[] = "/GDRDMA";
        size_t n = strcspn(from, "/ \t\r\n"), all = strcspn(from, " \t\r\n");
        const char *found = strstr(from, direct);

        if (from[n] == '/')
                n += 1 + strcspn(from + n + 1, "/ \t\r\n(");
        snprintf(name, TRANSPORT, "%.*s%s", (int)n, from, found != NULL && found < from + all ? direct : "");
}

bool transports_parse(const char *line, uint32_t *ret_from, uint32_t *ret_to, char name[TRANSPORT]) {
        const char *channel = strstr(line, " Channel "),
                   *colon = channel != NULL ? strchr(channel, ':') : NULL;
        const char *via = colon != NULL ? strstr(colon, " via ") : NULL;

        if (via == NULL || sscanf(colon, ": %u[%*[^]]] -> %u[", ret_from, ret_to) != 2)
                return false;
        transport_take_name(name, via + strlen(" via "));
        return name[0] != '\0';
}

/* Notes that GPUs of one host also have a multicast through their switches. */
static void transports_take_multicast(struct communicator *comm) {
        const char *host = comm->table[comm->self].host;

        for (uint32_t peer = 0; peer < comm->n_nodes; peer++) {
                char *name = comm->transport[peer];
                size_t n = strlen(name);

                if (strncmp(name, "P2P", 3) == 0 && strcmp(comm->table[peer].host, host) == 0)
                        snprintf(name + n, TRANSPORT - n, "+NVLS");
        }
}

static void transports_take(struct communicator *comm, const char *line) {
        uint32_t from, to, peer;
        char name[TRANSPORT];

        if (!transports_parse(line, &from, &to, name) || (from != comm->self && to != comm->self))
                return;
        peer = from == comm->self ? to : from;
        if (peer < comm->n_nodes && comm->transport[peer][0] == '\0')
                memcpy(comm->transport[peer], name, TRANSPORT);
}

void transports_end(struct communicator *comm) {
        off_t end = log_size(comm->common->config.log), bytes = end - comm->log_from;
        char *text = NULL;

        if (comm->log_mixed || bytes <= 0 || bytes > READ_AT_MOST)
                return;
        text = malloc((size_t)bytes + 1);
        ssize_t n = text != NULL ? pread(comm->common->config.log, text, (size_t)bytes, comm->log_from) : -1;
        if (n > 0) {
                char *rest;

                text[n] = '\0';
                bool multicast = strstr(text, " NVLS comm ") != NULL;
                for (char *line = strtok_r(text, "\n", &rest); line != NULL;
                     line = strtok_r(NULL, "\n", &rest))
                        transports_take(comm, line);
                if (multicast)
                        transports_take_multicast(comm);
        }
        free(text);
}
