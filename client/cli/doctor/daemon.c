// SPDX-License-Identifier: Apache-2.0
/* Checks of the daemon: whether it answers, whether this user may ask it, and whether the versions fit. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cli/base/bundled.h"
#include "client/cli/base/format.h"
#include "client/cli/base/user.h"
#include "client/cli/doctor/doctor.h"

#define NAME_SIZE 256u
/* The group that units and packages give the socket to. */
#define SOCKET_GROUP "gradsync"

static void doctor_daemon_socket(const struct checkup *checkup, struct findings *findings) {
        const char *source = sockets_source_name(checkup->sockets.source);

        if (!checkup->path)
                return findings_add(findings, "socket", VERDICT_FAIL,
                                    format_new("no place is known where a daemon could be"),
                                    format_new("set GRADSYNC_SOCKET"));
        if (checkup->result == TALK_OK)
                return findings_add(findings, "socket", VERDICT_OK,
                                    format_new("gradsyncd answers at %s (device %s)", checkup->path,
                                               checkup->talk.device),
                                    NULL);
        char *what = format_new("no %s at %s%s%s%s: %s",
                                checkup->result == TALK_CUT ? "whole answer of the daemon" : "daemon",
                                checkup->path, *source ? " (" : "", source, *source ? ")" : "",
                                checkup->talk.error);
        findings_add(findings, "socket", VERDICT_FAIL, what, doctor_remedy(checkup));
}

/* ---- permissions ---- */

/* Copies the name, because getgrgid() uses its buffer again. */
static const char *doctor_daemon_group_name(gid_t gid, char buffer[static NAME_SIZE]) {
        const struct group *group = getgrgid(gid);

        if (group)
                snprintf(buffer, NAME_SIZE, "%s", group->gr_name);
        else
                snprintf(buffer, NAME_SIZE, "%u", (unsigned)gid);
        return buffer;
}

/* Whether this process has the group. */
static bool doctor_daemon_has_group(gid_t gid) {
        gid_t list[NGROUPS_MAX];
        int n = getgroups(NGROUPS_MAX, list);

        for (int i = 0; i < n; i++)
                if (list[i] == gid)
                        return true;
        return getegid() == gid;
}

/* Whether the user would have it after a new login. */
static bool doctor_daemon_is_granted_group(gid_t gid) {
        const struct passwd *user = getpwuid(geteuid());
        const struct group *group = getgrgid(gid);

        for (char **member = group ? group->gr_mem : NULL; user && member && *member; member++)
                if (strcmp(*member, user->pw_name) == 0)
                        return true;
        return user && user->pw_gid == gid;
}

/* The first directory on the way to the socket that may not be entered, in `ret`. */
static bool doctor_daemon_finds_closed_directory(const char *path, char ret[PATH_MAX]) {
        for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
                snprintf(ret, PATH_MAX, "%.*s", (int)(slash - path), path);
                if (faccessat(AT_FDCWD, ret, X_OK, AT_EACCESS) < 0 && errno == EACCES)
                        return true;
        }
        return false;
}

/* The socket belongs to root's group, which users must not join: the remedy gives it to the users' group. */
static char *doctor_daemon_root_group_fix(const struct checkup *checkup, const struct stat *info) {
        const struct group *group = getgrnam(SOCKET_GROUP);
        const char *path = checkup->path;
        bool made = group, joined = group && doctor_daemon_is_granted_group(group->gr_gid);
        char user[USER_SIZE];
        _cleanup_(freep) char *mode =
                info->st_mode & S_IWGRP ? strdup("") : format_new(" && chmod g+rw %s", path);
        _cleanup_(freep) char *join =
                joined ? strdup("")
                       : format_new(" && usermod -aG " SOCKET_GROUP " %s", user_show(user, geteuid()));

        return !mode || !join ? NULL
                              : format_new("give it to group " SOCKET_GROUP ", as root: %schgrp " SOCKET_GROUP
                                           " %s%s%s; then log in again (socket_group = " SOCKET_GROUP
                                           " in %s keeps it so)",
                                           made ? "" : "groupadd --system " SOCKET_GROUP " && ", path, mode,
                                           join, advice_config(&checkup->advice));
}

