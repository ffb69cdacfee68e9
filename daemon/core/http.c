/* SPDX-License-Identifier: Apache-2.0 */
#include "core/http.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

static const char *const http_methods[] = { "GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS " };

bool http_begins(const char *text, size_t length) {
        for (size_t i = 0; i < array_size(http_methods); i++) {
                size_t n = strlen(http_methods[i]);

                if (strncmp(text, http_methods[i], n < length ? n : length) == 0)
                        return length > 0;
        }
        return false;
}

bool http_is_complete(const char *text) {
        return strstr(text, "\r\n\r\n") != NULL || strstr(text, "\n\n") != NULL;
}

/* The line after this one; NULL: there is none, or it is the empty one after the last header. */
static const char *http_next_line(const char *text) {
        const char *end = strchr(text, '\n');

        return end == NULL || end[1] == '\n' || strncmp(end + 1, "\r\n", 2) == 0 ? NULL : end + 1;
}

/* The value of that header in this line, without spaces around it; NULL: the line has another header. */
static const char *http_value(const char *line, const char *name, size_t *ret_length) {
        size_t n = strlen(name), length = strcspn(line, "\r\n");

        if (strncasecmp(line, name, n) != 0)
                return NULL;
        line += n;
        length -= n;
        while (length > 0 && (line[0] == ' ' || line[0] == '\t')) {
                line++;
                length--;
        }
        while (length > 0 && (line[length - 1] == ' ' || line[length - 1] == '\t'))
                length--;
        *ret_length = length;
        return line;
}

/* Without its port, and the dot at the end of a full name. */
static size_t http_host_length(const char *host, size_t length) {
        const char *end =
                length > 0 && host[0] == '[' ? memchr(host, ']', length) : memchr(host, ':', length);
        size_t n = end != NULL ? (size_t)(end - host) + (host[0] == '[') : length;

        return n > 0 && host[n - 1] == '.' ? n - 1 : n;
}

static bool http_is_name(const char *host, size_t length, const char *name) {
        return length == strlen(name) && strncasecmp(host, name, length) == 0;
}

/* An address, or a name of this host. */
static bool http_is_own_host(const char *host, size_t length, const char *const *names) {
        struct in_addr four;
        char text[16];

        length = http_host_length(host, length);
        snprintf(text, sizeof(text), "%.*s", (int)(length < sizeof(text) ? length : 0), host);
        if (length == 0 || host[0] == '[' || inet_pton(AF_INET, text, &four) == 1 ||
            http_is_name(host, length, "localhost"))
                return true;
        for (; *names != NULL; names++)
                if (http_is_name(host, length, *names))
                        return true;
        return false;
}

/* A page in a browser can let a name of its own lead to this host, and read the answer. But the browser says
 * that name. */
static bool http_is_for_us(const char *text, const char *const *names) {
        size_t length;

        while (names != NULL && (text = http_next_line(text)) != NULL) {
                const char *host = http_value(text, "host:", &length);

                if (host != NULL && !http_is_own_host(host, length, names))
                        return false;
        }
        return true;
}

/* A path, and perhaps a query, follow the method. */
static const char *http_judge(const char *text, bool head, const char *const *names) {
        const char *path = strchr(text, ' ');
        size_t length = path != NULL ? strcspn(++path, " ?\r\n") : 0;

        if (!http_begins(text, strlen(text)) || length == 0)
                return "400 Bad Request";
        if (!head && strncmp(text, "GET ", 4) != 0)
                return "405 Method Not Allowed";
        if (!http_is_for_us(text, names))
                return "421 Misdirected Request";
        if ((length == 1 && path[0] == '/') || (length == 8 && strncmp(path, "/metrics", 8) == 0))
                return "200 OK";
        return "404 Not Found";
}

void http_parse(const char *text, const char *const *names, struct http_request *ret) {
        size_t line = strcspn(text, "\r\n");

        ret->head = strncmp(text, "HEAD ", 5) == 0;
        ret->status = http_judge(text, ret->head, names);
        ret->fine = strncmp(ret->status, "200", 3) == 0;
        ret->chunked = line >= 9 && strncmp(text + line - 9, " HTTP/1.1", 9) == 0;
}

/* The length is not known before the end. A caller of HTTP/1.0 sees that end by the hang-up alone. */
void http_write_head(const struct http_request *request, FILE *to) {
        const char *end = request->chunked ? "Transfer-Encoding: chunked\r\n" : "";

        fprintf(to, "HTTP/1.1 %s\r\nContent-Type: %s\r\n%sConnection: close\r\n\r\n", request->status,
                request->fine ? "text/plain; version=0.0.4; charset=utf-8" : "text/plain",
                request->fine ? end : "Content-Length: 0\r\n");
}

void http_begin_chunk(FILE *to) {
        fputs("00000000\r\n", to);
}

void http_end_chunk(FILE *to) {
        fputs("\r\n", to);
}

void http_finish_chunk(char *text, size_t size) {
        char digits[9];

        snprintf(digits, sizeof(digits), "%08x", (unsigned)(size - HTTP_CHUNK_HEAD - HTTP_CHUNK_TAIL));
        memcpy(text, digits, 8);
}
