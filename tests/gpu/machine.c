/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads what kernel, driver and container runtimes leave in files. The probe needs none of it to go on: facts
 * that cannot be read are "unknown".
 */
#include "machine.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/klog.h>
#include <unistd.h>

enum {
        READ_ALL = 3, /* syslog(2): SYSLOG_ACTION_READ_ALL */
        LOG = 65536,
};

/* The begin of a file, as text whose NUL bytes are spaces. Returns whether there is one. */
static bool machine_read(const char *root, const char *path, char *text, size_t size) {
        char full[PATH_MAX];
        FILE *file;
        size_t n;

        text[0] = '\0';
        snprintf(full, sizeof full, "%s%s", root, path);
        file = fopen(full, "re");
        if (file == NULL)
                return false;
        n = fread(text, 1, size - 1, file);
        fclose(file);
        text[n] = '\0';
        for (size_t i = 0; i < n; i++)
                if (text[i] == '\0')
                        text[i] = ' ';
        return true;
}

static bool machine_has(const char *root, const char *path) {
        char full[PATH_MAX];

        snprintf(full, sizeof full, "%s%s", root, path);
        return access(full, F_OK) == 0;
}

static void machine_append(char *text, size_t size, const char *word) {
        size_t used = strlen(text);

        snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", word);
}

void machine_kernel(const char *root, char *text, size_t size) {
        char version[512], release[128] = "";

        if (machine_read(root, "/proc/version", version, sizeof version) &&
            sscanf(version, "Linux version %127s", release) == 1)
                snprintf(text, size, "Linux %s", release);
        else
                snprintf(text, size, "unknown");
}

void machine_driver(const char *root, char *text, size_t size) {
        char version[512], *line_end, *rest = NULL, copy[512];

        snprintf(text, size, "unknown");
        if (!machine_read(root, "/proc/driver/nvidia/version", version, sizeof version))
                return;
        line_end = strchr(version, '\n');
        if (line_end != NULL)
                *line_end = '\0';
        snprintf(copy, sizeof copy, "%s", version);
        for (char *word = strtok_r(copy, " \t", &rest); word != NULL; word = strtok_r(NULL, " \t", &rest))
                if (isdigit((unsigned char)word[0]) && strchr(word, '.') != NULL) {
                        snprintf(text, size, "%s%s", word,
                                 strstr(version, "Open Kernel Module") ? ", open kernel module" : "");
                        return;
                }
}

/* gVisor's release and build date have been the same for years; its kernel log names it. */
bool machine_user_kernel(const char *root) {
        static char log[LOG];
        char version[512];
        int n;

        if (machine_read(root, "/proc/version", version, sizeof version) &&
            (strstr(version, "gVisor") != NULL || strstr(version, "Sun Jan 10 15:06:54 PST 2016") != NULL))
                return true;
        if (root[0] != '\0')
                return false;
        n = klogctl(READ_ALL, log, sizeof log - 1);
        log[n > 0 ? n : 0] = '\0';
        return strstr(log, "Starting gVisor") != NULL;
}

static void machine_find_container(const char *root, char *text, size_t size) {
        static const char *const known[] = { "kubepods", "docker", "containerd", "libpod", "lxc" };
        char content[4096], word[64], *found;

        if (machine_read(root, "/run/systemd/container", content, sizeof content) &&
            sscanf(content, "%63s", word) == 1)
                machine_append(text, size, word);
        if (machine_has(root, "/.dockerenv"))
                machine_append(text, size, "docker");
        if (machine_has(root, "/run/.containerenv"))
                machine_append(text, size, "podman");
        machine_read(root, "/proc/1/environ", content, sizeof content);
        found = strncmp(content, "container=", 10) == 0 ? content - 1 : strstr(content, " container=");
        if (found != NULL && sscanf(found + 1, "container=%63s", word) == 1)
                machine_append(text, size, word);
        machine_read(root, "/proc/1/cgroup", content, sizeof content);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
                if (strstr(content, known[i]) != NULL) {
                        machine_append(text, size, known[i]);
                        break;
                }
}

void machine_runtime(const char *root, char *text, size_t size) {
        char content[4096], vendor[128] = "";

        text[0] = '\0';
        if (machine_user_kernel(root))
                machine_append(text, size, "gVisor");
        machine_find_container(root, text, size);
        if (machine_read(root, "/sys/class/dmi/id/sys_vendor", content, sizeof content))
                sscanf(content, "%127[^\n]", vendor);
        machine_read(root, "/proc/cpuinfo", content, sizeof content);
        if (strstr(content, " hypervisor") != NULL)
                machine_append(text, size, "virtual machine");
        if (text[0] == '\0')
                snprintf(text, size, "none found");
        if (vendor[0] != '\0')
                machine_append(text, size, vendor);
}
