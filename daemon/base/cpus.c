/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPUs that this process may use. The kernel takes only those CPUs of a requested list that the cpuset
 * allows. The limit of a container is rarely in its affinity mask: it is a bandwidth quota of some cgroup
 * above this process, and the tightest quota counts.
 */
#include "cpus.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "proto/cgroup.h"

/* Reads two words of a file, or only one if `second` is NULL. */
static bool cpus_read_words(const char *path, char first[32], char second[32]) {
        FILE *file = fopen(path, "re");
        if (!file)
                return false;
        int n = second ? fscanf(file, "%31s %31s", first, second) : fscanf(file, "%31s", first);
        fclose(file);
        return n == (second ? 2 : 1);
}

static unsigned cpus_round_up(const char *quota_text, const char *period_text) {
        char *end;
        long long quota = strtoll(quota_text, &end, 10);
        if (*end || quota <= 0) /* "max" in version 2, -1 in version 1 */
                return 0;
        long long period = strtoll(period_text, &end, 10);
        if (*end || period <= 0)
                return 0;

        long long cpus = quota / period + (quota % period != 0);
        return cpus > INT_MAX ? 0 : (unsigned)cpus;
}

/* Returns the limit of one folder in the tree, 0 for none. */
static unsigned cpus_limit_at(const char *folder, bool unified) {
        char path[PATH_MAX + 32], quota[32], period[32];

        if (unified) {
                snprintf(path, sizeof(path), "%s/cpu.max", folder);
                return cpus_read_words(path, quota, period) ? cpus_round_up(quota, period) : 0;
        }
        snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
        if (!cpus_read_words(path, quota, NULL))
                return 0;
        snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
        return cpus_read_words(path, period, NULL) ? cpus_round_up(quota, period) : 0;
}

static unsigned cpus_tighter(unsigned a, unsigned b) {
        if (a == 0 || b == 0)
                return a + b;
        return a < b ? a : b;
}

static void cpus_look(void *data, const char *folder, bool unified) {
        unsigned *limit = data;

        *limit = cpus_tighter(*limit, cpus_limit_at(folder, unified));
}

unsigned cpus_cgroup_limit(const char *sysfs_root, const char *proc_cgroup) {
        unsigned limit = 0;

        cgroup_walk(sysfs_root, proc_cgroup, "cpu", cpus_look, &limit);
        return limit;
}

/* Returns the size of the affinity mask. The kernel refuses a set that is too small for its CPUs, so larger
 * ones are tried. */
static unsigned cpus_affinity_count(void) {
        for (int cpus = CPU_SETSIZE; cpus <= 1 << 16; cpus *= 2) {
                cpu_set_t *set = CPU_ALLOC((size_t)cpus);
                if (!set)
                        return 1;
                size_t size = CPU_ALLOC_SIZE((size_t)cpus);
                int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
                int error = errno;
                CPU_FREE(set);
                if (count > 0)
                        return (unsigned)count;
                if (error != EINVAL)
                        break;
        }
        return 1;
}

unsigned cpus_available(void) {
        return cpus_tighter(cpus_affinity_count(), cpus_cgroup_limit("/sys/fs/cgroup", "/proc/self/cgroup"));
}

static bool cpus_parse_number(const char **text, unsigned *ret) {
        unsigned value = 0;

        if (**text < '0' || **text > '9')
                return false;
        for (; **text >= '0' && **text <= '9'; (*text)++) {
                value = value * 10 + (unsigned)(**text - '0');
                if (value >= CPU_SETSIZE)
                        return false;
        }
        *ret = value;
        return true;
}

bool cpus_parse(const char *text, cpu_set_t *ret) {
        cpu_set_t set;

        CPU_ZERO(&set);
        for (;;) {
                unsigned first, last;
                if (!cpus_parse_number(&text, &first))
                        return false;
                last = first;
                if (*text == '-') {
                        text++;
                        if (!cpus_parse_number(&text, &last) || last < first)
                                return false;
                }
                for (unsigned cpu = first; cpu <= last; cpu++)
                        CPU_SET(cpu, &set);
                if (*text == '\0')
                        break;
                if (*text++ != ',')
                        return false;
        }
        *ret = set;
        return true;
}

void cpus_format(const cpu_set_t *set, char *text, size_t size) {
        size_t used = 0;

        text[0] = '\0';
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
                if (!CPU_ISSET(cpu, set))
                        continue;
                int last = cpu;
                while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
                        last++;
                int n = snprintf(text + used, size - used, last > cpu ? "%s%d-%d" : "%s%d", used ? "," : "",
                                 cpu, last);
                if (n < 0 || (size_t)n >= size - used) {
                        text[used] = '\0';
                        return;
                }
                used += (size_t)n;
                cpu = last;
        }
}

struct cpus_trial {
        const cpu_set_t *wanted;
        cpu_set_t got;
        int result;
};

static void *cpus_try(void *data) {
        struct cpus_trial *trial = data;

        if (sched_setaffinity(0, sizeof(*trial->wanted), trial->wanted) < 0)
                trial->result = errno == EINVAL ? 0 : -errno; /* EINVAL: none of them is usable */
        else if (sched_getaffinity(0, sizeof(trial->got), &trial->got) < 0)
                trial->result = -errno;
        return NULL;
}

int cpus_usable(const cpu_set_t *set, cpu_set_t *ret) {
        struct cpus_trial trial = { .wanted = set };
        pthread_t thread;

        CPU_ZERO(&trial.got);
        int r = thread_start(&thread, "gs-affinity", 0, cpus_try, &trial);
        if (r == 0)
                r = -pthread_join(thread, NULL);
        if (r == 0)
                r = trial.result;
        if (r == 0)
                *ret = trial.got;
        return r;
}

/* Finds the CPUs that are plugged in. */
static bool cpus_present(cpu_set_t *ret) {
        FILE *file = fopen("/sys/devices/system/cpu/present", "re");
        char text[256];

        if (!file)
                return false;
        bool read = fscanf(file, "%255s", text) == 1;
        fclose(file);
        return read && cpus_parse(text, ret);
}

void cpus_describe_loss(const cpu_set_t *set, const cpu_set_t *usable, char *text, size_t size) {
        cpu_set_t present = *set, absent, barred;
        char names[128], known[128];
        int used = 0;

        text[0] = '\0';
        bool asked = cpus_present(&present);
        CPU_AND(&absent, set, &present);
        CPU_XOR(&absent, &absent, set);
        CPU_AND(&barred, set, usable);
        CPU_XOR(&barred, &barred, set);
        CPU_XOR(&barred, &barred, &absent);
        if (asked && CPU_COUNT(&absent) > 0) {
                cpus_format(&absent, names, sizeof(names));
                cpus_format(&present, known, sizeof(known));
                used = snprintf(text, size, "there is no CPU %s in this machine, which has %s", names, known);
        }
        if (CPU_COUNT(&barred) > 0 && used >= 0 && (size_t)used < size) {
                cpus_format(&barred, names, sizeof(names));
                snprintf(text + used, size - (size_t)used,
                         "%sthis process may not use CPU %s (its cpuset, or the CPU is offline)",
                         used > 0 ? ", and " : "", names);
        }
}
