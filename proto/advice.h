/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice about a daemon that is missing, silent, or closed to its user. It depends on the user and the host:
 * advice names commands that this user may give, units that are installed, and programs and files that exist.
 * advice_look() finds these facts out; later only advice_start() looks again, at whether this user may create
 * a named socket.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define ADVICE_CONFIG "/etc/gradsync/gradsyncd.conf"
#define ADVICE_LIMITS "/etc/security/limits.conf"
/* Room for the name of a device. */
#define ADVICE_DEVICE 48u
/* Room for each text of this file. */
#define ADVICE_TEXT (3u * PATH_MAX)

struct advice {
        bool root, systemd;
        /* systemd (of the system, or of this user) runs, and has the unit of gradsyncd. */
        bool service, user_service;
        bool sudo;
        /* XDG_RUNTIME_DIR, below which a daemon of the user listens; "": not set. */
        char runtime[PATH_MAX];
        bool has_config, has_limits;
        /* How to call gradsyncd and gradsyncctl; "" if there is none. */
        char daemon[PATH_MAX], ctl[PATH_MAX];
};

/* Which service manager a daemon belongs to. */
enum advice_manager { ADVICE_NOBODY, ADVICE_SYSTEM, ADVICE_USER };

/* Finds out the facts for the user of this process. `root` goes before each path except those of programs
 * ("", or a tree that a test has laid out). `beside` is the folder of the asking program or library, or NULL:
 * programs that belong to it go before those in PATH. */
void advice_look(struct advice *advice, const char *root, const char *beside);

/* Whether a daemon can have this device: "cpu", "cpu:LABEL", "cuda:N", "cuda:UUID", "none". */
bool advice_device_valid(const char *device);
/* The beginning of a command that only root may give: "", "sudo ", or text that says whom to ask. */
const char *advice_as_root(const struct advice *advice);
/* The path of the configuration file, with a hint to create it if it does not exist. */
const char *advice_config(const struct advice *advice);
/* The device in a path of the form …/gradsync/DEVICE/socket, if there can be such a device; else
 * `otherwise`. */
const char *advice_device_at(const char *path, const char *otherwise, char buffer[static ADVICE_DEVICE]);
/* The service manager to which the daemon at this path belongs. */
enum advice_manager advice_manager(const struct advice *advice, const char *device, const char *path);
/* Writes a command of the service manager: "systemctl", "restart" is "sudo systemctl restart
 * 'gradsyncd@cpu'". */
void advice_command(const struct advice *advice, enum advice_manager manager, const char *tool,
                    const char *verb, const char *device, char *text, size_t size);
/* Says how to start a daemon for the device: one or more ways, with `separator` between them. `socket`: the
 * one path where it has to listen, which may name another device; NULL: the usual paths of this device.
 * False: the device is not valid, and the text says that. */
bool advice_start(const struct advice *advice, const char *device, const char *socket, const char *separator,
                  char *text, size_t size);
/* Says how to start a program so that it needs no daemon of others: "gradsyncctl run", with the path if
 * needed. */
void advice_run(const struct advice *advice, char *text, size_t size);
