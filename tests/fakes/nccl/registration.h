/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that was registered with a communicator. */
#pragma once

#include "comm.h"

/* Forgets all of them, and logs those whose memory went first. */
void registrations_drop(struct ncclComm *comm);
/* Where a collective is in windows that all ranks use at the same place; 0: not, or a rank of it is not. */
uint64_t registrations_place(const struct ncclComm *comm, uintptr_t from, uintptr_t to, size_t bytes);
