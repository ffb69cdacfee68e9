/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The documents of `--json`. Their fields are a contract (gradsyncctl(1), "JSON"): within one schema_version
 * fields are added, never renamed, removed or given another meaning.
 */
#pragma once

#include "client/cli/ask/ended.h"
#include "client/cli/ask/observe.h"
#include "client/cli/view/value.h"

/* The first field of every document. */
#define DOCUMENT_VERSION AS("schema_version", value_number(1))

/* New references; NULL if memory is short. At least one daemon must have been observed. */
json_t *document_status(const struct observation *observation);
json_t *document_jobs(const struct observation *observation);
json_t *document_clients(const struct observation *observation);
json_t *document_links(const struct observation *observation);
json_t *document_ended(const struct ended_jobs *jobs);

/* Writes a document to stdout, on one line or laid out, and drops the reference. Returns an exit code. */
int document_print(json_t *document, bool one_line);
