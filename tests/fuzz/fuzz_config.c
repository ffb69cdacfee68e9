/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration file: a text is taken, or refused with a sentence that names file and line. */
#include "fuzz.h"

#include <string.h>

#include "core/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct config config;
        char error[1024] = "";
        int result;

        must(config_init(&config) == 0);
        result = config_parse_buffer((const char *)data, size, "file", &config, error, sizeof(error));
        must(result <= 0);
        must((result < 0) == (*error != '\0'));
        if (result < 0) {
                unsigned line = 0;
                must(sscanf(error, "file:%u: ", &line) == 1 && line >= 1);
        }
        must(config.device && config.socket_group);
        config_deinit(&config);
        return 0;
}
