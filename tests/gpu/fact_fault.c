/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last question, because its answer may cost the GPU: a trainer writes where there is no memory. Does the
 * process beside it, which owns memory that the trainer has mapped and runs a kernel at that moment, live on?
 * And does it serve the next trainer?
 */
#include "facts.h"
#include "vmm.h"

#include <inttypes.h>
#include <stdio.h>

enum { PATTERN = 0xfa };

static const uint64_t beside_ns = 2000000000; /* of the kernel that runs beside the fault */

/* Opens the driver when it is told to, and maps the daemon's memory. Asked to fault, it does; else it adds 1
 * to each word. */
static void role_fault_trainer(struct actor *actor) {
        const cuda_address nowhere = 0x10;
        struct message done = { .word = "done" }, how;
        cuda_stream stream;
        struct vmm vmm;

        channel_receive(actor, "attach", NULL);
        driver_open(actor);
        stream = driver_stream(actor);
        vmm = vmm_receive(actor, "memory");
        channel_say(actor, actor->channel, "mapped");
        how = channel_receive(actor, "begin", NULL);
        done.number[0] = (uint64_t)driver_bump(actor, stream, how.number[0] ? nowhere : vmm.address,
                                               how.number[0] ? 4096 : vmm.size);
        channel_send(actor, actor->channel, &done, -1);
        actor_stay(actor);
}

static void trainer_attach(struct actor *actor, struct peer *trainer, const struct vmm *vmm) {
        channel_say(actor, trainer->channel, "attach");
        vmm_send(actor, trainer->channel, vmm, "memory");
        peer_receive(actor, trainer, "mapped", NULL);
}

static cuda_result trainer_run(struct actor *actor, struct peer *trainer, bool fault) {
        struct message begin = { .word = "begin", .number = { fault } };

        channel_send(actor, trainer->channel, &begin, -1);
        return (cuda_result)peer_receive(actor, trainer, "done", NULL).number[0];
}

void fact_fault_neighbour(struct actor *actor) {
        uint64_t count, during;
        struct peer faulty = peer_start(actor, "fault.trainer", role_fault_trainer, false);
        struct peer next = peer_start(actor, "fault.next", role_fault_trainer, false);
        struct counter counter;
        cuda_stream busy, stream;
        cuda_result fault, kernel, later;
        struct vmm vmm;

        driver_open(actor);
        stream = driver_stream(actor);
        busy = driver_stream(actor);
        counter = counter_new(actor, stream);
        vmm = vmm_new(actor, 1);
        driver_fill(actor, stream, vmm.address, vmm.size, PATTERN);
        trainer_attach(actor, &faulty, &vmm);
        counter_launch(actor, busy, &counter, beside_ns);
        for (unsigned turn = 0; page_word(&counter.page) == 0; turn++)
                actor_spin(actor, turn);
        fault = trainer_run(actor, &faulty, true);
        during = page_word(&counter.page);
        actor_note(actor, "the trainer's kernel: %s", driver_name(actor, fault));
        if (fault == CUDA_OK)
                actor_fail(actor, "a write to address 0x10 was no fault");
        kernel = CU_TRY(actor, stream_wait, busy);
        later = driver_bump(actor, stream, vmm.address, vmm.size);
        actor_note(actor, "the kernel that ran beside it: %s; a later one: %s", driver_name(actor, kernel),
                   driver_name(actor, later));
        if (kernel != CUDA_OK || later != CUDA_OK)
                actor_answer(actor, "no");
        count = driver_read64(actor, stream, counter.device);
        actor_note(actor,
                   "it had counted to %" PRIu64 " after the fault and to %" PRIu64 " at its end, %" PRIu64
                   " in host memory; the shared memory is %s",
                   during, count, page_word(&counter.page),
                   vmm_holds(actor, stream, &vmm, PATTERN + 1) ? "as it should be" : "something else");
        peer_kill(actor, &faulty);
        trainer_attach(actor, &next, &vmm);
        actor_note(actor, "the next trainer's kernel: %s",
                   driver_name(actor, trainer_run(actor, &next, false)));
        actor_answer(actor, vmm_holds(actor, stream, &vmm, PATTERN + 2) &&
                                            count == page_word(&counter.page) && count > during
                                    ? "yes"
                                    : "no");
}
