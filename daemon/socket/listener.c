/* SPDX-License-Identifier: Apache-2.0 */
/* Binds and accepts, also when no fd is left: with a spare fd the daemon accepts and closes, so no client
 * hangs in connect(). */
#include "socket/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/flood.h"
#include "base/log.h"

#define ACCEPTS 8u               /* connections accepted in one pass: members of jobs get their turn, too */
#define BACKLOG 256              /* connections that wait to be accepted; further ones wait in connect() */
#define REST (2 * USEC_PER_MSEC) /* pause after a pass in which a client was turned away */

struct listener {
        struct loop *loop;
        struct conns *conns;
        int fd, spare;
        char *path; /* path of the listener's own socket file, else NULL */
        struct loop_io *io;
        struct loop_timer *rest;
};

/* Makes the missing parent directories, with mode 0755 as mkdir -p does. */
static int listener_make_parents(const char *path) {
        _cleanup_(freep) char *copy = strdup(path);

        if (copy == NULL)
                return -ENOMEM;
        for (char *slash = strchr(copy + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
                *slash = '\0';
                if (mkdir(copy, 0755) < 0 && errno != EEXIST)
                        return -errno;
                *slash = '/';
        }
        return 0;
}

/* As error_say(). If the user may not write to the place, the text names the setting that can name
 * another one. */
static int listener_fail_place(int r, const struct listener_config *config, const char *what, char *error,
                               size_t size) {
        error_say(r, error, size, "%s %s", what, config->path);
        size_t used = strlen(error);

        if (r == -EACCES || r == -EPERM || r == -EROFS)
                snprintf(error + used, size - used, "; let %s name a place where uid %u may write",
                         config->key, (unsigned)geteuid());
        return r;
}

/* Removes a socket file on which no process listens any more. Anything else stays. */
static int listener_remove_stale(const struct sockaddr_un *address, int type) {
        _cleanup_(closep) int probe = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct stat st;

        if (probe < 0)
                return -errno;
        if (lstat(address->sun_path, &st) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (!S_ISSOCK(st.st_mode))
                return -EEXIST;
        if (connect(probe, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno != ECONNREFUSED)
                return -EADDRINUSE;
        return unlink(address->sun_path) < 0 ? -errno : 0;
}

static int listener_set_access(const struct listener_config *config, char *error, size_t size) {
        struct group *group = NULL;

        if (config->group != NULL && config->group[0] != '\0') {
                group = getgrnam(config->group);
                if (group == NULL) {
                        snprintf(error, size, LISTENER_NO_GROUP "; " LISTENER_GROUP_FIX, config->group);
                        return -ENOENT;
                }
                if (chown(config->path, (uid_t)-1, group->gr_gid) < 0)
                        return error_say(-errno, error, size, "cannot give %s to the group '%s'",
                                         config->path, config->group);
        }
        if (chmod(config->path, config->mode) < 0)
                return error_say(-errno, error, size, "cannot set the mode of %s", config->path);
        return 0;
}

/* Opens the bound socket to clients. Its file exists, so it is removed again if something fails. */
static int listener_open_up(int fd, const struct listener_config *config, char *error, size_t size) {
        int r = listener_set_access(config, error, size);

        if (r == 0 && listen(fd, BACKLOG) < 0)
                r = error_say(-errno, error, size, "cannot listen on %s", config->path);
        if (r < 0)
                unlink(config->path);
        return r;
}

int listener_bind(const struct listener_config *config, int type, int *ret, char *error, size_t size) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        _cleanup_(closep) int fd = -1;

        if (strlen(config->path) >= sizeof(address.sun_path)) {
                snprintf(error, size, "socket path %s is longer than the %zu bytes a Unix socket can have",
                         config->path, sizeof(address.sun_path) - 1);
                return -ENAMETOOLONG;
        }
        strcpy(address.sun_path, config->path);
        int r = listener_make_parents(config->path);
        if (r < 0)
                return listener_fail_place(r, config, "cannot make the directory of", error, size);
        r = listener_remove_stale(&address, type);
        if (r == -EADDRINUSE) {
                snprintf(error, size, "another gradsyncd listens on %s", config->path);
                return r;
        }
        if (r < 0)
                return error_say(r, error, size, "cannot replace %s", config->path);
        fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return error_say(-errno, error, size, "cannot make a socket for %s", config->path);
        mode_t mask = umask(0177); /* no client gets in before the mode is set */
        r = bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
        umask(mask);
        if (r < 0)
                return listener_fail_place(r, config, "cannot bind", error, size);
        r = listener_open_up(fd, config, error, size);
        if (r == 0)
                *ret = fd_steal(&fd);
        return r;
}

static int listener_bind_own(struct listener *listener, const struct listener_config *config, char *error,
                             size_t size) {
        listener->path = strdup(config->path);
        if (listener->path == NULL)
                return error_say(-ENOMEM, error, size, "cannot bind %s", config->path);
        int r = listener_bind(config, SOCK_SEQPACKET, &listener->fd, error, size);
        if (r < 0) {
                free(listener->path); /* the socket file is not ours */
                listener->path = NULL;
        }
        return r;
}

/* Opens the spare fd again if it is gone. That fails as long as the connection that was accepted with it is
 * not closed. */
static void listener_keep_spare(struct listener *listener) {
        if (listener->spare < 0)
                listener->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Accepts a connection with the spare fd when no other fd is left, and closes it, so that the client sees an
 * end instead of silence. The spare fd is closed first, because the kernel wants a free fd before it looks
 * for a client. 0 or a negative errno: -EAGAIN if no client waits. */
static int listener_shed(struct listener *listener) {
        listener->spare = fd_close(listener->spare);
        int sock = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
        int r = sock < 0 ? -errno : 0;
        if (sock >= 0)
                conn_shed(listener->conns, sock);
        listener_keep_spare(listener);
        if (r != -EAGAIN && flood_admits(FLOOD_NO_FDS, FLOOD_NO_UID, clock_now()))
                log_error(
                        "no file descriptors left: new clients are turned away, or wait; raise LimitNOFILE");
        return r;
}

static void listener_on_rested(void *data) {
        struct listener *listener = data;

        listener_keep_spare(listener);
        if (listener->spare < 0)
                loop_timer_arm(listener->rest, REST);
        loop_io_set(listener->io, LOOP_READ);
}

/* Accepts nothing for a while. Clients that connect again and again only to be turned away then wait in the
 * kernel's queue, which costs nothing. */
static void listener_rest(struct listener *listener) {
        if (loop_timer_arm(listener->rest, REST) == 0)
                loop_io_set(listener->io, 0);
}

/* Accepts one connection. 0 or a negative errno: -EAGAIN if no client waits. *later is set if the next
 * clients had better wait. */
static int listener_take(struct listener *listener, bool *later) {
        int sock = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), r = sock < 0 ? -errno : 0;

        if (r == 0)
                *later = !conn_accept(listener->conns, sock) || *later;
        if (r == -EINTR || r == -ECONNABORTED)
                return 0;
        if (r == -EMFILE || r == -ENFILE) {
                r = listener_shed(listener);
                *later = *later || r == 0;
        }
        return r;
}

/* Accepts clients that wait. If one cannot be accepted, because memory or even the spare fd is missing, the
 * loop reports it again and again, so the listener rests. */
static void listener_on_incoming(void *data, int fd, unsigned events) {
        struct listener *listener = data;
        bool later = false;
        int r = 0;

        for (unsigned i = 0; i < ACCEPTS && r == 0; i++)
                r = listener_take(listener, &later);
        if (later || (r < 0 && r != -EAGAIN))
                listener_rest(listener);
}

int listener_new(struct loop *loop, struct conns *conns, const struct listener_config *config,
                 struct listener **ret, char *error, size_t size) {
        struct listener *listener = calloc(1, sizeof(*listener));
        int r = 0;

        if (listener == NULL)
                return error_say(-ENOMEM, error, size, "cannot listen on %s", config->path);
        listener->loop = loop;
        listener->conns = conns;
        listener->fd = config->fd;
        listener->spare = -1;
        listener_keep_spare(listener);
        if (listener->fd < 0)
                r = listener_bind_own(listener, config, error, size);
        else if (fcntl(listener->fd, F_SETFL, fcntl(listener->fd, F_GETFL) | O_NONBLOCK) < 0)
                r = error_say(-errno, error, size, "cannot use the passed socket %s", config->path);
        if (r == 0) {
                r = loop_timer_new(loop, listener_on_rested, listener, &listener->rest);
                if (r == 0)
                        r = loop_io_new(loop, listener->fd, LOOP_READ, listener_on_incoming, listener,
                                        &listener->io);
                if (r < 0)
                        error_say(r, error, size, "cannot watch %s", config->path);
        }
        if (r < 0) {
                listener_free(listener);
                return r;
        }
        *ret = listener;
        return 0;
}

struct listener *listener_free(struct listener *listener) {
        if (listener == NULL)
                return NULL;
        loop_timer_free(listener->rest);
        loop_io_free(listener->io);
        if (listener->path != NULL)
                unlink(listener->path);
        free(listener->path);
        /* Connections that have not been accepted are closed with it. */
        closer_close_at_once(listener->conns->closer, listener->fd);
        fd_close(listener->spare);
        free(listener);
        return NULL;
}
