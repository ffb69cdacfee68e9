/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes from a caller of the metrics, at the socket file and at the address on the network. The answer is
 * whole, and does not depend on the pieces in which the bytes come. A caller that has not sent enough when
 * its time is over is hung up, or gets the text alone.
 */
#include "fuzz.h"

#include <string.h>
#include <unistd.h>

#include "core/exporter.h"
#include "core/http.h"
#include "core/port.h"
#include "fuzz_loop.h"

#define TEXT "one 1\ntwo 2\n"

static int listener; /* of the next exporter */

/* ---- in place of scrape.c, closer.c, port.c and listener.c ---- */

void scrape_begin(struct scrape *scrape, const struct scrape_config *config) {
        *scrape = (struct scrape){ .config = config };
}

void scrape_end(struct scrape *scrape) {
        scrape->stage = SCRAPE_OVER;
}

bool scrape_is_over(const struct scrape *scrape) {
        return scrape->stage == SCRAPE_OVER;
}

void scrape_write(struct scrape *scrape, FILE *to) {
        fputs(scrape->stage == SCRAPE_DAEMON ? "one 1\n" : "two 2\n", to);
        scrape->stage = scrape->stage == SCRAPE_DAEMON ? SCRAPE_JOBS : SCRAPE_OVER;
}

void closer_hang_up(struct closer *closer, int sock, uid_t uid) {
        close(sock);
}

void closer_close_at_once(struct closer *closer, int fd) {
        close(fd);
}

int port_listen(const char *address, int *ret, char *error, size_t size) {
        *ret = listener;
        return 0;
}

int listener_bind(const struct listener_config *config, int type, int *ret, char *error, size_t size) {
        *ret = listener;
        return 0;
}

/* ---- callers ---- */

/* Handles one caller, from its beginning to its end. */
static void call(int at, const uint8_t *data, size_t size, size_t piece, struct fuzz_answer *answer) {
        unsigned sources = fuzz_sources();

        fuzz_connect(at, answer);
        for (size_t from = 0; from < size && fuzz_is_open(); from += piece)
                fuzz_send(data + from, size - from < piece ? size - from : piece);
        fuzz_time_out();
        must(!fuzz_is_open() && fuzz_sources() == sources);
}

/* Checks each chunk, and then the end. */
static void check_chunks(const char *text) {
        char whole[sizeof(TEXT)] = "";
        unsigned size;

        while (sscanf(text, "%8x", &size) == 1 && size > 0) {
                text = strstr(text, "\r\n") + 2;
                must(strlen(text) > size && strlen(whole) + size < sizeof(whole));
                strncat(whole, text, size);
                text += size;
                must(strncmp(text, "\r\n", 2) == 0);
                text += 2;
        }
        must(strcmp(text, HTTP_CHUNK_LAST) == 0 && strcmp(whole, TEXT) == 0);
}

static void check(const struct fuzz_answer *answer, bool network) {
        const char *text = answer->text, *body = strstr(text, "\r\n\r\n");

        if (answer->n == 0 || (!network && strcmp(text, TEXT) == 0))
                return; /* hung up, or no HTTP */
        must(strlen(text) == answer->n && strncmp(text, "HTTP/1.1 ", 9) == 0 && body != NULL);
        body += 4;
        if (strncmp(text + 9, "200 OK\r\n", 8) != 0)
                must(strstr(text, "\r\nContent-Length: 0\r\n") != NULL && body[0] == '\0');
        else if (body[0] != '\0' && strstr(text, "\r\nTransfer-Encoding: chunked\r\n") != NULL)
                check_chunks(body);
        else
                must(body[0] == '\0' || strcmp(body, TEXT) == 0);
}

static int begin(bool network) {
        static struct exporter *exporter[2];
        struct exporter_config config = { .socket = { .fd = -1, .path = "/dev/null" } };
        char error[256];

        must(loop_new(&config.loop) == 0);
        config.address = network ? "127.0.0.1:9" : NULL;
        listener = fuzz_listener();
        must(exporter_new(&config, &exporter[network], error, sizeof(error)) == 0);
        return listener;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static struct fuzz_answer whole, parts;
        static int at[2];
        size_t piece = size > 0 ? 1 + size / 16 + data[size - 1] % 8u : 1;

        for (unsigned network = 0; network < 2; network++) {
                if (at[network] == 0)
                        at[network] = begin(network);
                call(at[network], data, size, size, &whole);
                call(at[network], data, size, piece, &parts);
                check(&whole, network);
                must(whole.n == parts.n && memcmp(whole.text, parts.text, whole.n) == 0);
        }
        return 0;
}
