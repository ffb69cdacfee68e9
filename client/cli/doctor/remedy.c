// SPDX-License-Identifier: Apache-2.0
/* The remedy for a daemon that is absent, silent or breaks off; it depends on the user and on this host. */
#include <sys/stat.h>

#include "client/cli/base/format.h"
#include "client/cli/doctor/doctor.h"

/* The device that the checkup's path names; if it names none, the device that the user asks for. */
static const char *remedy_device(const struct checkup *checkup, char buffer[static ADVICE_DEVICE]) {
        return advice_device_at(checkup->path, sockets_device(checkup->cli), buffer);
}

/* The path where a daemon has to listen; NULL: the usual place of its device. */
static const char *remedy_place(const struct checkup *checkup) {
        enum sockets_source source = checkup->sockets.source;

        return source == SOCKETS_FROM_OPTION || source == SOCKETS_FROM_VARIABLE ? checkup->path : NULL;
}

static char *remedy_absent(const struct checkup *checkup) {
        char text[ADVICE_TEXT], buffer[ADVICE_DEVICE];
        bool valid = advice_start(&checkup->advice, remedy_device(checkup, buffer), remedy_place(checkup),
                                  ", or: ", text, sizeof text);

        return format_new("%s%s", valid ? "start it: " : "", text);
}

static char *remedy_cut(const struct checkup *checkup) {
        char text[ADVICE_TEXT], buffer[ADVICE_DEVICE];
        const char *device = remedy_device(checkup, buffer);
        enum advice_manager manager = advice_manager(&checkup->advice, device, checkup->path);

        if (manager == ADVICE_NOBODY)
                return format_new("look why, in its standard error; then ask again");
        advice_command(&checkup->advice, manager, "journalctl", "-u", device, text, sizeof text);
        return format_new("look why: %s; then ask again", text);
}

/* Whether this user may end the process. */
static bool remedy_is_ours(pid_t pid) {
        char path[32];
        struct stat info;

        snprintf(path, sizeof path, "/proc/%d", (int)pid);
        return geteuid() == 0 || (stat(path, &info) == 0 && info.st_uid == geteuid());
}

static char *remedy_silent(const struct checkup *checkup) {
        char text[ADVICE_TEXT], buffer[ADVICE_DEVICE];
        const char *device = remedy_device(checkup, buffer);
        enum advice_manager manager = advice_manager(&checkup->advice, device, checkup->path);
        pid_t pid = checkup->talk.pid;

        if (manager != ADVICE_NOBODY) {
                advice_command(&checkup->advice, manager, "systemctl", "restart", device, text, sizeof text);
                return format_new("continue it if it is stopped (kill -CONT), else restart it: %s", text);
        }
        if (pid <= 0)
                return format_new(
                        "continue it if it is stopped (kill -CONT), else end it and start it again");
        if (!remedy_is_ours(pid))
                return format_new(
                        "ask the user who runs it (ps -o user= %d) to continue it if it is stopped, "
                        "else to start it again; meanwhile gradsyncctl run --private starts another "
                        "one",
                        (int)pid);
        advice_start(&checkup->advice, device, checkup->path, ", or: ", text, sizeof text);
        return format_new(
                "continue it if it is stopped (kill -CONT %d), else end it (kill -KILL %d) and start "
                "it again: %s",
                (int)pid, (int)pid, text);
}

char *doctor_remedy(const struct checkup *checkup) {
        switch (checkup->result) {
        case TALK_ABSENT:
        case TALK_GONE: return remedy_absent(checkup);
        case TALK_DENIED: return format_new("see \"permissions\"");
        case TALK_VERSION: return format_new("see \"version\"");
        case TALK_CUT: return remedy_cut(checkup);
        case TALK_SILENT: return remedy_silent(checkup);
        default: return format_new("name the socket of a gradsyncd: --socket, or GRADSYNC_SOCKET");
        }
}
