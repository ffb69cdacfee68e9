/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses at which daemons meet: `HOST:PORT`, `[IPV6]:PORT`, or `unix:PATH`. An address to listen at may
 * also be `INTERFACE:PORT`. Parsing and formatting are pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ADDRESS_TEXT 300u

struct address {
        char text[ADDRESS_TEXT]; /* as given */
        bool local;              /* it is a Unix socket */
        char host[256];          /* else the name, number or interface, without brackets */
        char port[8];
        char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* Parses an address. 0; or -EINVAL and a sentence in `error`. */
int address_parse(const char *text, struct address *ret, char *error, size_t size);
/* Checks whether this host has the address, whatever the port. 0; -EADDRNOTAVAIL if it has not; or another
 * negative errno. */
int address_check_here(const struct sockaddr_storage *address, socklen_t length);
/* Finds the socket address of an address that needs no name service: a number, an interface of this host to
 * listen at, or a path. 0; -ENOENT if it is a name; or another negative errno. */
int address_resolve_here(const struct address *address, bool to_listen, struct sockaddr_storage *ret,
                         socklen_t *ret_length);
/* Asks a name service, which may take long, so this must not be called on the event thread. 0, or -ENOENT and
 * the reason in `error`. */
int address_look_up(const struct address *address, struct sockaddr_storage *ret, socklen_t *ret_length,
                    char *error, size_t size);
/* Writes the number of a host that is given as a number or as an interface of this host, without a port. 0;
 * -ENOENT if it is neither; or another negative errno. */
int address_of_host(const char *host, char *text, size_t size);
/* Writes the address without the port; "127.0.0.1" for a Unix socket. */
void address_format_host(const struct sockaddr_storage *address, char *text, size_t size);
/* Writes the address, as "10.1.2.3:7777" or "a Unix socket". */
void address_format(const struct sockaddr_storage *address, char *text, size_t size);
