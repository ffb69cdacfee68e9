/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes whose engine is Gloo's, each with a real helper process and memory of its own. */
#pragma once

#include "engine/engines.h"

struct site_own {
        struct engines engines;
        int memory;
};

struct rig_own {
        int n_fds; /* before */
};

#define SITES 5u
#define LANES 4u

#include "captured_stderr.h"
#include "descriptors.h"
#include "engine_fixture.h"

#include <signal.h>
#include <sys/wait.h>

#define STREAMS 2u /* of a lane: ports that a node listens on, while they are few */
#define MEMORY_BYTES (16u << 20)
#define PATIENT 30000u /* ms: a silence that no busy machine makes */
#define SWIFT 750u

static const char *rig_helper = HELPER;

/* The helpers, in the order of the ranks. */
static inline unsigned children(pid_t *ret, unsigned most) {
        char path[64], pid[32];
        unsigned n = 0;

        snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
        FILE *file = fopen(path, "re");
        assert_non_null(file);
        while (n < most && fscanf(file, "%31s", pid) == 1)
                ret[n++] = atoi(pid);
        fclose(file);
        return n;
}

static void site_open(struct rig *rig, uint32_t rank, uint32_t silence) {
        struct engines_config config = { .gloo_helper = rig_helper, .silence = silence };
        struct site *site = &rig->site[rank];

        site->rig = rig;
        assert_int_equal(engines_open(&config, &site->own.engines), 0);
        site->engine = site->own.engines.host;
        assert_non_null(site->engine);
        site->engine->events = &site_events;
        site->engine->owner = site;
        site->own.memory = memfd_create("site", MFD_CLOEXEC);
        assert_true(site->own.memory >= 0);
        assert_int_equal(ftruncate(site->own.memory, MEMORY_BYTES), 0);
        site->bytes = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, site->own.memory, 0);
        assert_true(site->bytes != MAP_FAILED);
        struct engine_memory memory = { site->bytes, site->own.memory, MEMORY_BYTES };
        assert_int_equal(site->engine->ops->share(site->engine, MEMORY, &memory), 0);
}

/* Opens the sites, after ending those that were open. */
static void rig_open(struct rig *rig, uint32_t n, uint32_t n_lanes, uint32_t silence) {
        rig_end(rig);
        memset(rig, 0, sizeof(*rig));
        rig->own.n_fds = count_fds();
        rig->n = n;
        rig->n_lanes = n_lanes;
        rig->comm = COMM;
        for (uint32_t rank = 0; rank < n; rank++)
                site_open(rig, rank, silence);
}

static inline void rig_form(struct rig *rig, uint32_t n, uint32_t n_lanes) {
        rig_open(rig, n, n_lanes, PATIENT);
        rig_build(rig);
        rig_await_made(rig);
}

/* Ends the sites, and checks that no process and no descriptor is left. */
static void rig_end(struct rig *rig) {
        pid_t left;

        if (rig->n == 0)
                return;
        if (rig->is_built)
                rig_drop(rig);
        EACH_SITE(rig, site) {
                site->engine->ops->unshare(site->engine, MEMORY);
                munmap(site->bytes, MEMORY_BYTES);
                close(site->own.memory);
                free(site->table);
        }
        EACH_SITE(rig, site)
        engines_close(&site->own.engines);
        assert_int_equal(waitpid(-1, &(int){ 0 }, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
        assert_int_equal(children(&left, 1), 0);
        assert_int_equal(count_fds(), rig->own.n_fds);
        rig->n = 0;
}
