/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stub's device, and how its functions are found: those that the probe asks for, at the versions that it
 * asks for, each with the signature that cuda.h declares.
 */
#include "stub.h"

#include "../driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REFUSALS = 4 };

STUB_API CUresult cuInit(unsigned flags) {
        return CUDA_SUCCESS;
}

STUB_API CUresult cuDriverGetVersion(int *version) {
        *version = CUDA_VERSION;
        return CUDA_SUCCESS;
}

STUB_API CUresult cuGetErrorName(CUresult error, const char **name) {
        static const struct {
                CUresult error;
                const char *name;
        } names[] = {
                { CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE" },
                { CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT" },
                { CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE" },
                { CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS" },
                { CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM" },
                { CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED" },
        };

        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                if (names[i].error == error) {
                        *name = names[i].name;
                        return CUDA_SUCCESS;
                }
        *name = NULL;
        return CUDA_ERROR_INVALID_VALUE;
}

STUB_API CUresult cuDeviceGetCount(int *n) {
        *n = 1;
        return CUDA_SUCCESS;
}

STUB_API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
        *device = ordinal;
        return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* A name that a row has to escape. */
STUB_API CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
        snprintf(name, (size_t)size, "Stub \"100\"\t\xe9");
        return CUDA_SUCCESS;
}

STUB_API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
        for (unsigned i = 0; i < sizeof uuid->bytes; i++)
                uuid->bytes[i] = (char)(0xa0 + i);
        return CUDA_SUCCESS;
}

STUB_API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
        *value = (int)attribute;
        return CUDA_SUCCESS;
}

STUB_API CUresult cuDeviceTotalMem(size_t *size, CUdevice device) {
        *size = (size_t)8 << 30;
        return CUDA_SUCCESS;
}

STUB_API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
        *context = (CUcontext)(uintptr_t)0x1000;
        return CUDA_SUCCESS;
}

static bool current;

bool stub_has_context(void) {
        return current;
}

STUB_API CUresult cuCtxSetCurrent(CUcontext context) {
        current = context != NULL;
        return CUDA_SUCCESS;
}

/* As a driver does that writes machine code and runs it. */
static bool may_write_code(void) {
        void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        return memory != MAP_FAILED && mprotect(memory, 4096, PROT_READ | PROT_EXEC) == 0;
}

STUB_API CUresult cuModuleLoadData(CUmodule *module, const void *image) {
        const char *list = getenv("STUB_CUDA");

        if (list != NULL && strstr(list, "write-code") != NULL && !may_write_code())
                return CUDA_ERROR_OPERATING_SYSTEM;
        *module = (CUmodule)(uintptr_t)0x2000;
        return strncmp(image, ".version", 8) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

STUB_API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
        *(void **)function = *(void **)&(void (*[])(struct stub_operation *)){ stub_kernel(name) }[0];
        return *function != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* Arguments are of 8 bytes, but for the second one of "bump". */
STUB_API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                 CUstream stream, void **arguments, void **extra) {
        static const struct {
                const char *name;
                size_t sizes[STUB_ARGUMENTS];
        } kernels[] = {
                { "idle", { 0 } }, { "bump", { 8, 4 } }, { "count", { 8, 8, 8 } }, { "gaps", { 8, 8, 8, 8 } }
        };
        void (*run)(struct stub_operation *);
        struct stub_operation *o;

        *(void **)&run = function;
        o = stub_operation(run);
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
                for (size_t i = 0;
                     stub_kernel(kernels[k].name) == run && i < STUB_ARGUMENTS && kernels[k].sizes[i] > 0;
                     i++)
                        memcpy(&o->number[i], arguments[i], kernels[k].sizes[i]);
        stub_enqueue(stream, o);
        return CUDA_SUCCESS;
}

static _Noreturn CUresult hang(void) {
        for (;;)
                pause();
}

static _Noreturn CUresult crash(void) {
        abort();
}

static CUresult refusal[REFUSALS];
static CUresult refuse_0(void) {
        return refusal[0];
}
static CUresult refuse_1(void) {
        return refusal[1];
}
static CUresult refuse_2(void) {
        return refusal[2];
}
static CUresult refuse_3(void) {
        return refusal[3];
}

/* `word` of a list such as "hang:cuInit,refuse:cuMemCreate=801" that is about `name`: what follows the name
 * there, else NULL. */
static const char *listed(const char *list, const char *word, const char *name) {
        char wanted[96];
        size_t length = (size_t)snprintf(wanted, sizeof wanted, "%s:%s", word, name);

        for (const char *at = list; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
                if (strncmp(at, wanted, length) == 0 &&
                    (at[length] == ',' || at[length] == '=' || at[length] == '\0'))
                        return at + length;
        return NULL;
}

void *stub_misbehave(const char *name, void *function) {
        static CUresult (*const refusers[REFUSALS])(void) = { refuse_0, refuse_1, refuse_2, refuse_3 };
        static unsigned refused;
        const char *list = getenv("STUB_CUDA"), *code;
        CUresult (*instead)(void) = NULL;

        if (listed(list, "missing", name))
                return NULL;
        code = listed(list, "refuse", name);
        if (code != NULL && *code == '=' && refused < REFUSALS) {
                refusal[refused] = (CUresult)strtol(code + 1, NULL, 10);
                instead = refusers[refused++];
        }
        if (listed(list, "hang", name))
                instead = hang;
        if (listed(list, "crash", name))
                instead = crash;
        return instead != NULL ? *(void **)&instead : function;
}

STUB_API CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags,
                                   CUdriverProcAddressQueryResult *found) {
        static const struct {
                const char *name;
                int version;
                void *function;
        } table[] = {
#define STUB_ENTRY(entry, since) { #entry, since, (void *)entry },
                CUDA_CALLS(STUB_ENTRY)
#undef STUB_ENTRY
        };

        *function = NULL;
        *found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        if (flags != CU_GET_PROC_ADDRESS_LEGACY_STREAM)
                return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < sizeof table / sizeof *table; i++)
                if (strcmp(table[i].name, name) == 0 && version >= table[i].version)
                        *function = stub_misbehave(name, table[i].function);
        if (*function != NULL)
                *found = CU_GET_PROC_ADDRESS_SUCCESS;
        return *function != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
