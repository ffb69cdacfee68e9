// SPDX-License-Identifier: Apache-2.0
/* Checks of the limits under which this user and the daemon run. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "client/cli/base/format.h"
#include "client/cli/doctor/doctor.h"
#include "client/cli/doctor/headroom.h"

#define FILES_FAIL 64u
#define FILES_WARN 1024u
#define LOCKED_ENOUGH (UINT64_C(8) << 20) /* what kernels give today */
#define ROOM_WARN (UINT64_C(256) << 20)
#define PROBE_BYTES (UINT64_C(4) << 20)

static const char *doctor_limits_limit_text(char out[FORMAT_SIZE], rlim_t limit, bool bytes) {
        if (limit == RLIM_INFINITY)
                snprintf(out, FORMAT_SIZE, "unlimited");
        else if (bytes)
                format_bytes(out, limit);
        else
                snprintf(out, FORMAT_SIZE, "%" PRIu64, (uint64_t)limit);
        return out;
}

/* Where the limit with this name is set for logins. */
static char *doctor_limits_where(const struct checkup *checkup, const char *name) {
        return checkup->advice.has_limits
                       ? format_new("%s in " ADVICE_LIMITS, name)
                       : format_new("%s in what starts this session (a service, a container)", name);
}

/* Soft limit of the open files of the daemon; false if this user may not see it. */
static bool doctor_limits_daemon_files(const struct checkup *checkup, uint64_t *ret) {
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

static void doctor_limits_open_files(const struct checkup *checkup, struct findings *findings) {
        char soft[FORMAT_SIZE], hard[FORMAT_SIZE];
        struct rlimit limit;
        uint64_t daemon;
        char *fix = NULL;
        _cleanup_(freep) char *where = doctor_limits_where(checkup, "nofile");

        getrlimit(RLIMIT_NOFILE, &limit);
        doctor_limits_limit_text(soft, limit.rlim_cur, false);
        doctor_limits_limit_text(hard, limit.rlim_max, false);
        enum verdict verdict = limit.rlim_cur < FILES_FAIL   ? VERDICT_FAIL
                               : limit.rlim_cur < FILES_WARN ? VERDICT_WARN
                                                             : VERDICT_OK;
        if (verdict && limit.rlim_max >= FILES_WARN)
                fix = format_new("ulimit -n %u", FILES_WARN);
        else if (verdict)
                fix = format_new("raise %s%s", where ? where : "nofile",
                                 checkup->advice.systemd ? ", or LimitNOFILE= of your service" : "");
        findings_add(findings, "open files", verdict,
                     format_new("you may open %s files (at most %s)", soft, hard), fix);
        if (doctor_limits_daemon_files(checkup, &daemon) && daemon < FILES_WARN)
                findings_add(findings, "open files", VERDICT_WARN,
                             format_new("the daemon may open only %" PRIu64 " files", daemon),
                             format_new("start it with ulimit -n 65536%s",
                                        checkup->advice.systemd ? ", or LimitNOFILE=65536 in its unit" : ""));
}

static bool doctor_limits_has_fast_hardware(void) {
        return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/infiniband", F_OK) == 0;
}

static void doctor_limits_locked_memory(const struct checkup *checkup, struct findings *findings) {
        _cleanup_(freep) char *where = doctor_limits_where(checkup, "memlock");
        bool hardware = doctor_limits_has_fast_hardware();
        char soft[FORMAT_SIZE];
        struct rlimit limit;

        getrlimit(RLIMIT_MEMLOCK, &limit);
        doctor_limits_limit_text(soft, limit.rlim_cur, true);
        bool enough = limit.rlim_cur == RLIM_INFINITY || (!hardware && limit.rlim_cur >= LOCKED_ENOUGH);
        findings_add(findings, "locked memory", enough ? VERDICT_OK : VERDICT_WARN,
                     format_new("you may lock %s%s", soft,
                                enough ? "" : "; enough for device cpu, little for GPUs and RDMA"),
                     enough ? NULL
                            : format_new("ulimit -l %s, or %s", hardware ? "unlimited" : "8192",
                                         where ? where : "memlock"));
}

static void doctor_limits_memory(struct findings *findings) {
        struct headroom room = headroom_cgroup("/sys/fs/cgroup", "/proc/self/cgroup");
        uint64_t available = UINT64_MAX;
        char left[FORMAT_SIZE], of[FORMAT_SIZE];
        struct rlimit limit;

        headroom_meminfo("/proc/meminfo", "MemAvailable", &available);
        getrlimit(RLIMIT_AS, &limit);
        if (limit.rlim_cur != RLIM_INFINITY)
                return findings_add(
                        findings, "memory", VERDICT_WARN,
                        format_new("your address space is limited to %s; gradients are mapped as a whole",
                                   format_bytes(left, limit.rlim_cur)),
                        format_new("ulimit -v unlimited"));
        if (room.limited && room.left < available) {
                enum verdict verdict = room.left < ROOM_WARN ? VERDICT_WARN : VERDICT_OK;
                return findings_add(
                        findings, "memory", verdict,
                        format_new("%s left of the %s that your control group may use",
                                   format_bytes(left, room.left), format_bytes(of, room.limit)),
                        verdict ? format_new("give it more: MemoryMax=, docker --memory, or Slurm --mem")
                                : NULL);
        }
        enum verdict verdict = available < ROOM_WARN ? VERDICT_WARN : VERDICT_OK;
        findings_add(findings, "memory", verdict, format_new("%s available", format_bytes(left, available)),
                     verdict ? format_new("end something, or add memory") : NULL);
}

/* Tries the steps by which gradients are shared, on a small scale. Returns the name of the one that fails, or
 * NULL. */
static const char *doctor_limits_probe(int *ret_error) {
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

static void doctor_limits_shared_memory(struct findings *findings) {
        void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
        int error;
        const char *failed = doctor_limits_probe(&error);

        signal(SIGXFSZ, before);
        if (!failed)
                findings_add(findings, "shared memory", VERDICT_OK,
                             format_new("memory files can be made, sealed and mapped"), NULL);
        else if (error == EFBIG)
                findings_add(findings, "shared memory", VERDICT_FAIL,
                             format_new("your limit of file sizes forbids memory files"),
                             format_new("ulimit -f unlimited"));
        else
                findings_add(findings, "shared memory", VERDICT_FAIL,
                             format_new("%s: %s", failed, strerror(error)),
                             format_new(
                                     "allow memfd_create and mmap in the sandbox (seccomp) that runs this"));
}

void doctor_limits(const struct checkup *checkup, struct findings *findings) {
        doctor_limits_open_files(checkup, findings);
        doctor_limits_locked_memory(checkup, findings);
        doctor_limits_memory(findings);
        doctor_limits_shared_memory(findings);
}
