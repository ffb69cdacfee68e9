/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes text that others chose (names of jobs, parameters and programs, sentences of a daemon) safe for a
 * terminal: control characters, bidirectional overrides and bytes that are not UTF-8 become visible as \xNN,
 * one per byte. Pure.
 */
#pragma once

/* A copy that is safe to print; NULL and "" give "". NULL only if memory is short. */
char *escape_text(const char *text);
