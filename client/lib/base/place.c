/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/base/place.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/cleanup.h"

/* The hash FNV-1a, of 64 bits (Fowler, Noll, Vo: draft-eastlake-fnv). */
#define BASIS 0xcbf29ce484222325u
#define PRIME 0x100000001b3u

static uint64_t place_add(uint64_t hash, const void *data, size_t bytes) {
        const unsigned char *at = data;

        for (size_t i = 0; i < bytes; i++)
                hash = (hash ^ at[i]) * PRIME;
        return hash;
}

/* Adds the id of this boot; without /proc there is nothing to add. */
static uint64_t place_add_boot(uint64_t hash) {
        _cleanup_(closep) int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        char text[64];
        ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text));

        return place_add(hash, text, n > 0 ? (size_t)n : 0);
}

static uint64_t place_add_namespace(uint64_t hash, const char *path) {
        struct stat info;
        uint64_t number = stat(path, &info) == 0 ? info.st_ino : 0;

        return place_add(hash, &number, sizeof(number));
}

uint64_t place_number(const char *address) {
        uint64_t hash = place_add_namespace(place_add_boot(BASIS), "/proc/self/ns/net");

        if (address == NULL)
                return place_add_namespace(hash, "/proc/self/ns/pid");
        return place_add(hash, address, strlen(address));
}
