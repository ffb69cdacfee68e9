/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of facts, and of the roles of their peers.
 */
#include "facts.h"

#include <string.h>

const struct fact facts[] = {
        { "machine", RISK_NONE, 30, fact_machine },
        { "library.torch", RISK_NONE, 10, fact_torch },
        { "library.nccl", RISK_NONE, 20, fact_nccl_versions },
        { "mps.control", RISK_NONE, 5, fact_mps },

        { "driver.start", RISK_LOW, 20, fact_driver_start },
        { "vmm.same_uid", RISK_LOW, 15, fact_vmm_same_uid },
        { "vmm.other_uid", RISK_LOW, 15, fact_vmm_other_uid },
        { "vmm.fstat", RISK_LOW, 15, fact_vmm_fstat },
        { "vmm.wrong_size", RISK_LOW, 15, fact_vmm_wrong_size },
        { "ipc.same_uid", RISK_LOW, 15, fact_ipc_same_uid },
        { "ipc.other_uid", RISK_LOW, 15, fact_ipc_other_uid },
        { "ipc.base_offset", RISK_LOW, 15, fact_ipc_base_offset },
        { "wait.cpu_store", RISK_LOW, 15, fact_wait_cpu_store },
        { "wait.event_seen", RISK_LOW, 15, fact_wait_event_seen },
        { "wait.event_releases", RISK_LOW, 15, fact_wait_event_releases },
        { "speed.copy", RISK_LOW, 15, fact_speed_copy },
        { "speed.launch", RISK_LOW, 15, fact_speed_launch },
        { "speed.event", RISK_LOW, 15, fact_speed_event },
        { "slices.turns", RISK_LOW, 15, fact_slices },
        { "slices.launch", RISK_LOW, 15, fact_slices_launch },

        { "kill.exporter", RISK_KILL, 30, fact_kill_exporter },
        { "kill.importer", RISK_KILL, 30, fact_kill_importer },
        { "kill.queued", RISK_KILL, 30, fact_kill_queued },

        { "nccl.window", RISK_NCCL, 30, fact_nccl_window },
        { "nccl.two_ranks", RISK_NCCL, 30, fact_nccl_two_ranks },
        { "nccl.revoked", RISK_NCCL, 30, fact_nccl_revoked },
        { "nccl.peer_killed", RISK_NCCL, 30, fact_nccl_peer_killed },

        { "ipc.neighbour", RISK_UNDEFINED, 15, fact_ipc_neighbour },
        { "ipc.exporter_frees_first", RISK_UNDEFINED, 15, fact_ipc_exporter_frees_first },
        { "vmm.touch_beyond", RISK_UNDEFINED, 15, fact_vmm_touch_beyond },

        { "fault.neighbour", RISK_FAULT, 20, fact_fault_neighbour },
};

const unsigned n_facts = sizeof facts / sizeof *facts;

static const struct {
        const char *name;
        actor_run *run;
} roles[] = {
        { "vmm.importer", role_vmm_importer },
        { "vmm.exporter", role_vmm_exporter },
        { "ipc.importer", role_ipc_importer },
        { "ipc.exporter", role_ipc_exporter },
        { "ipc.neighbours", role_ipc_neighbours },
        { "wait.releaser", role_wait_releaser },
        { "wait.observer", role_wait_observer },
        { "wait.recorder", role_wait_recorder },
        { "slices.other", role_slices_other },
        { "slices.busy", role_slices_busy },
        { "kill.exporter.writer", role_kill_exporter },
        { "kill.importer.writer", role_kill_importer },
        { "nccl.rank", role_nccl_rank },
        { "fault.trainer", role_fault_trainer },
};

actor_run *facts_role(const char *name, bool *peer) {
        *peer = false;
        for (unsigned i = 0; i < n_facts; i++)
                if (strcmp(facts[i].name, name) == 0)
                        return facts[i].run;
        if (strcmp(name, "holder") == 0)
                return role_holder;
        *peer = true;
        for (unsigned i = 0; i < sizeof roles / sizeof *roles; i++)
                if (strcmp(roles[i].name, name) == 0)
                        return roles[i].run;
        return NULL;
}
