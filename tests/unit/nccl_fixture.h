/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes whose engine is NCCL's, each with a fake GPU of its own, over the fake NCCL. */
#pragma once

#include "fake_gpu_fixture.h"

#include "engine/nccl/nccl.h"
#include "engine/nccl/table.h"
#include "proto/names.h"

struct site_own {
        cuda_context context;
        cuda_address memory;
        uint32_t gpu;
        unsigned n_failed;
};

struct rig_own {
        struct nccl_engine_config config;
};

#define TESTS_OWN_MAIN
#define SITES 4u
#define LANES 2u

#include "captured_stderr.h"
#include "engine_fixture.h"

#define MEMORY_BYTES (4u << 20)
#define LONG_AGO 20000u

/* Sets the calls that the fake fails, or never ends, from now on. The variables are there from the beginning,
 * because other threads read them meanwhile. */
static inline void set_trouble(const char *fail, const char *stuck) {
        setenv("FAKE_NCCL_FAIL", fail, 1);
        setenv("FAKE_NCCL_STUCK", stuck, 1);
}

/* A call that never ends from now on. The fake makes a file when one of them has begun. */
static inline void stick_at(const char *call) {
        unlink(gpu_file("stuck")); /* of another test */
        set_trouble("", call);
}

static inline void await_stuck(void) {
        while (access(gpu_file("stuck"), F_OK) != 0)
                usleep(1000);
}

static void site_on_failed(void *owner, const char *why) {
        struct site *site = owner;

        site->own.n_failed++;
}

static void uuid_of(uint32_t number, char text[CUDA_UUID_TEXT]) {
        struct cuda_uuid uuid;
        cuda_device device;

        assert_int_equal(driver.device_get(&device, (int)number), CUDA_OK);
        assert_int_equal(driver.device_uuid(&uuid, device), CUDA_OK);
        cuda_uuid_text(&uuid, text);
}

static void site_enter(const struct site *site) {
        assert_int_equal(driver.context_set(site->own.context), CUDA_OK);
}

static int site_share(struct site *site, uint64_t id, cuda_address address) {
        struct engine_memory memory = { .address = (void *)(uintptr_t)address,
                                        .fd = -1,
                                        .bytes = MEMORY_BYTES };

        return site->engine->ops->share(site->engine, id, &memory);
}

static void site_open(struct rig *rig, uint32_t rank, uint32_t gpu) {
        struct nccl_engine_config config = rig->own.config;
        struct site *site = &rig->site[rank];
        char uuid[CUDA_UUID_TEXT];
        void *pinned;

        site->rig = rig;
        site->own.gpu = gpu;
        uuid_of(gpu, uuid);
        config.uuid = uuid;
        config.failed = site_on_failed;
        config.owner = site;
        if (nccl_open(&config, &site->engine, error, sizeof(error)) != 0)
                FAIL("%s", error);
        site->engine->events = &site_events;
        site->engine->owner = site;
        assert_int_equal(driver.primary_retain(&site->own.context, (cuda_device)gpu), CUDA_OK);
        site_enter(site);
        assert_int_equal(driver.allocate(&site->own.memory, MEMORY_BYTES), CUDA_OK);
        assert_int_equal(driver.host_alloc(&pinned, 4096, CUDA_HOST_DEVICEMAP), CUDA_OK);
        site->bytes = pinned;
        assert_int_equal(site_share(site, MEMORY, site->own.memory), 0);
}

/* Configures the sites, after ending those that were open. */
static void rig_configure(struct rig *rig, uint32_t n) {
        rig_end(rig);
        memset(rig, 0, sizeof(*rig));
        rig->n = n;
        rig->n_lanes = LANES;
        rig->comm = COMM;
        rig->own.config = (struct nccl_engine_config){ .host = "here",
                                                       .log = -1,
                                                       .driver = FAKE_GPU_LIBRARY,
                                                       .library = FAKE_NCCL_LIBRARY,
                                                       .timeout = LONG_AGO,
                                                       .exchange = LONG_AGO,
                                                       .ending = LONG_AGO };
}

/* Rank n is on GPU n. */
static void rig_begin(struct rig *rig) {
        for (uint32_t rank = 0; rank < rig->n; rank++)
                site_open(rig, rank, rank);
}

static inline void rig_open(struct rig *rig, uint32_t n) {
        rig_configure(rig, n);
        rig_begin(rig);
}

static inline void rig_form(struct rig *rig, uint32_t n) {
        rig_open(rig, n);
        rig_build(rig);
        rig_await_made(rig);
}

static void site_unshare(struct site *site, uint64_t memory) {
        unsigned before = site->n_unshared;

        if (!site->engine->ops->unshare(site->engine, memory))
                UNTIL(site->rig, site->n_unshared > before);
}

static void site_close(struct site *site) {
        nccl_close(site->engine);
        site_enter(site);
        assert_int_equal(driver.free(site->own.memory), CUDA_OK);
        assert_int_equal(driver.host_free(site->bytes), CUDA_OK);
        assert_int_equal(driver.primary_release((cuda_device)site->own.gpu), CUDA_OK);
        free(site->table);
        assert_int_equal(site->own.n_failed, 0);
}

/* Nothing is left on any GPU. */
static void rig_end(struct rig *rig) {
        set_trouble("", "");
        if (rig->is_built)
                rig_drop(rig);
        for (uint32_t rank = 0; rank < rig->n; rank++)
                site_unshare(&rig->site[rank], MEMORY);
        for (uint32_t rank = 0; rank < rig->n; rank++)
                site_close(&rig->site[rank]);
        rig->n = 0;
}

static inline void site_put(const struct site *site, uint64_t offset, const void *from, size_t bytes) {
        site_enter(site);
        assert_int_equal(driver.copy_in(site->own.memory + offset, from, bytes, NULL), CUDA_OK);
        assert_int_equal(driver.stream_wait(NULL), CUDA_OK);
}

static inline void site_get(const struct site *site, uint64_t offset, void *to, size_t bytes) {
        site_enter(site);
        assert_int_equal(driver.copy_out(to, site->own.memory + offset, bytes, NULL), CUDA_OK);
}

static int nccl_setup(void **state) {
        set_trouble("", "");
        setenv("NCCL_WIN_ENABLE", "1", 1);
        return gpu_setup("4");
}

/* Returns the text that was logged since the last call, and passes it on to the real stderr. */
static const char *logged(void) {
        const char *text = written();

        dprintf(real_stderr, "%s", text);
        return text;
}

static inline int release_logged(void **state) {
        logged();
        return release_stderr();
}

#define TEST(name) RIG_TEST(name, capture, release_logged)

/* With an argument only the tests of that name run: `test_nccl 'what_*'`. */
int main(int argc, char **argv) {
        cmocka_set_test_filter(argv[1]);
        return tests_run(nccl_setup, NULL) != 0 || !gpu_check();
}
