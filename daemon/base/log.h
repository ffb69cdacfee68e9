/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structured log. It goes to the journal if stderr is connected to the journal (JOURNAL_STREAM), else to
 * stderr. Lines that the journal does not take go to that stderr with a level prefix ("<4>"). On any other
 * stderr a line begins with the host's time, the daemon's name and the level: "2026-11-28 03:12:33.123
 * gradsyncd warning: ..."; `gradsyncctl run` reads that form. Control characters in texts are written as
 * \xNN. Any thread may write; errno is kept. An event is one line, written by the code that first knows it.
 * At run time the daemon logs faults and changes of membership, never the ordinary course of a step.
 */
#pragma once

#include <stdint.h>
#include <syslog.h>

/* Subjects of an event; fields left at the defaults below are not written. Journal names: GRADSYNC_JOB,
 * _RANK, _STEP, _BUCKET, _GENERATION, _PARAMETER, _CLIENT_PID, _CLIENT_UID, and MESSAGE_ID. */
struct log_context {
        const char *job;
        const char *parameter;
        const char *message_id; /* 32 hex digits: the kind of event */
        int64_t rank, step, bucket, generation, pid, uid;
};
#define LOG_CONTEXT_NONE                                                                                     \
        { .rank = -1, .step = -1, .bucket = -1, .generation = -1, .pid = -1, .uid = -1 }

/* Chooses the target. `priority` is the least urgent one that is written. */
void log_open(int priority);
void log_set_priority(int priority);
/* Name of the target: "journal" or "stderr". */
const char *log_target(void);

void log_write(int priority, const struct log_context *context, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
#define log_error(...) log_write(LOG_ERR, NULL, __VA_ARGS__)
#define log_warning(...) log_write(LOG_WARNING, NULL, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, NULL, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, NULL, __VA_ARGS__)
