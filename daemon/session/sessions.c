/* SPDX-License-Identifier: Apache-2.0 */
/* The table of sessions, and what they share. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "session/private.h"

int sessions_new(const struct sessions_config *config, struct sessions **ret) {
        struct sessions *sessions = calloc(1, sizeof(*sessions));

        if (sessions == NULL)
                return -ENOMEM;
        sessions->config = *config;
        list_init(&sessions->list);
        int r = codec_init(&sessions->codec);
        if (r < 0) {
                free(sessions);
                return r;
        }
        list_init(&sessions->parked);
        results_init(&sessions->results, sessions);
        config->jobs->config.on_event = sessions_on_event;
        config->jobs->config.events_data = sessions;
        reports_on_complete(config->reports, on_status_told, sessions);
        *ret = sessions;
        return 0;
}

struct sessions *sessions_free(struct sessions *sessions) {
        if (sessions == NULL)
                return NULL;
        assert(list_empty(&sessions->list));
        results_deinit(&sessions->results);
        codec_deinit(&sessions->codec);
        free(sessions);
        return NULL;
}

void sessions_set_handshake_timeout(struct sessions *sessions, uint64_t us) {
        sessions->config.handshake_timeout = us;
}

unsigned sessions_count(const struct sessions *sessions) {
        return sessions->n;
}
