// SPDX-License-Identifier: Apache-2.0
/* Checks for a host with GPUs: the driver, its needs, and what trainers and the daemon must have in common. A
 * host where nothing is about a GPU gets none of them. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/base/cli.h"
#include "client/cli/base/format.h"
#include "client/cli/doctor/doctor.h"
#include "proto/cuda.h"

#define CONTROL_NODE "/dev/nvidiactl"
#define MEMORY_NODE "/dev/nvidia-uvm"

static const Wire__StatusGpu *doctor_gpu_of(const struct checkup *checkup) {
        return checkup->snapshot.daemon ? checkup->snapshot.daemon->gpu : NULL;
}

static bool doctor_gpu_matters(const struct checkup *checkup) {
        return doctor_gpu_of(checkup) || strncmp(sockets_device(checkup->cli), "cuda", 4) == 0 ||
               access(CONTROL_NODE, F_OK) == 0;
}

/* A lack is a failure if the daemon serves a GPU or the user asks for one; else nothing fails because of
 * it. */
static enum verdict doctor_gpu_verdict(const struct checkup *checkup) {
        return doctor_gpu_of(checkup) || strncmp(sockets_device(checkup->cli), "cuda", 4) == 0 ? VERDICT_FAIL
                                                                                               : VERDICT_WARN;
}

/* Whether the daemon and programs here use the same MPS server, or none. */
static void doctor_gpu_mps(const struct checkup *checkup, const struct cuda *cuda, cuda_device device,
                           struct findings *findings) {
        const char *mode = doctor_gpu_of(checkup)->mode;
        bool daemon = mode && strcmp(mode, "mps") == 0;
        int here = 0;

        if (cuda->device_attribute(&here, CUDA_DEVICE_MPS, device) != CUDA_OK)
                return findings_add(findings, "mps", VERDICT_WARN,
                                    format_new("the driver does not say whether programs here use MPS"),
                                    format_new("look at the log of the MPS server"));
        if ((here != 0) == daemon)
                return findings_add(findings, "mps", VERDICT_OK,
                                    here ? format_new("the daemon and programs here use the same MPS server")
                                         : format_new("neither the daemon nor programs here use MPS: they "
                                                      "work on the GPU in turn"),
                                    NULL);
        if (here)
                return findings_add(
                        findings, "mps", VERDICT_FAIL,
                        format_new("programs here use an MPS server, and the daemon does not: they cannot "
                                   "share memory"),
                        format_new("let the unit see it: a drop-in with PrivateTmp=no and "
                                   "Environment=CUDA_MPS_PIPE_DIRECTORY=…; or end the MPS server"));
        findings_add(findings, "mps", VERDICT_FAIL,
                     format_new("the daemon uses an MPS server, and programs here do not: they cannot share "
                                "memory"),
                     format_new("export CUDA_MPS_PIPE_DIRECTORY as the daemon has it"));
}

static void doctor_gpu_seen(const struct checkup *checkup, const struct cuda *cuda,
                            struct findings *findings) {
        const char *uuid = doctor_gpu_of(checkup)->uuid ? doctor_gpu_of(checkup)->uuid : "";
        cuda_device device;
        int ordinal = cuda_find_gpu(cuda, uuid, &device);

        if (ordinal >= 0) {
                findings_add(findings, "gpu", VERDICT_OK,
                             format_new("the daemon's GPU %s is number %d here", uuid, ordinal), NULL);
                doctor_gpu_mps(checkup, cuda, device, findings);
                return;
        }
        findings_add(findings, "gpu", VERDICT_WARN,
                     format_new("the daemon serves the GPU %s, which programs with this environment do not "
                                "see",
                                uuid),
                     format_new("look at CUDA_VISIBLE_DEVICES, or choose the daemon of another GPU "
                                "(GRADSYNC_DEVICE)"));
}

