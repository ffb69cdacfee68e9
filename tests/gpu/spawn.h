/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts this program again, as one role of one fact. CUDA does not survive a fork without exec, so each
 * process of the probe begins anew, and a role can have another user or fewer rights than the one that starts
 * it.
 */
#pragma once

#include "options.h"

#include <stdbool.h>
#include <sys/types.h>

struct board;

struct spawn {
        const char *role;
        struct board *board; /* where what goes wrong before the role begins is told */
        int board_fd;
        unsigned place;
        int channel;    /* the new process' end of its socket; -1: none */
        bool own_group; /* a process group of its own, which its children stay in */
        bool hardened;  /* PR_SET_NO_NEW_PRIVS and PR_SET_MDWE, as a hardened unit has them; inherited */
        bool other_uid; /* becomes the other user before it begins */
};

/* Starts the role. Returns its pid, or a negative errno. The caller keeps its descriptors. */
pid_t spawn_role(const struct options *options, const struct spawn *spawn);
