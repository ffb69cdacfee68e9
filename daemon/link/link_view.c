/* SPDX-License-Identifier: Apache-2.0 */
/* Views of connections between daemons for other layers. */
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "link/link_private.h"

const char *links_trouble(const struct links *links) {
        return links->dial.trouble[0] != '\0' ? links->dial.trouble : NULL;
}

static void peer_show(const struct peer *peer, void (*fn)(void *to, const struct link_view *view), void *to) {
        const struct key *key = peer->tls != NULL ? tls_key(peer->tls) : NULL;
        const struct link_view view = { .dialled = peer->dialled,
                                        .up = true,
                                        .node = peer->node,
                                        .host = peer->host,
                                        .address =
                                                peer->dialled ? peer->links->dial.address.text : peer->name,
                                        .key = key != NULL ? key->name : "",
                                        .trouble = "",
                                        .since = peer->up_since,
                                        .heard = peer->heard,
                                        .sent = peer->sent,
                                        .received = peer->received,
                                        .pulse = peer->pulse };

        fn(to, &view);
}

void links_each(const struct links *links, void (*fn)(void *to, const struct link_view *view), void *to) {
        const struct dial *dial = &links->dial;
        const struct link_view view = { .dialled = true,
                                        .host = "",
                                        .address = dial->address.text,
                                        .key = "",
                                        .trouble = dial->trouble,
                                        .since = dial->down_since };
        const struct peer *peer;

        if (dial->wanted && (dial->peer == NULL || dial->peer->state != UP))
                fn(to, &view);
        list_for_each(peer, &links->peers, link)
                if (peer->state == UP)
                        peer_show(peer, fn, to);
}

bool links_has_failed(const struct links *links) {
        return links->dial.failed;
}

bool links_has_met(const struct links *links) {
        return links->dial.met;
}

const struct links_stats *links_stats(const struct links *links) {
        return &links->stats;
}

const uint8_t *peer_node(const struct peer *peer) {
        return peer->node;
}

uint64_t peer_instance(const struct peer *peer) {
        return peer->instance;
}

uint64_t peer_run(const struct peer *peer) {
        return peer->run;
}

const struct pulse_sample *peer_pulse(const struct peer *peer) {
        return pulse_best(&peer->pulse);
}

const char *peer_host(const struct peer *peer) {
        return peer->host;
}

const char *peer_release(const struct peer *peer) {
        return peer->release;
}

const char *peer_name(const struct peer *peer) {
        return peer->name;
}

void peer_local_address(const struct peer *peer, char *text, size_t size) {
        struct sockaddr_storage address = { .ss_family = AF_UNIX };
        socklen_t length = sizeof(address);

        if (getsockname(peer->sock, (struct sockaddr *)&address, &length) < 0)
                address.ss_family = AF_UNIX;
        address_format_host(&address, text, size);
}

bool peer_was_dialled(const struct peer *peer) {
        return peer->dialled;
}

const char *peer_authority(const struct peer *peer, char uids[KEY_UIDS]) {
        const struct key *key = peer_key(peer);

        strcpy(uids, peer->tls != NULL ? "" : "*");
        if (key != NULL)
                key_uids(key, uids);
        else if (peer->local && peer->uid != 0)
                snprintf(uids, KEY_UIDS, "%u", (unsigned)peer->uid);
        return key != NULL ? key->name : KEY_NONE;
}

bool peer_speaks_for(const struct peer *peer, uid_t uid) {
        const struct key *key = peer_key(peer);

        if (peer->local)
                return peer->uid == 0 || peer->uid == uid;
        return peer->tls != NULL ? key != NULL && key_speaks_for(key, uid) : peer->links->config.insecure;
}
