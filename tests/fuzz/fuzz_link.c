/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that decide who may connect: key files, and addresses. What is accepted keeps its bounds. */
#include "fuzz.h"

#include <string.h>

#include "link/address.h"
#include "link/key.h"
#include "proto/frame.h"

static void hear_keys(const char *text, size_t size) {
        struct keys keys;
        char error[512] = "";

        if (keys_parse(text, size, "k", &keys, error, sizeof(error)) < 0) {
                must(error[0] != '\0' && keys.n == 0);
                return;
        }
        must(keys.n >= 1 && keys.n <= KEYS_MOST);
        for (unsigned i = 0; i < keys.n; i++) {
                const struct key *key = &keys.key[i];

                must(strlen(key->name) >= 1 && key->length >= KEY_LEAST && key->length <= KEY_MOST);
                must(key->n_ranges <= KEY_RANGES);
                must(keys_find(&keys, key->name, strlen(key->name), 0) == key);
                for (unsigned k = 0; k < key->n_ranges; k++)
                        must(key_speaks_for(key, key->range[k].first) &&
                             key_speaks_for(key, key->range[k].last));
        }
}

static void hear_address(const char *text, size_t size) {
        struct address address;
        char error[512] = "", copy[400];

        if (size >= sizeof(copy))
                return;
        memcpy(copy, text, size);
        copy[size] = '\0';
        if (address_parse(copy, &address, error, sizeof(error)) < 0)
                must(error[0] != '\0');
        else
                must(address.local ? address.path[0] == '/'
                                   : address.host[0] != '\0' && address.port[0] != '\0');
}

static void hear_header(const uint8_t *data, size_t size) {
        struct frame_header header;

        if (size >= FRAME_HEADER && frame_decode_header(data, 1000, &header) == FRAME_OK)
                must(header.length <= 1000 && header.fds <= FRAME_FDS_MAX && header.major == FRAME_MAJOR);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        hear_keys((const char *)data, size);
        hear_address((const char *)data, size);
        hear_header(data, size);
        return 0;
}
