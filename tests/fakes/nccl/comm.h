/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators of the fake NCCL, in the process of a rank. One that is gone stays in the list, so that its
 * use is noticed. How ranks meet is in meet.h.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "board.h"
#include "proto/nccl.h"

enum { /* more of ncclResult_t */
       NCCL_CUDA_ERROR = 1,
       NCCL_INTERNAL_ERROR = 3,
};

enum comm_state {
        COMM_NEW,
        COMM_READY,
        COMM_REVOKED,
        COMM_FINALIZED,
        COMM_FAILED,
        COMM_GONE,
};

struct ncclComm {
        struct ncclComm *next;
        _Atomic enum comm_state state;
        unsigned working;   /* tasks under way that concern it: no other call may be made */
        nccl_result result; /* of the last one */
        int ctas;           /* of a collective */
        unsigned char id[BOARD_ID];
        unsigned rank, ranks;
        int fd;
        struct board *_Atomic board; /* NULL: it was not there, or has left */
        uint64_t launched;           /* collectives */
        int device;
        unsigned char uuid[16];
        _Atomic bool stops; /* what waits for others ends */
        _Atomic bool aborted;
        struct registration *registrations;
        unsigned windows;     /* that were registered, to be used alike */
        struct nccl_id grows; /* what ncclCommGetUniqueId() said */
        bool has_grows;
};

/* Guards `working` and `result` of all communicators. */
extern pthread_mutex_t comm_lock;

/* The version that ncclGetVersion() gives. */
int comm_version(void);
/* Makes one for the current context's GPU. NULL: there is no context. */
struct ncclComm *comm_new(int ctas);
/* Whether this is a communicator, though it may be gone. */
bool comm_is(const struct ncclComm *comm);
/* `config` may be NULL, which is an error, as all are that let calls block. */
nccl_result comm_configure(const struct nccl_config *config, int *ret_ctas);

/* Growing has ids of its own. */
void comm_id_new(struct nccl_id *ret, bool grows);
/* False: no such id was ever made. */
bool comm_id_is(const struct nccl_id *id, bool grows);
void comm_id_take(struct ncclComm *comm, const struct nccl_id *id);
/* An id for those that agree on all of this. */
void comm_id_derive(struct ncclComm *child, const struct ncclComm *parent, uint64_t round, int64_t part);

/* The result that ncclCommGetAsyncError() gives. */
nccl_result comm_result(const struct ncclComm *comm);
bool comm_is_at_work(const struct ncclComm *comm);
/* Raises the flag that ends kernels and waits for others. comm_settle() waits until no call is under way, and
 * raises it again. */
void comm_interrupt(struct ncclComm *comm);
void comm_settle(struct ncclComm *comm);
/* Waits until the communicator's kernels are over. */
void comm_drain(const struct ncclComm *comm);
/* Lowers the flag. */
void comm_resume(struct ncclComm *comm);
/* Waits until the flag is raised, */
void comm_await_interrupt(const struct ncclComm *comm);
/* and until ncclCommAbort() is called. */
void comm_await_abort(const struct ncclComm *comm);
/* The communicator is gone. */
void comm_leave(struct ncclComm *comm);
