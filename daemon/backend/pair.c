/* SPDX-License-Identifier: Apache-2.0 */
/* One or two backends, opened and closed together. */
#include "backend/pair.h"

static bool pair_is_one(const struct pair *pair) {
        return pair->staging == pair->device;
}

int pair_open(const struct backend_ops *device, const struct backend_config *config, struct pair *ret) {
        struct pair pair = { 0 };

        *ret = (struct pair){ 0 };
        if (device == NULL)
                return 0;
        int r = device->open(config, &pair.device);
        if (r < 0)
                return r;
        pair.staging = pair.device;
        if (device != &backend_host)
                r = backend_host.open(config, &pair.staging);
        if (r < 0) {
                device->close(pair.device);
                return r;
        }
        *ret = pair;
        return 0;
}

void pair_close(struct pair *pair) {
        if (pair->staging != NULL && !pair_is_one(pair))
                pair->staging->ops->close(pair->staging);
        if (pair->device != NULL)
                pair->device->ops->close(pair->device);
        *pair = (struct pair){ 0 };
}

unsigned pair_ping(const struct pair *pair) {
        unsigned silent = pair->device != NULL ? pair->device->ops->ping(pair->device) : 0;

        return pair_is_one(pair) ? silent : silent + pair->staging->ops->ping(pair->staging);
}

unsigned pair_workers(const struct pair *pair) {
        unsigned workers = pair->device != NULL ? pair->device->ops->workers(pair->device) : 0;

        return pair_is_one(pair) ? workers : workers + pair->staging->ops->workers(pair->staging);
}
