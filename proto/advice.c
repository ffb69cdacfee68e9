/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about this host and this user, and the sentences that follow from them: see advice.h. */
#include "proto/advice.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/cleanup.h"

#define LABEL_MOST 32
#define CARD_MOST 40 /* a UUID */
#define UNIT "gradsyncd@.service"

/* ---- facts ---- */

static bool advice_has(const char *root, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool advice_has(const char *root, const char *format, ...) {
        char path[PATH_MAX];
        int n = snprintf(path, sizeof(path), "%s", root);
        va_list args;

        if (n < 0 || (size_t)n >= sizeof(path))
                return false;
        va_start(args, format);
        int m = vsnprintf(path + n, sizeof(path) - (size_t)n, format, args);
        va_end(args);
        return m > 0 && (size_t)(n + m) < sizeof(path) && access(path, F_OK) == 0;
}

static bool advice_has_system_unit(const char *root) {
        static const char *const folders[] = { "/etc/systemd/system", "/run/systemd/system",
                                               "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
                                               "/lib/systemd/system" };

        for (size_t i = 0; i < array_size(folders); i++)
                if (advice_has(root, "%s/" UNIT, folders[i]))
                        return true;
        return false;
}

static bool advice_has_user_unit(const char *root, const char *runtime) {
        static const char *const folders[] = { "/etc/systemd/user", "/run/systemd/user",
                                               "/usr/local/lib/systemd/user", "/usr/lib/systemd/user" };
        const char *home = getenv("HOME");

        if (*runtime == '\0' || !advice_has(root, "%s/systemd/private", runtime))
                return false;
        for (size_t i = 0; i < array_size(folders); i++)
                if (advice_has(root, "%s/" UNIT, folders[i]))
                        return true;
        return (home != NULL && advice_has(root, "%s/.config/systemd/user/" UNIT, home)) ||
               advice_has(root, "%s/systemd/user/" UNIT, runtime);
}

static bool advice_is_program(const char *path) {
        struct stat info;

        return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

/* Looks for the program in PATH. */
static bool advice_find_in_path(const char *name, char ret[PATH_MAX]) {
        const char *at = getenv("PATH");

        while (at != NULL && *at != '\0') {
                size_t length = strcspn(at, ":");
                int n = snprintf(ret, PATH_MAX, "%.*s/%s", (int)length, at, name);

                if (length > 0 && n > 0 && n < PATH_MAX && advice_is_program(ret))
                        return true;
                at += length + (at[length] == ':');
        }
        return false;
}

static bool advice_find_in(const char *const *folders, size_t n, const char *beside, const char *name,
                           char ret[PATH_MAX]) {
        char path[PATH_MAX];

        for (size_t i = 0; i < n; i++) {
                int length = snprintf(path, sizeof(path), "%s%s/%s", beside, folders[i], name);

                if (length > 0 && (size_t)length < sizeof(path) && advice_is_program(path) &&
                    realpath(path, ret) != NULL)
                        return true;
        }
        return false;
}

/* Prefers the program that belongs to the asking one, in a build tree or in an installation; then the one in
 * PATH; then one in the usual folders. The bare name is enough if PATH has the same program. */
static void advice_find_program(const char *name, const char *beside, char ret[PATH_MAX]) {
        static const char *const near[] = { "",        "/../../daemon/core", "/../cli",   "/../sbin",
                                            "/../bin", "/../../sbin",        "/../../bin" };
        static const char *const usual[] = { "/usr/local/sbin", "/usr/sbin", "/usr/local/bin", "/usr/bin" };
        char found[PATH_MAX], same[PATH_MAX];
        bool in_path = advice_find_in_path(name, found);

        if (beside == NULL || !advice_find_in(near, array_size(near), beside, name, ret)) {
                *ret = '\0';
                if (in_path)
                        snprintf(ret, PATH_MAX, "%s", name);
                else if (!advice_find_in(usual, array_size(usual), "", name, ret))
                        *ret = '\0';
                return;
        }
        if (in_path && realpath(found, same) != NULL && strcmp(same, ret) == 0)
                snprintf(ret, PATH_MAX, "%s", name);
}

void advice_look(struct advice *advice, const char *root, const char *beside) {
        const char *runtime = getenv("XDG_RUNTIME_DIR");
        char sudo[PATH_MAX];

        *advice = (struct advice){ .root = geteuid() == 0 };
        if (runtime != NULL && *runtime == '/' && advice_has(root, "%s", runtime))
                snprintf(advice->runtime, sizeof(advice->runtime), "%s", runtime);
        advice->systemd = advice_has(root, "/run/systemd/system");
        advice->service = advice->systemd && advice_has_system_unit(root);
        advice->user_service = !advice->root && advice_has_user_unit(root, advice->runtime);
        advice->sudo = advice_find_in_path("sudo", sudo);
        advice->has_config = advice_has(root, "%s", ADVICE_CONFIG);
        advice->has_limits = advice_has(root, "%s", ADVICE_LIMITS);
        advice_find_program("gradsyncd", beside, advice->daemon);
        advice_find_program("gradsyncctl", beside, advice->ctl);
}

/* ---- advice ---- */

bool advice_device_valid(const char *device) {
        static const char label[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
        bool cpu = strncmp(device, "cpu:", 4) == 0, cuda = strncmp(device, "cuda:", 5) == 0;

        if (!cpu && !cuda)
                return strcmp(device, "cpu") == 0 || strcmp(device, "none") == 0;
        const char *rest = device + (cpu ? 4 : 5);
        size_t length = strlen(rest);
        return length >= 1 && length <= (cpu ? LABEL_MOST : CARD_MOST) && strspn(rest, label) == length;
}

const char *advice_as_root(const struct advice *advice) {
        return advice->root ? "" : advice->sudo ? "sudo " : "ask the administrator for: ";
}

const char *advice_config(const struct advice *advice) {
        return advice->has_config ? ADVICE_CONFIG : ADVICE_CONFIG " (to be created)";
}

const char *advice_device_at(const char *path, const char *otherwise, char buffer[static ADVICE_DEVICE]) {
        const char *end = strrchr(path, '/'), *before = NULL;

        for (const char *at = path; end != NULL && (at = strstr(at, "/gradsync/")) != NULL && at < end; at++)
                before = at + strlen("/gradsync/");
        if (before == NULL || before >= end || strcmp(end, "/socket") != 0)
                return otherwise;
        snprintf(buffer, ADVICE_DEVICE, "%.*s", (int)(end - before), before);
        return (size_t)(end - before) < ADVICE_DEVICE && advice_device_valid(buffer) ? buffer : otherwise;
}

enum advice_manager advice_manager(const struct advice *advice, const char *device, const char *path) {
        char own[PATH_MAX + 64];

        snprintf(own, sizeof(own), "/run/gradsync/%s/socket", device);
        if (advice->service && strcmp(path, own) == 0)
                return ADVICE_SYSTEM;
        snprintf(own, sizeof(own), "%s/gradsync/%s/socket", advice->runtime, device);
        return advice->user_service && strcmp(path, own) == 0 ? ADVICE_USER : ADVICE_NOBODY;
}

void advice_command(const struct advice *advice, enum advice_manager manager, const char *tool,
                    const char *verb, const char *device, char *text, size_t size) {
        bool own = manager == ADVICE_USER;

        snprintf(text, size, "%s%s %s%s 'gradsyncd@%s'", own ? "" : advice_as_root(advice), tool,
                 own ? "--user " : "", verb, device);
}

static void advice_add(char *text, size_t size, const char *separator, const char *way) {
        size_t used = strlen(text);

        snprintf(text + used, size - used, "%s%s", used > 0 ? separator : "", way);
}

/* Whether this user may make the file, and the folders that it needs. */
static bool advice_may_write(const char *path) {
        char folder[PATH_MAX];
        char *slash;

        snprintf(folder, sizeof(folder), "%s", path);
        while ((slash = strrchr(folder, '/')) != NULL && slash != folder) {
                *slash = '\0';
                if (access(folder, F_OK) == 0)
                        return access(folder, W_OK) == 0;
        }
        return access(slash != NULL ? "/" : ".", W_OK) == 0;
}

static void advice_start_by_hand(const struct advice *advice, const char *device, const char *socket,
                                 const char *separator, char *text, size_t size) {
        char way[ADVICE_TEXT];

        if (advice->daemon[0] == '\0')
                snprintf(way, sizeof(way), "install gradsyncd, which is neither in PATH nor in /usr/sbin");
        else
                snprintf(way, sizeof(way), "%s%s --device %s%s%s",
                         socket == NULL || advice_may_write(socket) ? "" : advice_as_root(advice),
                         advice->daemon, device, socket != NULL ? " --socket " : "",
                         socket != NULL ? socket : "");
        advice_add(text, size, separator, way);
}

bool advice_start(const struct advice *advice, const char *device, const char *socket, const char *separator,
                  char *text, size_t size) {
        char way[ADVICE_TEXT], buffer[ADVICE_DEVICE];

        *text = '\0';
        if (socket != NULL)
                device = advice_device_at(socket, device, buffer);
        if (!advice_device_valid(device)) {
                snprintf(text, size,
                         "name a device: \"cpu\", \"cpu:LABEL\", \"cuda:N\" or \"cuda:UUID\"; "
                         "\"%.64s\" is none",
                         device);
                return false;
        }
        if (socket != NULL) {
                enum advice_manager manager = advice_manager(advice, device, socket);

                if (manager == ADVICE_NOBODY)
                        advice_start_by_hand(advice, device, socket, separator, text, size);
                else
                        advice_command(advice, manager, "systemctl", "start", device, text, size);
                return true;
        }
        if (advice->user_service) {
                advice_command(advice, ADVICE_USER, "systemctl", "start", device, way, sizeof(way));
                advice_add(text, size, separator, way);
        }
        if (advice->service) {
                advice_command(advice, ADVICE_SYSTEM, "systemctl", "start", device, way, sizeof(way));
                advice_add(text, size, separator, way);
        } else if (advice->root || (advice->runtime[0] != '\0' && !advice->user_service)) {
                advice_start_by_hand(advice, device, NULL, separator, text, size);
        }
        advice_run(advice, way, sizeof(way));
        advice_add(text, size, separator, way);
        return true;
}

void advice_run(const struct advice *advice, char *text, size_t size) {
        snprintf(text, size, "%s run -n 2 -- CMD, which starts a daemon of its own",
                 advice->ctl[0] != '\0' ? advice->ctl : "gradsyncctl");
}
