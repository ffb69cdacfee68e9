/* SPDX-License-Identifier: Apache-2.0 */
/* Every fact, with how risky it is to ask. */
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
};

/* X(name, risk, deadline in seconds, function) */
#define FACTS(X)                                                                                             \
        X("machine", RISK_NONE, 30, fact_machine)                                                            \
        X("mps.control", RISK_NONE, 5, fact_mps)                                                             \
        X("driver.start", RISK_LOW, 20, fact_driver_start)                                                   \
        X("vmm.same_uid", RISK_LOW, 15, fact_vmm_same_uid)                                                   \
        X("vmm.other_uid", RISK_LOW, 15, fact_vmm_other_uid)                                                 \
        X("vmm.wrong_size", RISK_LOW, 15, fact_vmm_wrong_size)                                               \
        X("ipc.same_uid", RISK_LOW, 15, fact_ipc_same_uid)                                                   \
        X("ipc.other_uid", RISK_LOW, 15, fact_ipc_other_uid)                                                 \
        X("wait.cpu_store", RISK_LOW, 15, fact_wait_cpu_store)                                               \
        X("slices.turns", RISK_LOW, 15, fact_slices)                                                         \
        X("slices.launch", RISK_LOW, 15, fact_slices_launch)                                                 \
        X("kill.exporter", RISK_KILL, 30, fact_kill_exporter)                                                \
        X("kill.importer", RISK_KILL, 30, fact_kill_importer)                                                \
        X("kill.queued", RISK_KILL, 30, fact_kill_queued)                                                    \
        X("nccl.window", RISK_NCCL, 30, fact_nccl_window)                                                    \
        X("nccl.two_ranks", RISK_NCCL, 30, fact_nccl_two_ranks)                                              \
        X("nccl.revoked", RISK_NCCL, 30, fact_nccl_revoked)                                                  \
        X("ipc.neighbour", RISK_UNDEFINED, 15, fact_ipc_neighbour)                                           \
        X("ipc.exporter_frees_first", RISK_UNDEFINED, 15, fact_ipc_exporter_frees_first)                     \
        X("vmm.touch_beyond", RISK_UNDEFINED, 15, fact_vmm_touch_beyond)                                     \
        X("fault.neighbour", RISK_FAULT, 20, fact_fault_neighbour)

#define FACT_FUNCTION(name, risk, deadline, function) actor_run function;
FACTS(FACT_FUNCTION)
#undef FACT_FUNCTION