static char *doctor_daemon_group_fix(const struct checkup *checkup, const struct stat *info) {
        const char *as_root = info->st_uid == geteuid() ? "" : advice_as_root(&checkup->advice);
        char group[NAME_SIZE], user[USER_SIZE];

        if (info->st_gid == 0)
                return doctor_daemon_root_group_fix(checkup, info);
        if (!(info->st_mode & S_IWGRP))
                return format_new("let its group connect: %schmod g+rw %s, and for later starts "
                                  "socket_mode = 0660 in %s",
                                  as_root, checkup->path, advice_config(&checkup->advice));
        const char *name = doctor_daemon_group_name(info->st_gid, group);
        if (doctor_daemon_is_granted_group(info->st_gid))
                return format_new("you are in group %s since your last login: log in again, or use newgrp %s",
                                  name, name);
        return format_new("join group %s: %susermod -aG %s %s, then log in again", name,
                          advice_as_root(&checkup->advice), name, user_show(user, geteuid()));
}

static void doctor_daemon_permissions(const struct checkup *checkup, struct findings *findings) {
        const char *check = "permissions";
        char directory[PATH_MAX], owner[USER_SIZE], group[NAME_SIZE];
        struct stat info;

        if (!checkup->path)
                return;
        if (stat(checkup->path, &info) < 0) {
                if (errno == EACCES && doctor_daemon_finds_closed_directory(checkup->path, directory))
                        findings_add(findings, check, VERDICT_FAIL,
                                     format_new("%s may not be entered by you", directory),
                                     format_new("%schmod a+x %s, or join the group that it belongs to",
                                                advice_as_root(&checkup->advice), directory));
                else
                        findings_add(findings, check, VERDICT_WARN,
                                     format_new("not checked: there is no socket"),
                                     format_new("start the daemon, then look again"));
                return;
        }
        const char *who = user_show(owner, info.st_uid),
                   *which = doctor_daemon_group_name(info.st_gid, group);
        if (faccessat(AT_FDCWD, checkup->path, W_OK, AT_EACCESS) < 0)
                return findings_add(findings, check, VERDICT_FAIL,
                                    format_new("%s is for user %s and group %s (mode %04o), not for you",
                                               checkup->path, who, which, info.st_mode & 07777),
                                    doctor_daemon_group_fix(checkup, &info));
        if (checkup->result == TALK_DENIED)
                return findings_add(findings, check, VERDICT_FAIL,
                                    format_new("the daemon turns you away: %s", checkup->talk.error),
                                    format_new("ask who runs it (user %s)", who));
        const char *why = geteuid() == 0                         ? "you are root"
                          : geteuid() == info.st_uid             ? "it is yours"
                          : doctor_daemon_has_group(info.st_gid) ? "you are in its group"
                                                                 : "it is open to everybody";
        findings_add(findings, check, VERDICT_OK,
                     format_new("you may connect: %s (user %s, group %s, mode %04o)", why, who, which,
                                info.st_mode & 07777),
                     NULL);
}

/* ---- versions ---- */

struct version {
        unsigned major, minor;
};

static bool doctor_daemon_read_version(const char *text, struct version *ret) {
        return text && sscanf(text, "%u.%u", &ret->major, &ret->minor) == 2;
}

/* Versions that are one minor version apart are promised to work together. */
static enum verdict doctor_daemon_compare(const char *ours, const char *theirs) {
        struct version a, b;

        if (!doctor_daemon_read_version(ours, &a) || !doctor_daemon_read_version(theirs, &b))
                return VERDICT_WARN;
        if (a.major != b.major)
                return VERDICT_FAIL;
        unsigned apart = a.minor > b.minor ? a.minor - b.minor : b.minor - a.minor;
        return apart > 1 ? VERDICT_WARN : VERDICT_OK;
}

