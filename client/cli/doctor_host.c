// SPDX-License-Identifier: Apache-2.0
/* Checks of the limits under which this user and the daemon run. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "doctor.h"
#include "format.h"
#include "memory.h"

#define FILES_FAIL 64u
#define FILES_WARN 1024u
#define LOCKED_ENOUGH (UINT64_C(8) << 20) /* what kernels give today */
#define ROOM_WARN (UINT64_C(256) << 20)
#define PROBE_BYTES (UINT64_C(4) << 20)

static const char *limit_text(char out[FORMAT_SIZE], rlim_t limit, bool bytes) {
        if (limit == RLIM_INFINITY)
                snprintf(out, FORMAT_SIZE, "unlimited");
        else if (bytes)
                format_bytes(out, limit);
        else
                snprintf(out, FORMAT_SIZE, "%" PRIu64, (uint64_t)limit);
        return out;
}

/* Soft limit of the daemon's open files; false if we may not look. */
static bool daemon_files(const struct checkup *checkup, uint64_t *ret) {
        char path[64], line[256];
        bool found = false;

        if (!checkup->snapshot.daemon || checkup->snapshot.daemon->pid <= 0)
                return false;
        snprintf(path, sizeof path, "/proc/%d/limits", checkup->snapshot.daemon->pid);
        FILE *file = fopen(path, "re");
        while (file && !found && fgets(line, sizeof line, file))
                found = sscanf(line, "Max open files %" SCNu64, ret) == 1;
        if (file)
                fclose(file);
        return found;
}

void check_open_files(const struct checkup *checkup, struct report *report) {
        char soft[FORMAT_SIZE], hard[FORMAT_SIZE];
        struct rlimit limit;
        uint64_t daemon;
        char *fix = NULL;

        getrlimit(RLIMIT_NOFILE, &limit);
        limit_text(soft, limit.rlim_cur, false);
        limit_text(hard, limit.rlim_max, false);
        enum verdict verdict = limit.rlim_cur < FILES_FAIL   ? VERDICT_FAIL
                               : limit.rlim_cur < FILES_WARN ? VERDICT_WARN
                                                             : VERDICT_OK;
        if (verdict && limit.rlim_max >= FILES_WARN)
                fix = say("ulimit -n %u", FILES_WARN);
        else if (verdict)
                fix = say("raise nofile in /etc/security/limits.conf, or LimitNOFILE= of your service");
        report_add(report, "open files", verdict, say("you may open %s files (at most %s)", soft, hard), fix);
        if (daemon_files(checkup, &daemon) && daemon < FILES_WARN)
                report_add(report, "open files", VERDICT_WARN,
                           say("the daemon may open only %" PRIu64 " files", daemon),
                           say("start it with ulimit -n 65536, or LimitNOFILE=65536 in its unit"));
}

static bool has_fast_hardware(void) {
        return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/infiniband", F_OK) == 0;
}

void check_locked_memory(const struct checkup *checkup, struct report *report) {
        bool hardware = has_fast_hardware();
        char soft[FORMAT_SIZE];
        struct rlimit limit;

        getrlimit(RLIMIT_MEMLOCK, &limit);
        limit_text(soft, limit.rlim_cur, true);
        bool enough = limit.rlim_cur == RLIM_INFINITY || (!hardware && limit.rlim_cur >= LOCKED_ENOUGH);
        report_add(report, "locked memory", enough ? VERDICT_OK : VERDICT_WARN,
                   say("you may lock %s%s", soft,
                       enough ? "" : "; enough for device cpu, little for GPUs and RDMA"),
                   enough ? NULL
                          : say("ulimit -l %s, or memlock in /etc/security/limits.conf",
                                hardware ? "unlimited" : "8192"));
}

void check_memory(const struct checkup *checkup, struct report *report) {
        struct memory_room room = memory_cgroup_room("/sys/fs/cgroup", "/proc/self/cgroup");
        uint64_t available = UINT64_MAX;
        char left[FORMAT_SIZE], of[FORMAT_SIZE];
        struct rlimit limit;

        memory_info("/proc/meminfo", "MemAvailable", &available);
        getrlimit(RLIMIT_AS, &limit);
        if (limit.rlim_cur != RLIM_INFINITY)
                return report_add(report, "memory", VERDICT_WARN,
                                  say("your address space is limited to %s; gradients are mapped as a whole",
                                      format_bytes(left, limit.rlim_cur)),
                                  say("ulimit -v unlimited"));
        if (room.limited && room.left < available) {
                enum verdict verdict = room.left < ROOM_WARN ? VERDICT_WARN : VERDICT_OK;
                return report_add(report, "memory", verdict,
                                  say("%s left of the %s that your control group may use",
                                      format_bytes(left, room.left), format_bytes(of, room.limit)),
                                  verdict ? say("give it more: MemoryMax=, docker --memory, or Slurm --mem")
                                          : NULL);
        }
        enum verdict verdict = available < ROOM_WARN ? VERDICT_WARN : VERDICT_OK;
        report_add(report, "memory", verdict, say("%s available", format_bytes(left, available)),
                   verdict ? say("end something, or add memory") : NULL);
}

/* The steps that share gradients, on a small scale: the name of the one that fails, or NULL. */
static const char *probe(int *ret_error) {
        _cleanup_(closep) int fd = memfd_create("gradsync-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        const char *failed = NULL;
        void *memory = MAP_FAILED;

        if (fd < 0)
                failed = "memfd_create";
        else if (ftruncate(fd, PROBE_BYTES) < 0)
                failed = "ftruncate";
        else if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
                failed = "sealing";
        else if ((memory = mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
                failed = "mmap";
        *ret_error = errno;
        if (memory != MAP_FAILED)
                munmap(memory, PROBE_BYTES);
        return failed;
}

void check_shared_memory(const struct checkup *checkup, struct report *report) {
        void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
        int error;
        const char *failed = probe(&error);

        signal(SIGXFSZ, before);
        if (!failed)
                report_add(report, "shared memory", VERDICT_OK,
                           say("memory files can be made, sealed and mapped"), NULL);
        else if (error == EFBIG)
                report_add(report, "shared memory", VERDICT_FAIL,
                           say("your limit of file sizes forbids memory files"), say("ulimit -f unlimited"));
        else
                report_add(report, "shared memory", VERDICT_FAIL, say("%s: %s", failed, strerror(error)),
                           say("allow memfd_create and mmap in the sandbox (seccomp) that runs this"));
}
