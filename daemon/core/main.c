/* SPDX-License-Identifier: Apache-2.0 */
/* gradsyncd: reads its settings, builds the server, runs it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "core/check.h"
#include "core/config.h"
#include "core/server.h"
#include "engine/nccl/environment.h"
#include "proto/streams.h"

#define USAGE_STATUS 2 /* the command line is wrong, as gradsyncctl says it */

/* While there is one thread. */
static void main_prepare_nccl(const struct config *config) {
        char names[512];

        environment_prepare(config->nccl_settings, names, sizeof(names));
        if (names[0] != '\0')
                log_warning("%s in the environment of gradsyncd: not used; what NCCL is to be told is "
                            "`nccl_settings` in the configuration",
                            names);
        environment_list_file(ENVIRONMENT_FILE, names, sizeof(names));
        if (names[0] != '\0')
                log_warning("%s sets %s, which NCCL takes from there: set it in `nccl_settings` to decide it "
                            "here",
                            ENVIRONMENT_FILE, names);
}

static int main_run(struct config *config, const struct config_source *source) {
        struct server *server;
        char error[512] = "out of memory";

        signal(SIGPIPE, SIG_IGN);
        log_open(config->log_priority);
        if (strncmp(config->device, "cuda:", 5) == 0)
                main_prepare_nccl(config);
        if (server_new(config, source, &server, error, sizeof(error)) < 0) {
                log_error("%s", error);
                return EXIT_FAILURE;
        }
        int status = server_run(server);
        if (status == SERVER_DEVICE_FAILED || status == SERVER_ENGINE_FAILED)
                _exit(status);
        server_free(server);
        return status;
}

/* The names of the files have been printed when they were read. */
static int main_check_files(const struct config *config) {
        int status = check_settings(config, CONFIG_CHECK_FILES, stderr);

        if (status == EXIT_SUCCESS)
                printf("the configuration is right: device %s, socket %s\n", config->device, config->socket);
        return status;
}

int main(int argc, char **argv) {
        struct config_source source = { .argc = argc, .argv = argv, .list = stdout };
        enum config_action action = CONFIG_RUN;
        struct config config;
        char error[512] = "out of memory";
        int status = EXIT_SUCCESS;

        streams_fill();
        if (config_init(&config) < 0 || config_load(&config, &source, &action, error, sizeof(error)) < 0) {
                fprintf(stderr, "gradsyncd: %s\n", error);
                config_deinit(&config);
                return action == CONFIG_USAGE ? USAGE_STATUS : EXIT_FAILURE;
        }
        if (action == CONFIG_HELP)
                config_help(stdout);
        else if (action == CONFIG_VERSION)
                printf("gradsyncd %s\n", GRADSYNC_RELEASE);
        else if (action == CONFIG_CHECK)
                status = check_settings(&config, action, stdout);
        else if (action == CONFIG_CHECK_FILES)
                status = main_check_files(&config);
        else
                status = main_run(&config, &source);
        config_deinit(&config);
        return status;
}
