/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engines.h"

#include <stddef.h>

#if HAVE_GLOO
#include "engine/gloo/gloo.h"

int engines_open(const struct engines_config *config, struct engine **ret) {
        struct gloo_config gloo = { .helper = config->gloo_helper[0] != '\0' ? config->gloo_helper
                                                                             : GLOO_HELPER,
                                    .silence = config->silence,
                                    /* Before the coordinator gives up what is built, after twice as long. */
                                    .timeout = config->silence + config->silence / 2 };

        return gloo_open(&gloo, ret);
}

void engines_close(struct engine *engine) {
        gloo_close(engine);
}
#else
int engines_open(const struct engines_config *config, struct engine **ret) {
        *ret = NULL;
        return 0;
}

void engines_close(struct engine *engine) {}
#endif
