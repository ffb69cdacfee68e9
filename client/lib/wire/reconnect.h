/* SPDX-License-Identifier: Apache-2.0 */
/* Another connection in place of one that was lost: what a link calls for it, see link_reconnects(). */
#pragma once

void reconnect_lost(void *owner);
void reconnect_retry(void *owner);
