/* SPDX-License-Identifier: Apache-2.0 */
/* Letters to other daemons while they are written: see private.h. */
#include "report/private.h"

bool packet_send(struct packet *packet) {
        struct reports *reports = packet->reports;
        const struct hub_letter letter = { packet->to, reports->letter, packet->used };

        packet->used = 0;
        if (packet->job != NULL)
                return machine_post(packet->job, &letter);
        reports->cluster.post(reports->cluster.data, packet->about, &letter);
        return true;
}

void packet_add(void *data, uint16_t type, const ProtobufCMessage *row) {
        struct packet *packet = data;
        struct reports *reports = packet->reports;
        size_t size = FRAME_HEADER + protobuf_c_message_get_packed_size(row);
        bool full = packet->used + size > HUB_LETTER;

        if (size > HUB_LETTER || (full && packet->one))
                return;
        if (full)
                packet_send(packet);
        packet->used += (size_t)codec_pack(reports->letter + packet->used, type, packet->request, 0, row);
}

struct query packet_query(struct packet *packet) {
        return (struct query){
                .reports = packet->reports, .viewer.sees_all = true, .row = packet_add, .data = packet
        };
}
