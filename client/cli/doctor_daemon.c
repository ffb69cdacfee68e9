// SPDX-License-Identifier: Apache-2.0
/* Checks of the daemon: whether it answers, whether this user may ask it, and whether the versions fit. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>

#include "doctor.h"

void check_socket(const struct checkup *checkup, struct report *report) {
        const char *device = find_device(checkup->cli), *source = find_source_name(checkup->places.source);
        char *what, *fix = NULL;

        if (!checkup->path)
                return report_add(report, "socket", VERDICT_FAIL,
                                  say("no place is known where a daemon could be"),
                                  say("set GRADSYNC_SOCKET"));
        if (checkup->result == LINK_OK)
                return report_add(report, "socket", VERDICT_OK,
                                  say("gradsyncd answers at %s (device %s)", checkup->path, checkup->device),
                                  NULL);
        what = say("no daemon at %s%s%s%s: %s", checkup->path, *source ? " (" : "", source,
                   *source ? ")" : "", checkup->error);
        switch (checkup->result) {
        case LINK_ABSENT:
        case LINK_GONE:
                if (checkup->places.source == FIND_SOCKET_OPTION ||
                    checkup->places.source == FIND_SOCKET_VARIABLE)
                        fix = say("start it: gradsyncd --device %s --socket %s", device, checkup->path);
                else
                        fix = say("start it: systemctl start 'gradsyncd@%s', or: gradsyncd --device %s",
                                  device, device);
                break;
        case LINK_DENIED: fix = say("see \"permissions\""); break;
        case LINK_VERSION: fix = say("see \"version\""); break;
        case LINK_SILENT:
                fix = say("continue it if it is stopped (kill -CONT), else: systemctl restart 'gradsyncd@%s'",
                          device);
                break;
        default: fix = say("name the socket of a gradsyncd: --socket, or GRADSYNC_SOCKET");
        }
        report_add(report, "socket", VERDICT_FAIL, what, fix);
}

/* ---- permissions ---- */

static const char *group_name(gid_t gid, char buffer[static 32]) {
        const struct group *group = getgrgid(gid);

        snprintf(buffer, 32, "%u", (unsigned)gid);
        return group ? group->gr_name : buffer;
}

static const char *user_name(uid_t uid, char buffer[static 32]) {
        const struct passwd *user = getpwuid(uid);

        snprintf(buffer, 32, "%u", (unsigned)uid);
        return user ? user->pw_name : buffer;
}

/* Whether this process has the group. */
static bool has_group(gid_t gid) {
        gid_t list[NGROUPS_MAX];
        int n = getgroups(NGROUPS_MAX, list);

        for (int i = 0; i < n; i++)
                if (list[i] == gid)
                        return true;
        return getegid() == gid;
}

/* Whether the user would have it after a new login. */
static bool is_granted_group(gid_t gid) {
        const struct passwd *user = getpwuid(geteuid());
        const struct group *group = getgrgid(gid);

        for (char **member = group ? group->gr_mem : NULL; user && member && *member; member++)
                if (strcmp(*member, user->pw_name) == 0)
                        return true;
        return user && user->pw_gid == gid;
}

/* The first directory on the way to the socket that may not be entered, in `ret`. */
static bool finds_closed_directory(const char *path, char ret[PATH_MAX]) {
        for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
                snprintf(ret, PATH_MAX, "%.*s", (int)(slash - path), path);
                if (faccessat(AT_FDCWD, ret, X_OK, AT_EACCESS) < 0 && errno == EACCES)
                        return true;
        }
        return false;
}

static char *group_fix(const struct stat *info, const char *path) {
        char group[32], user[32];

        if (!(info->st_mode & S_IWGRP))
                return say(
                        "let its group connect: set socket_mode = 0660 in gradsyncd.conf, or chmod g+rw %s",
                        path);
        const char *name = group_name(info->st_gid, group);
        if (is_granted_group(info->st_gid))
                return say("you are in group %s since your last login: log in again, or use newgrp %s", name,
                           name);
        return say("join group %s: sudo usermod -aG %s %s, then log in again", name, name,
                   user_name(geteuid(), user));
}