static void doctor_daemon_version(const struct checkup *checkup, struct findings *findings) {
        if (checkup->result == TALK_VERSION)
                return findings_add(
                        findings, "version", VERDICT_FAIL, format_new("%s", checkup->talk.error),
                        format_new(
                                "install gradsyncctl and gradsyncd of the same version, restart the daemon"));
        if (checkup->result != TALK_OK)
                return findings_add(findings, "version", VERDICT_WARN,
                                    format_new("not checked: no daemon answers"),
                                    format_new("start the daemon, then look again"));
        enum verdict verdict = doctor_daemon_compare(GRADSYNC_RELEASE, checkup->talk.version);
        findings_add(findings, "version", verdict,
                     format_new("gradsyncd %s, gradsyncctl %s, protocol %u.%u", checkup->talk.version,
                                GRADSYNC_RELEASE, FRAME_MAJOR, checkup->talk.minor),
                     verdict ? format_new("upgrade the older one, then restart the daemon") : NULL);
}

/* The library that the loader gives to programs, else the one that is installed or built beside this program.
 * */
static void *doctor_daemon_open_library(void) {
        static const char *const beside[] = { "%s/../lib/libgradsync.so.0",
                                              "%s/../" GRADSYNC_LIBDIR "/libgradsync.so.0" };
        void *library = dlopen("libgradsync.so.0", RTLD_LAZY | RTLD_LOCAL);

        for (size_t i = 0; !library && i < array_size(beside); i++) {
                _cleanup_(freep) char *path = bundled_path(beside[i]);
                library = path ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
        }
        return library;
}

static void doctor_daemon_library(const struct checkup *checkup, struct findings *findings) {
        void *library = doctor_daemon_open_library();
        const char *(*version)(void) = NULL;

        if (library)
                *(void **)&version = dlsym(library, "gradsync_version");
        const char *with = checkup->result == TALK_OK ? checkup->talk.version : GRADSYNC_RELEASE;
        if (!version) {
                findings_add(findings, "library", VERDICT_WARN,
                             format_new("libgradsync.so.0 is not found by the loader"),
                             format_new("install it and run ldconfig, or add its folder to LD_LIBRARY_PATH"));
        } else {
                enum verdict verdict = doctor_daemon_compare(version(), with);
                findings_add(findings, "library", verdict, format_new("libgradsync %s", version()),
                             verdict ? format_new("install the version of the daemon (%s)", with) : NULL);
        }
        if (library)
                dlclose(library);
}

/* Reports why the daemon has no identity, if it tells this user. */
static void doctor_daemon_identity(const struct checkup *checkup, struct findings *findings) {
        const Wire__StatusDaemon *daemon = checkup->snapshot.daemon;
        const char *why = daemon ? daemon->no_identity : NULL;

        if (why && *why)
                findings_add(findings, "identity", VERDICT_WARN,
                             format_new("the daemon coordinates nothing beyond its own host: %s", why),
                             format_new(checkup->advice.service
                                                ? "give it a directory that it can write to: "
                                                  "StateDirectory= in its unit, or that of its socket"
                                                : "give it a directory that it can write to: that of its "
                                                  "socket"));
        else if (daemon && daemon->node && daemon->has_starts)
                findings_add(findings, "identity", VERDICT_OK,
                             format_new("node %s, started %" PRIu64 " time%s", daemon->node, daemon->starts,
                                        format_plural((size_t)daemon->starts)),
                             NULL);
}

void doctor_daemon(const struct checkup *checkup, struct findings *findings) {
        doctor_daemon_socket(checkup, findings);
        doctor_daemon_permissions(checkup, findings);
        doctor_daemon_version(checkup, findings);
        doctor_daemon_identity(checkup, findings);
        doctor_daemon_library(checkup, findings);
}
