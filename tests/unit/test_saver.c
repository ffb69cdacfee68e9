/* SPDX-License-Identifier: Apache-2.0 */
/* A text that is kept in a file: how many writes its changes cost, and what becomes of it where the disk is
 * full, fails or hangs. */
#include "tests.h"
#include "tree_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/loop.h"
#include "core/saver.h"

static char path[64], fresh[64];
static struct loop *loop;
static struct loop_timer *look;
static struct saver *saver;
static unsigned number, asked; /* what the text says, and how often it was asked for */
static bool lacks_memory;
static atomic_uint syncs;
static atomic_int fails;                                 /* fsync()s that fail from now on */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* a disk that hangs holds it */

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd) {
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
        atomic_fetch_add(&syncs, 1);
        if (atomic_load(&fails) > 0) {
                atomic_fetch_sub(&fails, 1);
                errno = EIO;
                return -1;
        }
        return __real_fsync(fd);
}

static char *on_text(void *data) {
        char *text = NULL;

        asked++;
        return lacks_memory || asprintf(&text, "number %u\n", number) < 0 ? NULL : text;
}

static void on_look(void *data) {
        loop_exit(loop, 0);
}

static int set_up(void **state) {
        const struct saver_config config = { .loop = NULL, .path = path, .text = on_text };
        struct saver_config here = config;

        assert_int_equal(tree_make(state), 0);
        strcpy(path, in_tree("text"));
        strcpy(fresh, in_tree("text.new"));
        number = asked = 0;
        atomic_store(&syncs, 0);
        atomic_store(&fails, 0);
        assert_int_equal(loop_new(&loop), 0);
        assert_int_equal(loop_timer_new(loop, on_look, NULL, &look), 0);
        here.loop = loop;
        return saver_new(&here, &saver);
}

static int tear_down(void **state) {
        saver = saver_free(saver);
        loop_timer_free(look);
        loop = loop_free(loop);
        return tree_remove(state);
}

static void change(void) {
        number++;
        saver_touch(saver);
}

/* The file says that number. */
static bool says(unsigned wanted) {
        char *text, expected[32];
        bool same;

        assert_int_equal(saver_read(path, &text), 0);
        snprintf(expected, sizeof(expected), "number %u\n", wanted);
        same = text != NULL && strcmp(text, expected) == 0;
        free(text);
        return same;
}

#define until(condition)                                                                                     \
        do {                                                                                                 \
                while (!(condition)) {                                                                       \
                        loop_timer_arm(look, USEC_PER_MSEC);                                                 \
                        loop_run(loop);                                                                      \
                }                                                                                            \
        } while (0)

static void until_says(unsigned wanted) {
        until(says(wanted));
}

TEST_WITH(many_changes_are_one_write, set_up, tear_down) {
        struct stat info;

        for (unsigned i = 0; i < 1000; i++)
                change();
        until_says(1000);
        assert_int_equal(asked, 1);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 07777, 0600);
        assert_int_equal(access(fresh, F_OK), -1);
}

/* The loop runs on; what changes meanwhile is one more write. */
TEST_WITH(a_disk_that_is_slow_delays_nobody, set_up, tear_down) {
        pthread_mutex_lock(&gate);
        change();
        until(asked > 0);
        for (unsigned i = 0; i < 100; i++) {
                change();
                loop_timer_arm(look, USEC_PER_MSEC);
                loop_run(loop);
        }
        assert_int_equal(asked, 1);
        assert_false(says(1));
        pthread_mutex_unlock(&gate);
        until_says(101);
        assert_int_equal(asked, 2);
}

TEST_WITH(what_could_not_be_written_is_tried_again, set_up, tear_down) {
        change();
        until_says(1);
        atomic_store(&fails, 1000);
        change();
        until(atomic_load(&fails) < 1000);
        until(access(fresh, F_OK) != 0); /* what was half written takes no space */
        assert_true(says(1));
        atomic_store(&fails, 0);
        until_says(2); /* without another change */
}

TEST_WITH(without_memory_it_is_tried_again, set_up, tear_down) {
        lacks_memory = true;
        change();
        until(asked > 0);
        lacks_memory = false;
        until_says(1);
}

TEST_WITH(the_end_writes_what_is_left, set_up, tear_down) {
        change();
        saver = saver_free(saver);
        assert_true(says(1));
        assert_int_equal(asked, 1);
}

TEST_WITH(nothing_is_written_without_a_change, set_up, tear_down) {
        char *text;

        saver = saver_free(saver);
        assert_int_equal(saver_read(path, &text), 0);
        assert_null(text);
        assert_int_equal(atomic_load(&syncs), 0);
}
