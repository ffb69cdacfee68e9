/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared page of one fact. Several processes write to it, each to its own place, and none of them trusts
 * another to be alive.
 */
#include "board.h"

#include "clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct board *board_map(int fd) {
        void *memory = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        return memory == MAP_FAILED ? NULL : memory;
}

struct board *board_new(int *fd) {
        struct board *board;

        *fd = memfd_create("probe-board", MFD_CLOEXEC);
        if (*fd < 0)
                return NULL;
        board = ftruncate(*fd, sizeof(struct board)) == 0 ? board_map(*fd) : NULL;
        if (board == NULL) {
                close(*fd);
                *fd = -1;
        }
        return board;
}

struct board *board_open(int fd) {
        struct stat status;

        if (fstat(fd, &status) < 0 || status.st_size < (off_t)sizeof(struct board))
                return NULL;
        return board_map(fd);
}

void board_free(struct board *board) {
        if (board != NULL)
                munmap(board, sizeof *board);
}

/* Around every call into the driver, timed ones included: so it costs as little as it can. */
void board_doing(struct board *board, unsigned place, const char *what) {
        struct board_place *p = &board->place[place];
        size_t length = what != NULL ? strnlen(what, sizeof p->doing - 1) : 0;

        p->doing[length] = '\0';
        if (length > 0) {
                memcpy(p->doing, what, length);
                p->since_ns = clock_ns();
        }
}

void board_note(struct board *board, const char *format, va_list arguments) {
        size_t used = strnlen(board->detail, sizeof board->detail);

        if (used >= sizeof board->detail - 1)
                return;
        if (used > 0)
                used += (size_t)snprintf(board->detail + used, sizeof board->detail - used, "; ");
        if (used < sizeof board->detail)
                vsnprintf(board->detail + used, sizeof board->detail - used, format, arguments);
}

bool board_answer(struct board *board, const char *format, va_list arguments) {
        int32_t unanswered = 0;

        if (!__atomic_compare_exchange_n(&board->answered, &unanswered, 1, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE))
                return false;
        vsnprintf(board->answer, sizeof board->answer, format, arguments);
        __atomic_store_n(&board->answered, 2, __ATOMIC_RELEASE);
        return true;
}

bool board_answered(const struct board *board) {
        return __atomic_load_n(&board->answered, __ATOMIC_ACQUIRE) == 2;
}

void board_where(const struct board *board, char *text, size_t size) {
        int64_t now = clock_ns();
        size_t used = 0;

        text[0] = '\0';
        for (unsigned i = 0; i < BOARD_PLACES; i++) {
                const struct board_place *p = &board->place[i];
                int more;

                if (!p->taken || p->doing[0] == '\0' || used >= size)
                        continue;
                more = snprintf(text + used, size - used, "%s%.*s in %.*s for %.1f s", used ? ", " : "",
                                BOARD_ROLE, p->role, BOARD_DOING, p->doing,
                                (double)(now - p->since_ns) / 1e9);
                used += more > 0 ? (size_t)more : 0;
        }
        if (text[0] == '\0')
                snprintf(text, size, "in no call");
}
