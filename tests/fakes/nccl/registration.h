/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that was registered with a communicator. */
#pragma once

#include "comm.h"

/* Forgets all of them, and logs those whose memory went first. */
void registrations_drop(struct ncclComm *comm);
