/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every fact, and every role that a fact's peers play. The table in facts.c says what each asks and how risky
 * it is.
 */
#pragma once

#include "actor.h"

/* The harm that a fact may do to the machine. Facts run in this order, the riskiest last. */
enum risk {
        RISK_NONE,      /* looks at files */
        RISK_LOW,       /* what CUDA documents */
        RISK_KILL,      /* processes die in the middle of kernels */
        RISK_NCCL,      /* two ranks on one GPU, an abort */
        RISK_UNDEFINED, /* what CUDA documents as undefined */
        RISK_FAULT,     /* an illegal access on the GPU */
        RISKS,
};

struct fact {
        const char *name;
        enum risk risk;
        double deadline; /* seconds */
        actor_run *run;
};

extern const struct fact facts[];
extern const unsigned n_facts;

/* The role of that name; NULL: there is none. A peer's has a channel to the fact that it is a part of. */
actor_run *facts_role(const char *name, bool *peer);

/* fact_machine.c */
void fact_machine(struct actor *actor);
void role_holder(struct actor *actor);
void fact_mps(struct actor *actor);
void fact_driver_start(struct actor *actor);

/* fact_library.c */
void fact_torch(struct actor *actor);
void fact_nccl_versions(struct actor *actor);

/* fact_vmm.c */
void fact_vmm_same_uid(struct actor *actor);
void fact_vmm_other_uid(struct actor *actor);
void fact_vmm_fstat(struct actor *actor);
void fact_vmm_wrong_size(struct actor *actor);
void fact_vmm_touch_beyond(struct actor *actor);
void role_vmm_importer(struct actor *actor);
void role_vmm_exporter(struct actor *actor);

/* fact_ipc.c */
void fact_ipc_same_uid(struct actor *actor);
void fact_ipc_other_uid(struct actor *actor);
void fact_ipc_exporter_frees_first(struct actor *actor);
void fact_ipc_base_offset(struct actor *actor);
void fact_ipc_neighbour(struct actor *actor);
void role_ipc_importer(struct actor *actor);
void role_ipc_exporter(struct actor *actor);
void role_ipc_neighbours(struct actor *actor);

/* fact_wait.c */
void fact_wait_cpu_store(struct actor *actor);
void fact_wait_event_seen(struct actor *actor);
void fact_wait_event_releases(struct actor *actor);
void role_wait_releaser(struct actor *actor);
void role_wait_observer(struct actor *actor);
void role_wait_recorder(struct actor *actor);

/* fact_slices.c */
void fact_slices(struct actor *actor);
void fact_slices_launch(struct actor *actor);
void role_slices_other(struct actor *actor);
void role_slices_busy(struct actor *actor);

/* fact_speed.c */
void fact_speed_copy(struct actor *actor);
void fact_speed_launch(struct actor *actor);
void fact_speed_event(struct actor *actor);

/* fact_kill.c */
void fact_kill_exporter(struct actor *actor);
void fact_kill_importer(struct actor *actor);
void fact_kill_queued(struct actor *actor);
void role_kill_exporter(struct actor *actor);
void role_kill_importer(struct actor *actor);

/* fact_nccl.c */
void fact_nccl_two_ranks(struct actor *actor);
void fact_nccl_revoked(struct actor *actor);
void fact_nccl_window(struct actor *actor);
void fact_nccl_peer_killed(struct actor *actor);
void role_nccl_rank(struct actor *actor);

/* fact_fault.c */
void fact_fault_neighbour(struct actor *actor);
void role_fault_trainer(struct actor *actor);