static void doctor_gpu_driver(const struct checkup *checkup, struct findings *findings) {
        char error[512];
        struct cuda cuda;
        int n = 0;

        if (cuda_load(&cuda, environ_get("GRADSYNC_CUDA_DRIVER"), error, sizeof(error)) < 0)
                return findings_add(findings, "gpu driver", doctor_gpu_verdict(checkup),
                                    format_new("%s", error),
                                    format_new("install the NVIDIA driver, 580 or newer; in a container, "
                                               "start it with the GPU (--gpus)"));
        cuda.device_count(&n);
        findings_add(findings, "gpu driver", VERDICT_OK,
                     format_new("the driver is of CUDA %d.%d and shows %d GPU%s", cuda.version / 1000,
                                cuda.version % 1000 / 10, n, format_plural((size_t)n)),
                     NULL);
        if (doctor_gpu_of(checkup))
                doctor_gpu_seen(checkup, &cuda, findings);
}

/* The driver loads the module of MEMORY_NODE by a program that is setuid, which NoNewPrivileges= forbids to
 * the daemon. */
static void doctor_gpu_nodes(const struct checkup *checkup, struct findings *findings) {
        static const char *const nodes[] = { CONTROL_NODE, MEMORY_NODE };

        if (access(CONTROL_NODE, F_OK) < 0)
                return; /* the row of the driver says what there is */
        for (size_t i = 0; i < array_size(nodes); i++) {
                if (access(nodes[i], F_OK) < 0)
                        return findings_add(
                                findings, "gpu nodes", doctor_gpu_verdict(checkup),
                                format_new("there is no %s, and the daemon's unit cannot make it", nodes[i]),
                                format_new("run nvidia-modprobe -c 0 -u when the machine starts, or "
                                           "nvidia-persistenced"));
                if (access(nodes[i], R_OK | W_OK) < 0)
                        return findings_add(findings, "gpu nodes", doctor_gpu_verdict(checkup),
                                            format_new("you may not open %s", nodes[i]),
                                            format_new("join the group that owns it (ls -l %s)", nodes[i]));
        }
        findings_add(findings, "gpu nodes", VERDICT_OK,
                     format_new("%s and %s are there, and you may open them", nodes[0], nodes[1]), NULL);
}

static void doctor_gpu_sharing(const struct checkup *checkup, struct findings *findings) {
        const Wire__StatusDaemon *daemon = checkup->snapshot.daemon;

        findings_add(
                findings, "gpu sharing", VERDICT_OK,
                format_new("arenas of the daemon are for every user; CUDA IPC handles of a trainer's own "
                           "buffers are for uid %u, which the daemon runs as%s",
                           daemon->uid, daemon->uid == geteuid() ? ", as you do" : " and you do not"),
                NULL);
}

/* NCCL's processes on one host meet in /dev/shm; if they cannot, NCCL uses the network and reports
 * nothing. */
static void doctor_gpu_shared_files(const struct checkup *checkup, struct findings *findings) {
        struct stat ours, theirs;
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/root/dev/shm", checkup->snapshot.daemon->pid);
        if (stat("/dev/shm", &ours) < 0 || stat(path, &theirs) < 0)
                return; /* only its own user and root may look */
        if (ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino)
                return findings_add(findings, "gpu /dev/shm", VERDICT_OK,
                                    format_new("the daemon has the same /dev/shm as programs here"), NULL);
        findings_add(findings, "gpu /dev/shm", VERDICT_WARN,
                     format_new("the daemon has a /dev/shm of its own: NCCL takes the network between GPUs "
                                "of one host"),
                     format_new("mount the host's /dev/shm into the daemon's container, or take what hides "
                                "it out of its unit"));
}

void doctor_gpu(const struct checkup *checkup, struct findings *findings) {
        if (!doctor_gpu_matters(checkup))
                return;
        doctor_gpu_driver(checkup, findings);
        doctor_gpu_nodes(checkup, findings);
        if (!doctor_gpu_of(checkup))
                return;
        doctor_gpu_sharing(checkup, findings);
        doctor_gpu_shared_files(checkup, findings);
}
