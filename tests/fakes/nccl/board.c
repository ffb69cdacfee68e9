/* SPDX-License-Identifier: Apache-2.0 */
/* The files of communicators. See board.h. */
#include "board.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "nccl-"

static const char *board_folder(void) {
        const char *folder = getenv("FAKE_GPU");

        return folder != NULL ? folder : "";
}

static void board_path(const unsigned char id[BOARD_ID], char path[4096]) {
        int used = snprintf(path, 4096 - 2 * BOARD_ID, "%s/" PREFIX, board_folder());

        for (unsigned i = 0; i < BOARD_ID; i++)
                used += snprintf(path + used, 4096 - (size_t)used, "%02x", id[i]);
}

/* A file that was deleted between its opening and its locking is not the communicator's any more. */
int board_open(const unsigned char id[BOARD_ID]) {
        char path[4096];
        struct stat status;

        board_path(id, path);
        for (;;) {
                int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
                if (fd < 0)
                        return -1;
                fchmod(fd, 0666); /* ranks may be of different users */
                if (flock(fd, LOCK_EX) == 0 && fstat(fd, &status) == 0 && status.st_nlink > 0 &&
                    (status.st_size > 0 || ftruncate(fd, sizeof(struct board)) == 0))
                        return fd;
                close(fd);
        }
}

void board_unlock(int fd) {
        flock(fd, LOCK_UN);
}

struct board *board_map(int fd) {
        struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        return board != MAP_FAILED ? board : NULL;
}

void board_unmap(struct board *board) {
        munmap(board, sizeof(*board));
}

/* When the process began; 0: there is none, or it is over. */
static uint64_t board_process_start(pid_t pid) {
        char path[64], text[1024] = "";
        char state;
        unsigned long long start = 0;

        snprintf(path, sizeof(path), "/proc/%d/stat", pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return 0;
        if (read(fd, text, sizeof(text) - 1) <= 0)
                text[0] = '\0';
        close(fd);
        const char *after_name = strrchr(text, ')');
        if (after_name == NULL ||
            sscanf(after_name + 1,
                   " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &state,
                   &start) != 2 ||
            state == 'Z' || state == 'X')
                return 0;
        return start;
}

void board_enter(struct board *board, unsigned rank) {
        struct board_rank *own = &board->rank[rank];

        own->pid = getpid();
        own->start = board_process_start(own->pid);
        own->state = RANK_HERE;
        board->here++;
}

bool board_is_here(const struct board_rank *rank) {
        return rank->state == RANK_HERE && board_process_start(rank->pid) == rank->start;
}

/* No rank is left, except those of the process `killed`. */
static bool board_is_over(const struct board *board, pid_t killed) {
        for (unsigned i = 0; i < BOARD_RANKS; i++)
                if (board_is_here(&board->rank[i]) && board->rank[i].pid != killed)
                        return false;
        return true;
}

void board_leave(const unsigned char id[BOARD_ID], int fd, struct board *board, unsigned rank) {
        char path[4096];

        flock(fd, LOCK_EX);
        board->rank[rank].state = RANK_LEFT;
        board_path(id, path);
        if (board_is_over(board, 0))
                unlink(path);
        board_unmap(board);
        close(fd);
}

/* ---- all of them ---- */

/* Calls `over` for each, with its lock held; true: it is to be deleted. */
static unsigned boards_each(bool (*over)(struct board *board, const char *name, void *data), void *data) {
        DIR *folder = opendir(board_folder());
        const struct dirent *entry;
        unsigned n = 0;

        while (folder != NULL && (entry = readdir(folder)) != NULL) {
                struct board *board;
                struct stat status;
                if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0 ||
                    strlen(entry->d_name) != strlen(PREFIX) + 2 * BOARD_ID)
                        continue;
                int fd = openat(dirfd(folder), entry->d_name, O_RDWR | O_CLOEXEC);
                if (fd < 0 || flock(fd, LOCK_EX) < 0 || fstat(fd, &status) < 0 || status.st_nlink == 0 ||
                    status.st_size == 0 || (board = board_map(fd)) == NULL) {
                        close(fd);
                        continue;
                }
                if (over(board, entry->d_name, data)) {
                        unlinkat(dirfd(folder), entry->d_name, 0);
                        n++;
                }
                board_unmap(board);
                close(fd);
        }
        if (folder != NULL)
                closedir(folder);
        return n;
}

static bool board_sweep(struct board *board, const char *name, void *data) {
        const pid_t *pid = data;
        bool was_there = false;

        for (unsigned i = 0; i < BOARD_RANKS; i++)
                was_there |= board->rank[i].pid == *pid;
        return was_there && board_is_over(board, *pid);
}

void boards_sweep(pid_t pid) {
        boards_each(board_sweep, &pid);
}

static bool board_count(struct board *board, const char *name, void *data) {
        unsigned *n = data;

        if (board_is_over(board, 0)) {
                printf("%s is left over\n", name);
                (*n)++;
        }
        return false;
}

unsigned boards_left_over(void) {
        unsigned n = 0;

        boards_each(board_count, &n);
        return n;
}
