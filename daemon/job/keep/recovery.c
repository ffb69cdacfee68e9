/* SPDX-License-Identifier: Apache-2.0 */
/* Moments of the last loss, and totals. */
#include "job/keep/recovery.h"

#include "gradsync.pb-c.h"

const uint32_t recovery_class_us[RECOVERY_CLASSES] = { 1000,    5000,     10000,    25000,   50000,
                                                       100000,  250000,   500000,   1000000, 2500000,
                                                       5000000, 10000000, 30000000, 60000000 };

void recovery_begin(struct recovery *recovery, const struct membership_loss *loss, uint32_t generation,
                    uint64_t step, uint64_t noticed) {
        if (loss->cause == WIRE__CAUSE__LEAVING)
                return;
        recovery->any = recovery->open = true;
        recovery->rank = loss->rank;
        recovery->pid = loss->pid;
        recovery->cause = loss->cause;
        recovery->generation = generation;
        recovery->step = step;
        recovery->successor = 0;
        recovery->noticed = noticed;
        recovery->void_steps = recovery->told = recovery->filling = 0;
        recovery->regenerated = recovery->committed = 0;
}

void recovery_void(struct recovery *recovery) {
        recovery->void_steps += recovery->open && recovery->regenerated == 0;
}

void recovery_told(struct recovery *recovery, uint64_t filling, uint64_t now) {
        if (!recovery->open || recovery->regenerated != 0)
                return;
        recovery->told = now;
        recovery->filling = filling;
}

void recovery_regenerated(struct recovery *recovery, uint32_t cause, int32_t successor, uint64_t now) {
        recovery->rebuilds[cause < LIMIT_CAUSES ? cause : WIRE__CAUSE__CAUSE_NONE]++;
        if (!recovery->open || recovery->regenerated != 0)
                return;
        recovery->regenerated = now;
        recovery->successor = successor;
}

void recovery_committed(struct recovery *recovery, uint64_t now) {
        uint64_t us = now - recovery->noticed;
        unsigned class = 0;

        if (!recovery->open || recovery->regenerated == 0)
                return; /* no loss is open, or the step is of the generation that has ended */
        recovery->open = false;
        recovery->committed = now;
        recovery->recoveries++;
        recovery->us += us;
        while (class < RECOVERY_CLASSES && us > recovery_class_us[class])
                class ++;
        recovery->class[class]++;
}
