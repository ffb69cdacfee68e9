/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the fake NCCL that take their time: each in a thread of its own, except for those that end a
 * communicator. */
#pragma once

#include "comm.h"
#include "tests/fakes/gpu/gpu.h"

struct task {
        nccl_result (*run)(struct task *task);
        struct ncclComm *comm, *parent; /* either may be NULL */
        struct ncclComm **ret;          /* makes `comm`, which is known there when all is done */
        bool makes;                     /* `comm` */
        bool ends;                      /* `comm`; it blocks */
        bool silent;                    /* in progress is no result of the call */
        cuda_context context;           /* of the thread that asks */
        union {
                struct {
                        struct gpu_collective what;
                        cuda_stream stream;
                } collective;
                struct {
                        int key;
                } split;
                struct {
                        unsigned mask; /* ranks that remain */
                } shrink;
                struct {
                        struct nccl_id id; /* of none, in old ranks but one */
                } grow;
                struct {
                        void *at;
                        size_t bytes;
                        int flags;
                        void **ret;
                } window;
        };
};

/* Runs a copy of it. */
nccl_result task_submit(const struct task *task);
