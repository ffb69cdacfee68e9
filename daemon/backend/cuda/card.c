/* SPDX-License-Identifier: Apache-2.0 */
/* See card.h. */
#include "backend/cuda/card.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/image.h"
#include "backend/cuda/launch.h"
#include "base/clock.h"

struct card_report {
        const struct cuda *cuda;
        const char *device;
        char *error;
        size_t size;
};

static int report_failed(const struct card_report *report, const char *what, cuda_result result) {
        char name[64];

        snprintf(report->error, report->size, "cuda:%s: %s: %s", report->device, what,
                 cuda_error(report->cuda, result, name, sizeof(name)));
        return -ENODEV;
}

static int report_refused(const struct card_report *report, const char *why) {
        snprintf(report->error, report->size, "cuda:%s: %s", report->device, why);
        return -ENOTSUP;
}

/* Whether GPU number `ordinal` is the device. A number is compared as text, so that "00" and "+1" are
 * none. */
static bool card_is(struct card *card, const struct card_report *report, int ordinal, cuda_result *ret) {
        char number[16];
        struct cuda_uuid uuid;

        snprintf(number, sizeof(number), "%d", ordinal);
        *ret = card->cuda.device_get(&card->device, ordinal);
        if (*ret == CUDA_OK)
                *ret = card->cuda.device_uuid(&uuid, card->device);
        if (*ret != CUDA_OK)
                return false;
        cuda_uuid_text(&uuid, card->uuid);
        return strcmp(report->device, number) == 0 || strcmp(report->device, card->uuid) == 0;
}

static int card_find(struct card *card, const struct card_report *report) {
        char uuids[512] = "";
        int n = 0;
        cuda_result r = card->cuda.device_count(&n);

        for (int i = 0; i < n && r == CUDA_OK; i++) {
                if (card_is(card, report, i, &r))
                        return 0;
                size_t used = strlen(uuids);
                snprintf(uuids + used, sizeof(uuids) - used, "%s%d (%s)", i > 0 ? ", " : "", i, card->uuid);
        }
        if (r != CUDA_OK)
                return report_failed(report, "the GPUs cannot be listed", r);
        snprintf(report->error, report->size, "cuda:%s: there is no such GPU; there are: %s", report->device,
                 n > 0 ? uuids : "none");
        return -ENODEV;
}

static int card_attribute(struct card *card, unsigned attribute) {
        int value = 0;

        card->cuda.device_attribute(&value, attribute, card->device);
        return value;
}

static int card_describe(struct card *card, const struct card_report *report) {
        int mode = card_attribute(card, CUDA_DEVICE_COMPUTE_MODE),
            major = card_attribute(card, CUDA_DEVICE_MAJOR);
        cuda_result r = card->cuda.device_name(card->name, sizeof(card->name), card->device);

        if (r == CUDA_OK)
                r = card->cuda.device_total(&card->bytes, card->device);
        if (r != CUDA_OK)
                return report_failed(report, "the GPU tells neither its name nor its memory", r);
        snprintf(card->architecture, sizeof(card->architecture), "sm_%d%d", major,
                 card_attribute(card, CUDA_DEVICE_MINOR));
        card->processors = card_attribute(card, CUDA_DEVICE_MULTIPROCESSORS);
        card->mps = card_attribute(card, CUDA_DEVICE_MPS) != 0;
        card->rdma = card_attribute(card, CUDA_DEVICE_RDMA) != 0;
        if (major < 8)
                return report_refused(report, "the GPU is too old: compute capability 8.0 is needed (sm_80)");
        if (!card_attribute(card, CUDA_DEVICE_VMM) || !card_attribute(card, CUDA_DEVICE_FD_HANDLES))
                return report_refused(report, "its memory cannot be shared through file descriptors");
        if (mode == CUDA_COMPUTE_PROHIBITED)
                return report_refused(report, "its compute mode is Prohibited: nvidia-smi -c DEFAULT");
        if (mode == CUDA_COMPUTE_EXCLUSIVE_PROCESS && !card->mps)
                return report_refused(report,
                                      "its compute mode is Exclusive_Process, so no trainer could use it "
                                      "beside the daemon: nvidia-smi -c DEFAULT, or start MPS");
        return 0;
}

static int card_load(struct card *card, const struct card_report *report) {
        cuda_module module;
        cuda_result r = card->cuda.module_load(&module, grid_image);

        for (unsigned i = 0; i < GRID_KERNELS && r == CUDA_OK; i++)
                r = card->cuda.module_function(&card->kernel[i], module, launch_names[i]);
        return r == CUDA_OK ? 0 : report_failed(report, "the kernels cannot be loaded", r);
}

static int card_start(struct card *card, const struct card_report *report) {
        const struct cuda_properties properties = {
                .type = CUDA_ALLOCATION_PINNED,
                .handle_types = CUDA_HANDLE_FD,
                .location = { CUDA_LOCATION_DEVICE, card->device },
        };
        cuda_result r;

        card->cuda.primary_flags(card->device, CUDA_CTX_BLOCKING_SYNC);
        r = card->cuda.primary_retain(&card->context, card->device);
        if (r != CUDA_OK) {
                card->context = NULL;
                return report_failed(report, "no context can be made", r);
        }
        r = card_enter(card);
        if (r == CUDA_OK)
                r = card->cuda.granularity(&card->granularity, &properties, CUDA_GRANULARITY_RECOMMENDED);
        return r == CUDA_OK ? card_load(card, report) : report_failed(report, "its memory cannot be used", r);
}

int card_open(struct card *card, const char *device, const char *library, char *error, size_t size) {
        struct card_report report = { &card->cuda, device, error, size };
        int r;

        *card = (struct card){ .opened = clock_now() };
        r = cuda_load(&card->cuda, library, error, size);
        if (r < 0)
                return r;
        r = card_find(card, &report);
        if (r == 0)
                r = card_describe(card, &report);
        return r == 0 ? card_start(card, &report) : r;
}

void card_close(struct card *card) {
        if (card->context != NULL)
                card->cuda.primary_release(card->device);
        card->context = NULL;
}

cuda_result card_enter(const struct card *card) {
        return card->cuda.context_set(card->context);
}
