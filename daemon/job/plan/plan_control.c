/* SPDX-License-Identifier: Apache-2.0 */
/* See plan_control.h. */
#include "job/plan/plan_control.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "gradsync.pb-c.h"
#include "job/plan/plan.h"
#include "proto/memfd.h"

int plan_control_new(struct plan_part *part, uint64_t bytes) {
        int fd = memfd_new(MEMFD_CONTROL, bytes);

        if (fd < 0)
                return fd;
        part->control = fd;
        part->control_bytes = bytes;
        return 0;
}

/* A file that is no memfd could let a read wait for ever; one of another size is not what was described. */
int plan_control_adopt(struct plan_part *part, int *fd, uint64_t bytes, struct refusal *refusal) {
        struct memfd_file file;
        char text[512];
        int r = memfd_check(*fd, 0, bytes, &file, text, sizeof(text));

        if (r == 0)
                r = memfd_check_end(*fd, &file, text, sizeof(text));
        if (r > 0)
                return refuse(refusal, (uint32_t)r, "its control memory: %s", text);
        if (r == 0 && file.size != bytes)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "its control memory has %" PRIu64 " bytes instead of %" PRIu64, file.size,
                              bytes);
        if (r < 0)
                return r;
        part->control = fd_steal(fd);
        part->control_bytes = bytes;
        return 0;
}

void plan_control_release(struct plan_part *part) {
        if (part->control_bytes > 0)
                close(part->control);
        part->control_bytes = 0;
}

bool plan_control_read(const struct plan *plan, uint32_t local, struct diagnosis *ret, size_t size) {
        const struct plan_part *part = &plan->part[local];

        return part->control_bytes > 0 && pread(part->control, ret, size, 0) == (ssize_t)size &&
               ret->version <= DIAGNOSIS_VERSION;
}
