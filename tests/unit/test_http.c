/* SPDX-License-Identifier: Apache-2.0 */
/* Requests for metrics, and the answers to them. */
#include "tests.h"

#include "core/http.h"

static struct http_request parsed(const char *text) {
        struct http_request request;

        http_parse(text, NULL, &request);
        return request;
}

TEST_ALONE(beginnings) {
        static const char *const good[] = { "G", "GET", "GET /", "HEAD /metrics HTTP/1.1", "P", "OPTIONS *" };
        static const char *const bad[] = { "g", "GET\t", "GETS /", "\x16\x03", "X", " GET /" };

        assert_false(http_begins("", 0));
        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
                assert_true(http_begins(good[i], strlen(good[i])));
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                assert_false(http_begins(bad[i], strlen(bad[i])));
}

TEST_ALONE(ends) {
        assert_false(http_is_complete("GET / HTTP/1.1\r\n"));
        assert_false(http_is_complete("GET / HTTP/1.1\r\nA: b\r\n\r"));
        assert_true(http_is_complete("GET / HTTP/1.1\r\nA: b\r\n\r\n"));
        assert_true(http_is_complete("GET /\n\n"));
}

TEST_ALONE(answers) {
        static const struct {
                const char *request, *status;
        } rows[] = {
                { "GET / HTTP/1.1\r\n\r\n", "200 OK" },
                { "GET /metrics HTTP/1.1\r\n\r\n", "200 OK" },
                { "GET /metrics?a=b HTTP/1.0\r\n\r\n", "200 OK" },
                { "HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK" },
                { "GET /metrics", "200 OK" },
                { "GET /metricsx HTTP/1.1\r\n\r\n", "404 Not Found" },
                { "GET /metric HTTP/1.1\r\n\r\n", "404 Not Found" },
                { "POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed" },
                { "DELETE / HTTP/1.1\r\n\r\n", "405 Method Not Allowed" },
                { "GET ", "400 Bad Request" },
                { "GET", "400 Bad Request" },
                { "HELLO", "400 Bad Request" },
                { "", "400 Bad Request" },
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                struct http_request request = parsed(rows[i].request);

                assert_string_equal(request.status, rows[i].status);
                assert_int_equal(request.fine, rows[i].status[0] == '2');
        }
        assert_true(parsed("HEAD / HTTP/1.1\r\n\r\n").head);
        assert_false(parsed("GET /HEAD HTTP/1.1\r\n\r\n").head);
}

/* A foreign page whose name leads to this host cannot make a browser read the metrics. */
TEST_ALONE(a_request_is_for_this_host) {
        static const char *const names[] = { "gpu17", "gpu17.example", NULL };
        static const char *const ours[] = { "10.0.0.1",     "10.0.0.1:9400", "[::1]",       "[fe80::1]:9400",
                                            "localhost:80", "gpu17",         "GPU17:9400",  "gpu17.example",
                                            "gpu17.",       "LOCALHOST.",    "\t10.0.0.1 ", "" };
        static const char *const others[] = { "evil.example",       "gpu17x",
                                              "gpu170.example",     "xgpu17",
                                              "10.0.0.1.evil",      "evil.example:80",
                                              "1.2.3.4.5",          "gpu17.evil",
                                              "gpu17.example.evil", "localhost.evil.example" };
        struct http_request request;
        char text[256];

        for (unsigned i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
                snprintf(text, sizeof(text), "GET /metrics HTTP/1.1\r\nHOST:%s\r\n\r\n", ours[i]);
                http_parse(text, names, &request);
                if (!request.fine)
                        fail_msg("'%s': %s", ours[i], request.status);
        }
        for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
                snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: localhost\r\nhost: %s\r\n\r\n",
                         others[i]);
                http_parse(text, names, &request);
                assert_string_equal(request.status, "421 Misdirected Request");
                assert_false(request.fine);
                http_parse(text, NULL, &request);
                assert_true(request.fine);
        }
        http_parse("GET /metrics HTTP/1.0\r\n\r\n", names, &request);
        assert_true(request.fine);
}

TEST_ALONE(chunks_are_for_version_1_1) {
        assert_true(parsed("GET / HTTP/1.1\r\n\r\n").chunked);
        assert_true(parsed("GET / HTTP/1.1\n\n").chunked);
        assert_false(parsed("GET / HTTP/1.0\r\n\r\n").chunked);
        assert_false(parsed("GET /").chunked);
        assert_false(parsed("GET / HTTP/1.0\r\nX: HTTP/1.1\r\n\r\n").chunked);
        assert_false(parsed("HTTP/1.1").chunked);
}

/* It may have come with the head of the request, or not yet. */
TEST_ALONE(what_comes_after_the_headers_is_none) {
        static const char *const names[] = { NULL };
        static const char *const ends[] = { "\r\n", "\n" };
        struct http_request request;
        char text[256];

        for (unsigned i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
                snprintf(text, sizeof(text), "GET / HTTP/1.1%s%sHost: evil.example\r\n", ends[i], ends[i]);
                http_parse(text, names, &request);
                assert_string_equal(request.status, "200 OK");
        }
}

static char *head_of(const char *request) {
        struct http_request asked = parsed(request);
        char *text = NULL;
        size_t size;
        FILE *to = open_memstream(&text, &size);

        http_write_head(&asked, to);
        assert_int_equal(fclose(to), 0);
        return text;
}

/* The media type does not depend on what the caller accepts. */
TEST_ALONE(heads) {
        char *text = head_of("GET / HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n");

        assert_string_equal(text,
                            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                            "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
        free(text);
        text = head_of("GET /x HTTP/1.1\r\n\r\n");
        assert_string_equal(text,
                            "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n"
                            "Connection: close\r\n\r\n");
        free(text);
}

TEST_ALONE(a_chunk_says_its_size) {
        char *text = NULL;
        size_t size;
        FILE *to = open_memstream(&text, &size);

        http_begin_chunk(to);
        for (unsigned i = 0; i < 0x1234; i++)
                fputc('x', to);
        http_end_chunk(to);
        assert_int_equal(fclose(to), 0);
        assert_int_equal(size, HTTP_CHUNK_HEAD + 0x1234 + HTTP_CHUNK_TAIL);
        http_finish_chunk(text, size);
        assert_memory_equal(text, "00001234\r\nx", 11);
        assert_memory_equal(text + size - 3, "x\r\n", 3);
        free(text);
}
