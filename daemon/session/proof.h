/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a member shows when it comes back after a restart of the daemon, so that no other process of its uid
 * is taken for it: HMAC-SHA-256 (RFC 2104) of who it was, under a key that all runs of this daemon have. Only
 * the member itself is told, at JOINED. Members that show none, because the daemon had no place for its key,
 * are taken at their word.
 */
#pragma once

#include "base/sha256.h"
#include "session/private.h"

_Static_assert(sizeof(struct sha256) == LIMIT_PROOF, "a digest is a proof");

/* Of the member with that stable id. 0, or -EIO if there is none to be had. */
int proof_make(const struct sessions *sessions, uid_t uid, const char *job, uint64_t incarnation,
               uint64_t member, struct sha256 *ret);
/* Whether these bytes are the proof of that member. */
bool proof_holds(const struct sessions *sessions, uid_t uid, const char *job, uint64_t incarnation,
                 uint64_t member, const ProtobufCBinaryData *shown);
