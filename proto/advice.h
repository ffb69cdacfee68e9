/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a person can do about a daemon that is missing, silent, or closed to them. It depends on who asks and
 * on what this host has: advice names commands that this user may give, units that are installed, and
 * programs and files that exist. advice_look() finds that out; of the rest only advice_start() looks at
 * more, whether this user may write where a named socket has to be.
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
        /* systemd runs, the system's or this user's own, and has the unit of gradsyncd. */
        bool service, user_service;
        bool sudo;
        /* XDG_RUNTIME_DIR, below which a user's daemon listens; "": not there. */
        char runtime[PATH_MAX];
        bool has_config, has_limits;
        /* What to type for gradsyncd and gradsyncctl; "" where there is none. */
        char daemon[PATH_MAX], ctl[PATH_MAX];
};

/* Which service manager a daemon belongs to. */
enum advice_manager { ADVICE_NOBODY, ADVICE_SYSTEM, ADVICE_USER };

/* Looks around for the user of this process. `root` goes before each path but those of programs ("", or
 * a tree that a test has laid out); `beside` is the folder in which the asking program or library lies,
 * or NULL: what belongs to it goes before what PATH has. */
void advice_look(struct advice *advice, const char *root, const char *beside);

/* Whether a daemon can have this device: "cpu", "cpu:LABEL", "cuda:N", "cuda:UUID", "none". */
bool advice_device_valid(const char *device);
/* What goes before a command for which one has to be root: nothing, "sudo ", or whom to ask. */
const char *advice_as_root(const struct advice *advice);
/* The configuration file, and that it has to be created if it is not there. */
const char *advice_config(const struct advice *advice);
/* The device in a path of the form …/gradsync/DEVICE/socket, if there can be such a device; else
 * `otherwise`. */
const char *advice_device_at(const char *path, const char *otherwise, char buffer[static ADVICE_DEVICE]);
/* Whose the daemon is that listens at this path. */
enum advice_manager advice_manager(const struct advice *advice, const char *device, const char *path);
/* A command of the service manager: "systemctl", "restart" is "sudo systemctl restart 'gradsyncd@cpu'". */
void advice_command(const struct advice *advice, enum advice_manager manager, const char *tool,
                    const char *verb, const char *device, char *text, size_t size);
/* How to start a daemon for the device: one or more ways, with `separator` between them. `socket`: the
 * one place where it has to listen; NULL: where daemons of this device do. False: there can be no such
 * device, and the text says that. */
bool advice_start(const struct advice *advice, const char *device, const char *socket, const char *separator,
                  char *text, size_t size);
/* How to start one's program so that it needs no daemon of others: "gradsyncctl run", with the path if
 * needed. */
void advice_run(const struct advice *advice, char *text, size_t size);
