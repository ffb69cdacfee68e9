/* SPDX-License-Identifier: Apache-2.0 */
/* The struct that the files of this layer share: see report.h. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "report/private.h"

static const struct jobs_observer reports_observer = {
        .posted = letters_take,
        .inquire = peers_inquire,
        .blame = peers_blame,
        .entangled = peers_entangled,
        .host_of = peers_host_of,
        .missing = peers_missing,
};

int reports_new(const struct reports_config *config, struct reports **ret) {
        struct reports *reports = calloc(1, sizeof(*reports));

        if (reports == NULL)
                return -ENOMEM;
        reports->config = *config;
        reports->started = clock_now();
        reports->start_time = clock_wall();
        list_init(&reports->clients);
        list_init(&reports->sums);
        int r = views_new(config->loop, config->accounts, &reports->views);
        if (r < 0) {
                free(reports);
                return r;
        }
        config->jobs->config.observer = &reports_observer;
        config->jobs->config.observer_data = reports;
        *ret = reports;
        return 0;
}

struct reports *reports_free(struct reports *reports) {
        if (reports == NULL)
                return NULL;
        assert(list_empty(&reports->clients));
        views_free(reports->views);
        free(reports);
        return NULL;
}

void reports_use_cluster(struct reports *reports, const struct reports_cluster *cluster) {
        reports->cluster = *cluster;
        views_set_trouble(reports->views, cluster->trouble, cluster->data);
}

void reports_add_client(struct reports *reports, struct client *client) {
        client->id = ++reports->last_client;
        list_append(&reports->clients, &client->link);
}

void reports_on_complete(struct reports *reports, void (*complete)(void *data), void *data) {
        views_on_complete(reports->views, complete, data);
}
