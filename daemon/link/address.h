/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where daemons meet: `HOST:PORT`, `[IPV6]:PORT`, or `unix:PATH`; to listen also `INTERFACE:PORT`. Pure,
 * apart from the addresses of this host's interfaces.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ADDRESS_TEXT 300u

struct address {
        char text[ADDRESS_TEXT]; /* as it was given */
        bool local;              /* a Unix socket */
        char host[256];          /* else: name, number, or interface; without brackets */
        char port[8];
        char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* 0; or -EINVAL and a sentence in `error`. */
int address_parse(const char *text, struct address *ret, char *error, size_t size);
/* Whether this host has the address, whatever the port: 0, or -EADDRNOTAVAIL, or another negative errno. */
int address_check_here(const struct sockaddr_storage *address, socklen_t length);
/* The socket address of one that needs no asking: a number, an interface of this host, or a path. 0,
 * -ENOENT if it is a name, or another negative errno. */
int address_resolve_here(const struct address *address, bool to_listen, struct sockaddr_storage *ret,
                         socklen_t *ret_length);
/* By asking a name service, which may take its time: not on the event thread. 0, or -ENOENT and why in
 * `error`. */
int address_look_up(const struct address *address, struct sockaddr_storage *ret, socklen_t *ret_length,
                    char *error, size_t size);
/* The number of a host, or of an interface of this one, without a port. 0, or -ENOENT. */
int address_of_host(const char *host, char *text, size_t size);
/* Without the port; "127.0.0.1" for a Unix socket. */
void address_format_host(const struct sockaddr_storage *address, char *text, size_t size);
/* "10.1.2.3:7777", "a Unix socket". */
void address_format(const struct sockaddr_storage *address, char *text, size_t size);
