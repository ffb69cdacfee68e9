/* SPDX-License-Identifier: Apache-2.0 */
#include "peer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.h"

const char *gpu_library, *nccl_library;

void peer_fail(const char *file, int line, const char *what) {
        fprintf(stderr, "%s:%d: process %d: %s\n", file, line, getpid(), what);
        _exit(EXIT_FAILURE);
}

void peer_is(const char *file, int line, const char *what, int result, int expected) {
        char text[256];

        if (result == expected)
                return;
        snprintf(text, sizeof(text), "%s is %d, not %d", what, result, expected);
        peer_fail(file, line, text);
}

/* ---- the GPU ---- */

static struct cuda_properties gpu_properties(const struct gpu *gpu) {
        return (struct cuda_properties){ .type = CUDA_ALLOCATION_PINNED,
                                         .handle_types = CUDA_HANDLE_FD,
                                         .location = { CUDA_LOCATION_DEVICE, gpu->device } };
}

void gpu_open(struct gpu *gpu) {
        char error[512];

        if (cuda_load(&gpu->cuda, gpu_library, error, sizeof(error)) < 0)
                peer_fail(__FILE__, __LINE__, error);
        OK(gpu->cuda.device_get(&gpu->device, 0));
        OK(gpu->cuda.primary_retain(&gpu->context, gpu->device));
        OK(gpu->cuda.context_set(gpu->context));
        struct cuda_properties properties = gpu_properties(gpu);
        OK(gpu->cuda.granularity(&gpu->granularity, &properties, CUDA_GRANULARITY_RECOMMENDED));
}

void gpu_close(struct gpu *gpu) {
        OK(gpu->cuda.primary_release(gpu->device));
}

void gpu_fill(const struct gpu *gpu, cuda_address address, size_t bytes, unsigned char value) {
        OK(gpu->cuda.set_async(address, value, bytes, NULL));
        OK(gpu->cuda.stream_wait(NULL));
}

void gpu_expect(const struct gpu *gpu, cuda_address address, size_t bytes, unsigned char value) {
        unsigned char *seen = malloc(bytes);

        CHECK(seen != NULL);
        memset(seen, ~value, bytes);
        OK(gpu->cuda.copy_out(seen, address, bytes, NULL));
        OK(gpu->cuda.stream_wait(NULL));
        for (size_t i = 0; i < bytes; i++)
                IS(seen[i], value);
        free(seen);
}

void area_map(const struct gpu *gpu, struct area *area) {
        struct cuda_access access = { { CUDA_LOCATION_DEVICE, gpu->device }, CUDA_ACCESS_READ_WRITE };

        OK(gpu->cuda.reserve(&area->address, area->bytes, 0, 0, 0));
        OK(gpu->cuda.map(area->address, area->bytes, 0, area->handle, 0));
        OK(gpu->cuda.set_access(area->address, area->bytes, &access, 1));
}

void area_new(const struct gpu *gpu, size_t granules, struct area *ret) {
        struct cuda_properties properties = gpu_properties(gpu);

        ret->bytes = granules * gpu->granularity;
        OK(gpu->cuda.create(&ret->handle, ret->bytes, &properties, 0));
        area_map(gpu, ret);
}

void area_free(const struct gpu *gpu, struct area *area) {
        OK(gpu->cuda.unmap(area->address, area->bytes));
        OK(gpu->cuda.unreserve(area->address, area->bytes));
        OK(gpu->cuda.release(area->handle));
        area->bytes = 0;
}

int area_export(const struct gpu *gpu, const struct area *area) {
        int fd = -1;

        OK(gpu->cuda.export_handle(&fd, area->handle, CUDA_HANDLE_FD, 0));
        CHECK(fd >= 0);
        return fd;
}

void area_import(const struct gpu *gpu, int fd, size_t bytes, struct area *ret) {
        ret->bytes = bytes;
        OK(gpu->cuda.import_handle(&ret->handle, (void *)(intptr_t)fd, CUDA_HANDLE_FD));
        close(fd);
        area_map(gpu, ret);
}

/* ---- processes ---- */

struct peer peer_start(void (*role)(struct peer *other)) {
        int pair[2];

        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
        struct peer peer = { fork(), pair[0] };
        CHECK(peer.pid >= 0);
        if (peer.pid > 0) {
                close(pair[1]);
                return peer;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(pair[0]);
        role(&(struct peer){ getppid(), pair[1] });
        _exit(EXIT_SUCCESS);
}

void peer_send(const struct peer *peer, const char *word, uint64_t number, const struct cuda_ipc *ipc,
               int fd) {
        struct message message = { .number = number };
        struct iovec part = { &message, sizeof(message) };

        snprintf(message.word, sizeof(message.word), "%s", word);
        if (ipc != NULL)
                message.ipc = *ipc;
        CHECK(packet_send(peer->socket, &part, 1, fd) == sizeof(message));
}

struct message peer_receive(const struct peer *peer, const char *word, int *ret_fd) {
        struct message message;
        struct iovec part = { &message, sizeof(message) };
        int fd;

        CHECK(packet_receive(peer->socket, &part, 1, &fd) == sizeof(message));
        CHECK(strcmp(message.word, word) == 0);
        CHECK((fd >= 0) == (ret_fd != NULL));
        if (ret_fd != NULL)
                *ret_fd = fd;
        return message;
}

void peer_end(struct peer *peer) {
        int status;

        CHECK(waitpid(peer->pid, &status, 0) == peer->pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        close(peer->socket);
        peer->pid = 0;
}

void peer_kill(struct peer *peer) {
        int status;

        CHECK(kill(peer->pid, SIGKILL) == 0);
        CHECK(waitpid(peer->pid, &status, 0) == peer->pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        close(peer->socket);
        peer->pid = 0;
}

/* ---- cases ---- */

static bool case_holds(const char *name, size_t i, void (*run)(size_t i)) {
        int status;

        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
                alarm(300); /* on a busy machine, too */
                run(i);
                _exit(EXIT_SUCCESS);
        }
        bool well = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
        printf("%s %s\n", well ? "holds" : "FAILS", name);
        return well;
}

static bool case_is_wanted(const char *name, char **names) {
        for (unsigned i = 0; names[i] != NULL; i++)
                if (strcmp(names[i], name) == 0)
                        return true;
        return names[0] == NULL;
}

int cases_main(char **argv, size_t n, const char *(*name)(size_t i), void (*run)(size_t i)) {
        size_t ran = 0, failed = 0;

        for (argv++; argv[0] != NULL && argv[1] != NULL && strncmp(argv[0], "--", 2) == 0; argv += 2)
                *(strcmp(argv[0], "--driver") == 0 ? &gpu_library : &nccl_library) = argv[1];
        for (size_t i = 0; i < n; i++)
                if (case_is_wanted(name(i), argv)) {
                        ran++;
                        failed += !case_holds(name(i), i, run);
                }
        if (ran == 0)
                fprintf(stderr, "there is no such case\n");
        return ran == 0 || failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

void gpu_case_run(const struct gpu_case *which) {
        struct peer peer = { 0 };
        struct gpu gpu;
        struct area area = { 0 };

        if (which->role != NULL)
                peer = peer_start(which->role);
        gpu_open(&gpu);
        if (which->granules > 0)
                area_new(&gpu, which->granules, &area);
        which->run(&gpu, &area, &peer);
        if (peer.pid != 0)
                peer_end(&peer);
        if (area.bytes > 0)
                area_free(&gpu, &area);
        gpu_close(&gpu);
}
