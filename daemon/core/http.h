/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of HTTP/1 that requests for metrics need: the meaning of a request, and the head of the response.
 * Pure: no socket, no allocation. A request may be cut off; missing parts count as not asked for.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct http_request {
        const char *status; /* of the response: "200 OK" */
        bool fine;          /* the metrics come after the head of the response, unless: */
        bool head;          /* only that is wanted */
        bool chunked;       /* they come in chunks, so that their end is seen */
};

/* Whether these bytes are the start of an HTTP request, as far as they go. */
bool http_begins(const char *text, size_t length);
/* Whether the request is there up to the empty line. */
bool http_is_complete(const char *text);
/* `names`, with NULL at the end, are this host's: a request for another host is refused, unless it is for an
 * address. NULL: for any host. */
void http_parse(const char *text, const char *const *names, struct http_request *ret);
void http_write_head(const struct http_request *request, FILE *to);

/* The size of a chunk stands before it and is known last: so many bytes are left free for it, and so many
 * come after what the chunk contains. */
#define HTTP_CHUNK_HEAD 10u
#define HTTP_CHUNK_TAIL 2u
#define HTTP_CHUNK_LAST "0\r\n\r\n" /* after all others */
void http_begin_chunk(FILE *to);
void http_end_chunk(FILE *to);
/* The whole chunk, from its head to its tail, which has contents: without any it would be the last one. */
void http_finish_chunk(char *text, size_t size);
