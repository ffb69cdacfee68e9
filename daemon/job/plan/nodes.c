/* SPDX-License-Identifier: Apache-2.0 */
/* What needs other nodes is refused. */
#include "job/plan/nodes.h"

#include "gradsync.pb-c.h"
#include "job/job.h"

int nodes_check(const struct job *job, struct refusal *refusal) {
        if (job->n_local == job->world)
                return 0;
        return refuse(refusal, WIRE__CODE__UNSUPPORTED,
                      "job '%s': only %u of its %u members are on this node, and this gradsyncd exchanges "
                      "nothing with other nodes",
                      job->name, job->n_local, job->world);
}
