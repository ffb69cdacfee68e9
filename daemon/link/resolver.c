/* SPDX-License-Identifier: Apache-2.0 */
/* The thread has a copy of the question, and writes the answer into a pipe in one piece. A caller that has
 * lost interest closes the other end. */
#include "link/resolver.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"

struct resolution {
        int r;
        struct sockaddr_storage address;
        socklen_t length;
        char error[512];
};

_Static_assert(sizeof(struct resolution) <= PIPE_BUF, "written in one piece");

struct question { /* the thread owns it */
        struct address address;
        int fd;
};

struct resolver {
        int fd;
        struct loop_io *io;
        resolver_fn fn;
        void *data;
};

static void *resolver_run(void *data) {
        struct question *question = data;
        struct resolution answer = { 0 };

        answer.r = address_look_up(&question->address, &answer.address, &answer.length, answer.error,
                                   sizeof(answer.error));
        (void)!write(question->fd, &answer, sizeof(answer)); /* fails if the caller has lost interest */
        close(question->fd);
        free(question);
        return NULL;
}

static void resolver_on_answer(void *data, int fd, unsigned events) {
        struct resolver *resolver = data;
        struct resolution answer;

        if (read(fd, &answer, sizeof(answer)) != sizeof(answer))
                answer = (struct resolution){ .r = -EIO, .error = "the name service cannot be asked" };
        loop_io_set(resolver->io, 0);
        resolver->fn(resolver->data, answer.r, &answer.address, answer.length, answer.error);
}

static int resolver_ask(const struct address *address, int fd) {
        struct question *question = malloc(sizeof(*question));
        pthread_t thread;

        if (question == NULL)
                return -ENOMEM;
        *question = (struct question){ .address = *address, .fd = fd };
        int r = thread_start(&thread, "resolver", 0, resolver_run, question);
        if (r < 0)
                free(question);
        else
                pthread_detach(thread);
        return r;
}

int resolver_new(struct loop *loop, const struct address *address, resolver_fn fn, void *data,
                 struct resolver **ret) {
        struct resolver *resolver = calloc(1, sizeof(*resolver));
        int fds[2];

        if (resolver == NULL)
                return -ENOMEM;
        if (pipe2(fds, O_CLOEXEC) < 0) {
                free(resolver);
                return -errno;
        }
        *resolver = (struct resolver){ .fd = fds[0], .fn = fn, .data = data };
        int r = loop_io_new(loop, resolver->fd, LOOP_READ, resolver_on_answer, resolver, &resolver->io);
        if (r == 0)
                r = resolver_ask(address, fds[1]);
        if (r < 0) {
                close(fds[1]);
                resolver_free(resolver);
                return r;
        }
        *ret = resolver;
        return 0;
}

struct resolver *resolver_free(struct resolver *resolver) {
        if (resolver == NULL)
                return NULL;
        loop_io_free(resolver->io);
        close(resolver->fd);
        free(resolver);
        return NULL;
}
