/* SPDX-License-Identifier: Apache-2.0 */
/* Letters to other daemons while they are written: see private.h. */
#include "session/private.h"

bool packet_send(struct packet *packet) {
        struct sessions *sessions = packet->sessions;
        const struct hub_letter letter = { packet->to, sessions->letter, packet->used };

        packet->used = 0;
        if (packet->job != NULL)
                return machine_post(packet->job, &letter);
        sessions->cluster.post(sessions->cluster.data, packet->about, &letter);
        return true;
}

void packet_add(void *data, uint16_t type, const ProtobufCMessage *row) {
        struct packet *packet = data;
        struct sessions *sessions = packet->sessions;
        size_t size = FRAME_HEADER + protobuf_c_message_get_packed_size(row);
        bool full = packet->used + size > HUB_LETTER;

        if (size > HUB_LETTER || (full && packet->one))
                return;
        if (full)
                packet_send(packet);
        packet->used += (size_t)codec_pack(sessions->letter + packet->used, type, packet->request, 0, row);
}
