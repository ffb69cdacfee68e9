/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts that decide who may connect: key files, and addresses. Accepted values keep their bounds. And the
 * stream of a connection between daemons: the owner gets the same frames, whatever the pieces in which the
 * bytes come.
 */
#include "fuzz.h"

#include <string.h>

#include "fuzz_loop.h"
#include "link/link.h"
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
                char uids[KEY_UIDS];

                key_uids(key, uids);
                must(key_uids_cover(uids, uids) && key_uids_cover("*", uids));
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

/* A summary of the calls to the owner. */
struct heard {
        unsigned ups, frames, downs;
        uint64_t digest;
};

static struct heard heard;

static void digest(const void *bytes, size_t length) {
        for (size_t i = 0; i < length; i++)
                heard.digest = (heard.digest ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
}

static void on_up(void *owner, struct peer *peer) {
        must(heard.ups == 0 && heard.downs == 0);
        heard.ups++;
        digest(peer_node(peer), LINK_NODE);
        digest(peer_host(peer), strlen(peer_host(peer)));
        digest(peer_release(peer), strlen(peer_release(peer)));
        peer_send(peer, LINK_FIRST_TYPE, 1, "x", 1);
}

static const char *on_frame(void *owner, struct peer *peer, unsigned type, uint32_t about, const void *bytes,
                            size_t length) {
        must(heard.ups == 1 && heard.downs == 0 && type >= LINK_FIRST_TYPE && length <= LINK_PAYLOAD);
        heard.frames++;
        digest(&type, sizeof(type));
        digest(&about, sizeof(about));
        digest(bytes, length);
        return type == LINK_FIRST_TYPE + 1 ? "it is a test" : NULL;
}

static void on_down(void *owner, struct peer *peer, const char *why) {
        must(heard.ups == 1 && heard.downs == 0 && why[0] != '\0');
        heard.downs++;
        digest(why, strlen(why));
}

/* Handles one connection, from its beginning to its end. */
static struct heard hear_pieces(int listener, const uint8_t *data, size_t size, size_t piece) {
        static struct fuzz_answer answer;
        unsigned sources = fuzz_sources();

        memset(&heard, 0, sizeof(heard));
        fuzz_connect(listener, &answer);
        for (size_t at = 0; at < size && fuzz_is_open(); at += piece)
                fuzz_send(data + at, size - at < piece ? size - at : piece);
        if (fuzz_is_open())
                fuzz_hang_up();
        must(!fuzz_is_open() && fuzz_sources() == sources && heard.ups == heard.downs);
        return heard;
}

static void hear_stream(const uint8_t *data, size_t size) {
        static const struct links_events events = { .up = on_up, .frame = on_frame, .down = on_down };
        static const uint8_t node[LINK_NODE] = { 1 };
        static struct keys keys;
        static struct links_config config = {
                .node = node, .host = "h", .instance = 1, .release = "r", .keys = &keys, .events = &events
        };
        static struct links *links;
        static int listener;
        size_t piece = size > 0 ? 1 + size / 16 + data[size - 1] % 8u : 1;

        if (links == NULL) {
                listener = fuzz_listener();
                must(loop_new(&config.loop) == 0 && links_new(&config, &links) == 0);
                must(links_accept_on(links, listener) == 0);
        }
        struct heard whole = hear_pieces(listener, data, size, size);
        struct heard parts = hear_pieces(listener, data, size, piece);
        must(whole.ups == parts.ups && whole.frames == parts.frames && whole.digest == parts.digest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        hear_keys((const char *)data, size);
        hear_address((const char *)data, size);
        hear_header(data, size);
        hear_stream(data, size);
        return 0;
}
