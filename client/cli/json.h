/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The documents of `--json`. Their fields are a contract (gradsyncctl(1), "JSON"): within one schema_version
 * fields are added, never renamed, removed or given another meaning.
 */
#pragma once

#include <jansson.h>

#include "observe.h"

#define JSON_SCHEMA_VERSION 1

/* New references; NULL if memory is short. At least one daemon must have been observed. */
json_t *json_status(const struct observation *observation);
json_t *json_jobs(const struct observation *observation);
json_t *json_clients(const struct observation *observation);

/* Writes a document to stdout, on one line or laid out, and drops the reference. Returns an exit code. */
int json_print(json_t *document, bool one_line);
