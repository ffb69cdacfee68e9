/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The board of one fact: a page of memory that the probe and all processes of the fact share. Each process
 * writes there what it is about to do, so that a hang or a crash has a place, and one of them writes the
 * answer. The probe itself never calls into CUDA; it reads the board.
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
        BOARD_PLACES = 6, /* processes of a fact, at most */
        BOARD_ROLE = 32,
        BOARD_DOING = 64,
        BOARD_ANSWER = 96,
        BOARD_DETAIL = 2048,
};

struct board_place {
        int32_t taken;
        int64_t since_ns; /* CLOCK_MONOTONIC, when `doing` began */
        char role[BOARD_ROLE];
        char doing[BOARD_DOING]; /* call or wait; empty: its own code */
};

struct board {
        int32_t answered;          /* 0 no answer, 1 a process writes one, 2 it is there */
        char answer[BOARD_ANSWER]; /* one word, or a figure with its unit */
        char detail[BOARD_DETAIL]; /* grows by notes, separated by "; " */
        struct board_place place[BOARD_PLACES];
};

/* A board and its descriptor, or NULL with errno. The caller unmaps with board_free(), and closes the
 * descriptor. */
struct board *board_new(int *fd);

/* The board behind a descriptor that was inherited, or NULL with errno. */
struct board *board_open(int fd);
void board_free(struct board *board);

/* Notes what the process at this place does from now on; NULL: nothing that could hang. */
void board_doing(struct board *board, unsigned place, const char *what);

/* Adds to the detail. A text that does not fit is cut off. */
void board_note(struct board *board, const char *format, va_list arguments);

/* Sets the answer, unless there is one: the first one counts. Returns whether it was set. */
bool board_answer(struct board *board, const char *format, va_list arguments);
bool board_answered(const struct board *board);

/* Lists the processes that are in a call or a wait, such as "importer in cuMemMap for 3.0 s". */
void board_where(const struct board *board, char *text, size_t size);
