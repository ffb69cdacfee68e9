/* SPDX-License-Identifier: Apache-2.0 */
#include "link/address.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

static int address_complain(const char *text, const char *what, char *error, size_t size) {
        snprintf(error, size, "'%.128s' is no address: %s", text, what);
        return -EINVAL;
}

static bool is_port(const char *text) {
        unsigned long value = 0;
        size_t n = strspn(text, "0123456789");

        for (size_t i = 0; i < n && i < 6; i++)
                value = value * 10 + (unsigned long)(text[i] - '0');
        return n >= 1 && n <= 5 && text[n] == '\0' && value >= 1 && value <= 65535;
}

static int address_parse_local(const char *path, struct address *ret, char *error, size_t size) {
        if (path[0] != '/')
                return address_complain(ret->text, "the path of a Unix socket begins with '/'", error, size);
        if (strlen(path) >= sizeof(ret->path))
                return address_complain(ret->text, "the path is longer than that of a socket can be", error,
                                        size);
        ret->local = true;
        strcpy(ret->path, path);
        return 0;
}

int address_parse(const char *text, struct address *ret, char *error, size_t size) {
        const char *colon = strrchr(text, ':'), *first = text, *last = colon;

        *ret = (struct address){ 0 };
        if (strlen(text) >= sizeof(ret->text))
                return address_complain(text, "it is too long", error, size);
        strcpy(ret->text, text);
        if (strncmp(text, "unix:", 5) == 0)
                return address_parse_local(text + 5, ret, error, size);
        if (colon == NULL || !is_port(colon + 1))
                return address_complain(text, "HOST:PORT, [IPV6]:PORT or unix:PATH is", error, size);
        if (text[0] == '[') {
                if (colon == text || colon[-1] != ']')
                        return address_complain(text, "the bracket is not closed", error, size);
                first++;
                last--;
        } else if (memchr(text, ':', (size_t)(colon - text)) != NULL) {
                return address_complain(text, "an IPv6 address stands in brackets: [::1]:7777", error, size);
        }
        if (last == first || (size_t)(last - first) >= sizeof(ret->host))
                return address_complain(text, "it names no host", error, size);
        memcpy(ret->host, first, (size_t)(last - first));
        strcpy(ret->port, colon + 1);
        return 0;
}

static int look_up(const struct address *address, int flags, struct sockaddr_storage *ret,
                   socklen_t *ret_length) {
        struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV }, *list;
        int r = getaddrinfo(address->host, address->port, &hints, &list);

        if (r != 0)
                return r;
        memcpy(ret, list->ai_addr, list->ai_addrlen);
        *ret_length = list->ai_addrlen;
        freeaddrinfo(list);
        return 0;
}

/* Finds the first address of an interface, an IPv4 address if it has one. */
static int find_interface(const struct address *address, struct sockaddr_storage *ret,
                          socklen_t *ret_length) {
        struct ifaddrs *list, *at;
        unsigned port = 0;

        if (if_nametoindex(address->host) == 0)
                return -ENOENT;
        if (getifaddrs(&list) < 0)
                return -errno;
        sscanf(address->port, "%u", &port);
        *ret_length = 0;
        for (at = list; at != NULL; at = at->ifa_next) {
                int family = at->ifa_addr != NULL ? at->ifa_addr->sa_family : AF_UNSPEC;

                if (strcmp(at->ifa_name, address->host) != 0 || (family != AF_INET && family != AF_INET6) ||
                    (*ret_length > 0 && (family == AF_INET6 || ret->ss_family == AF_INET)))
                        continue;
                *ret_length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
                memcpy(ret, at->ifa_addr, *ret_length);
        }
        freeifaddrs(list);
        if (*ret_length == 0)
                return -EADDRNOTAVAIL;
        if (ret->ss_family == AF_INET)
                ((struct sockaddr_in *)ret)->sin_port = htons((uint16_t)port);
        else
                ((struct sockaddr_in6 *)ret)->sin6_port = htons((uint16_t)port);
        return 0;
}

int address_resolve_here(const struct address *address, bool to_listen, struct sockaddr_storage *ret,
                         socklen_t *ret_length) {
        struct sockaddr_un *local = (struct sockaddr_un *)ret;

        memset(ret, 0, sizeof(*ret));
        if (address->local) {
                local->sun_family = AF_UNIX;
                strcpy(local->sun_path, address->path);
                *ret_length = sizeof(*local);
                return 0;
        }
        if (look_up(address, AI_NUMERICHOST | (to_listen ? AI_PASSIVE : 0), ret, ret_length) == 0)
                return 0;
        return to_listen ? find_interface(address, ret, ret_length) : -ENOENT;
}

int address_check_here(const struct sockaddr_storage *address, socklen_t length) {
        _cleanup_(closep) int probe = -1;
        struct sockaddr_storage any = *address;

        if (address->ss_family == AF_UNIX)
                return 0;
        if (address->ss_family == AF_INET)
                ((struct sockaddr_in *)&any)->sin_port = 0;
        else
                ((struct sockaddr_in6 *)&any)->sin6_port = 0;
        probe = socket(address->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        return probe < 0 || bind(probe, (const struct sockaddr *)&any, length) < 0 ? -errno : 0;
}

int address_look_up(const struct address *address, struct sockaddr_storage *ret, socklen_t *ret_length,
                    char *error, size_t size) {
        int r = look_up(address, AI_ADDRCONFIG, ret, ret_length);

        if (r == 0)
                return 0;
        snprintf(error, size, "'%s' has no address: %s", address->host, gai_strerror(r));
        return -ENOENT;
}

int address_of_host(const char *host, char *text, size_t size) {
        struct address address = { .port = "1" };
        struct sockaddr_storage at;
        socklen_t length;

        snprintf(address.host, sizeof(address.host), "%s", host);
        int r = address_resolve_here(&address, true, &at, &length);
        if (r == 0)
                address_format_host(&at, text, size);
        return r;
}

void address_format_host(const struct sockaddr_storage *address, char *text, size_t size) {
        socklen_t length =
                address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

        if (address->ss_family == AF_UNIX || getnameinfo((const struct sockaddr *)address, length, text,
                                                         (socklen_t)size, NULL, 0, NI_NUMERICHOST) != 0)
                snprintf(text, size, "127.0.0.1");
}

void address_format(const struct sockaddr_storage *address, char *text, size_t size) {
        socklen_t length =
                address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        char host[64], port[8];

        if (address->ss_family == AF_UNIX)
                snprintf(text, size, "a Unix socket");
        else if (getnameinfo((const struct sockaddr *)address, length, host, sizeof(host), port, sizeof(port),
                             NI_NUMERICHOST | NI_NUMERICSERV) != 0)
                snprintf(text, size, "an unknown address");
        else
                snprintf(text, size, address->ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}
