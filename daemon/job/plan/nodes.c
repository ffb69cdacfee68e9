/* SPDX-License-Identifier: Apache-2.0 */
/* What needs other nodes is refused where no engine leads to them. */
#include "job/plan/nodes.h"

#include "gradsync.pb-c.h"
#include "job/data.h"

int nodes_check(const struct job *job, struct refusal *refusal) {
        if (job->n_local == job->world || job->table->config.engine != NULL)
                return 0;
        return refuse(refusal, WIRE__CODE__UNSUPPORTED,
                      "job '%s': only %u of its %u members are on this node, and this gradsyncd exchanges "
                      "nothing with other nodes",
                      job->name, job->n_local, job->world);
}

struct shared_config nodes_shared(struct job *job, struct backend *backend) {
        const struct jobs_config *config = &job->table->config;

        return (struct shared_config){ .job = job,
                                       .backend = backend,
                                       .engine = config->engine,
                                       .id = ++job->table->last_shared,
                                       .accounts = config->accounts,
                                       .uid = job->uid };
}