void check_permissions(const struct checkup *checkup, struct report *report) {
        const char *check = "permissions";
        char directory[PATH_MAX], owner[32], group[32];
        struct stat info;

        if (!checkup->path)
                return;
        if (stat(checkup->path, &info) < 0) {
                if (errno == EACCES && finds_closed_directory(checkup->path, directory))
                        report_add(report, check, VERDICT_FAIL,
                                   say("%s may not be entered by you", directory),
                                   say("chmod a+x %s, or join the group that it belongs to", directory));
                else
                        report_add(report, check, VERDICT_WARN, say("not checked: there is no socket"),
                                   say("start the daemon, then look again"));
                return;
        }
        const char *who = user_name(info.st_uid, owner), *which = group_name(info.st_gid, group);
        if (faccessat(AT_FDCWD, checkup->path, W_OK, AT_EACCESS) < 0)
                return report_add(report, check, VERDICT_FAIL,
                                  say("%s is for user %s and group %s (mode %04o), not for you",
                                      checkup->path, who, which, info.st_mode & 07777),
                                  group_fix(&info, checkup->path));
        if (checkup->result == LINK_DENIED)
                return report_add(report, check, VERDICT_FAIL,
                                  say("the daemon turns you away: %s", checkup->error),
                                  say("ask who runs it (user %s)", who));
        const char *why = geteuid() == 0             ? "you are root"
                          : geteuid() == info.st_uid ? "it is yours"
                          : has_group(info.st_gid)   ? "you are in its group"
                                                     : "it is open to everybody";
        report_add(report, check, VERDICT_OK,
                   say("you may connect: %s (user %s, group %s, mode %04o)", why, who, which,
                       info.st_mode & 07777),
                   NULL);
}

/* ---- versions ---- */

struct version {
        unsigned major, minor;
};

static bool parse_version(const char *text, struct version *ret) {
        return text && sscanf(text, "%u.%u", &ret->major, &ret->minor) == 2;
}

/* One minor version apart is promised to work. */
static enum verdict compare(const char *ours, const char *theirs) {
        struct version a, b;

        if (!parse_version(ours, &a) || !parse_version(theirs, &b))
                return VERDICT_WARN;
        if (a.major != b.major)
                return VERDICT_FAIL;
        unsigned apart = a.minor > b.minor ? a.minor - b.minor : b.minor - a.minor;
        return apart > 1 ? VERDICT_WARN : VERDICT_OK;
}

void check_version(const struct checkup *checkup, struct report *report) {
        if (checkup->result == LINK_VERSION)
                return report_add(
                        report, "version", VERDICT_FAIL, say("%s", checkup->error),
                        say("install gradsyncctl and gradsyncd of the same version, restart the daemon"));
        if (checkup->result != LINK_OK)
                return report_add(report, "version", VERDICT_WARN, say("not checked: no daemon answers"),
                                  say("start the daemon, then look again"));
        enum verdict verdict = compare(GRADSYNC_RELEASE, checkup->version);
        report_add(report, "version", verdict,
                   say("gradsyncd %s, gradsyncctl %s, protocol %u.%u", checkup->version, GRADSYNC_RELEASE,
                       FRAME_MAJOR, checkup->minor),
                   verdict ? say("upgrade the older one, then restart the daemon") : NULL);
}

/* The library that the loader gives to programs, else the one installed or built beside us. */
static void *open_library(void) {
        static const char *const beside[] = { "%s/../lib/libgradsync.so.0",
                                              "%s/../" GRADSYNC_LIBDIR "/libgradsync.so.0" };
        char self[PATH_MAX] = "", path[PATH_MAX + 64];
        void *library = dlopen("libgradsync.so.0", RTLD_LAZY | RTLD_LOCAL);
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        char *slash = n > 0 ? strrchr(self, '/') : NULL;

        if (slash)
                *slash = '\0';
        for (size_t i = 0; !library && slash && i < array_size(beside); i++) {
                snprintf(path, sizeof path, beside[i], self);
                library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        }
        return library;
}

void check_library(const struct checkup *checkup, struct report *report) {
        void *library = open_library();
        const char *(*version)(void) = NULL;

        if (library)
                *(void **)&version = dlsym(library, "gradsync_version");
        const char *with = checkup->version ? checkup->version : GRADSYNC_RELEASE;
        if (!version) {
                report_add(report, "library", VERDICT_WARN,
                           say("libgradsync.so.0 is not found by the loader"),
                           say("install it and run ldconfig, or add its folder to LD_LIBRARY_PATH"));
        } else {
                enum verdict verdict = compare(version(), with);
                report_add(report, "library", verdict, say("libgradsync %s", version()),
                           verdict ? say("install the version of the daemon (%s)", with) : NULL);
        }
        if (library)
                dlclose(library);
}
