/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings and the forms of their values. Reads no files and knows no order of precedence. */
#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <syslog.h>

#include "backend/registry.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "engine/nccl/environment.h"
#include "link/address.h"
#include "proto/names.h"
#include "rendezvous/wire/post.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define GIB (KIB * MIB)
#define MINUTE (60 * USEC_PER_SEC)
#define HOUR (60 * MINUTE)

static const struct unit {
        const char *name;
        uint64_t factor;
} time_units[] = {
        { "h", HOUR }, { "min", MINUTE }, { "s", USEC_PER_SEC }, { "ms", USEC_PER_MSEC }, { "us", 1 },
}, size_units[] = {
        { "T", KIB * GIB }, { "G", GIB }, { "M", MIB }, { "K", KIB }, { "", 1 },
}, levels[] = {
        { "emerg", LOG_EMERG }, { "alert", LOG_ALERT }, { "crit", LOG_CRIT }, { "err", LOG_ERR },
        { "warning", LOG_WARNING }, { "notice", LOG_NOTICE }, { "info", LOG_INFO }, { "debug", LOG_DEBUG },
};

/* Digits at `*text`, which is moved past them. False without a digit or on overflow. */
static bool option_read_digits(const char **text, uint64_t *ret) {
        uint64_t value = 0;

        if (**text < '0' || **text > '9')
                return false;
        for (; **text >= '0' && **text <= '9'; (*text)++)
                if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
                    __builtin_add_overflow(value, (uint64_t)(**text - '0'), &value))
                        return false;
        *ret = value;
        return true;
}

static uint64_t option_factor(const struct unit *units, size_t count, const char *name) {
        for (size_t i = 0; i < count; i++)
                if (strcmp(units[i].name, name) == 0)
                        return units[i].factor;
        return 0;
}

/* "500ms", "1.5s", "2min"; a bare number counts seconds. */
static bool option_read_time(const char *text, uint64_t *ret) {
        uint64_t whole, tenths = 0, place = 1;

        if (!option_read_digits(&text, &whole))
                return false;
        if (*text == '.') {
                const char *first = ++text;
                if (!option_read_digits(&text, &tenths) || text - first > 6)
                        return false;
                for (; first < text; first++)
                        place *= 10;
        }
        text += *text == ' ';

        uint64_t factor = option_factor(time_units, array_size(time_units), *text ? text : "s");
        if (factor == 0 || __builtin_mul_overflow(whole, factor, &whole))
                return false;
        return !__builtin_add_overflow(whole, tenths * factor / place, ret);
}

/* "64K", "8M", "2G", also "8MiB"; a bare number counts bytes. */
static bool option_read_size(const char *text, uint64_t *ret) {
        uint64_t value;
        char unit[2] = "";

        if (!option_read_digits(&text, &value))
                return false;
        text += *text == ' ';
        if (*text) {
                unit[0] = *text++;
                if (strcmp(text, "") != 0 && strcmp(text, "iB") != 0)
                        return false;
        }
        uint64_t factor = option_factor(size_units, array_size(size_units), unit);
        return factor != 0 && !__builtin_mul_overflow(value, factor, ret);
}

static bool option_read_count(const char *text, uint64_t *ret) {
        return option_read_digits(&text, ret) && *text == '\0';
}

/* The largest unit that divides the value: "8M", "10s", "30min". */
static void option_format_unit(const struct unit *units, size_t count, uint64_t value, char *text,
                               size_t size) {
        const struct unit *last = &units[count - 1];
        const struct unit *unit = units;

        while (unit < last && (value == 0 || value % unit->factor != 0))
                unit++;
        snprintf(text, size, "%" PRIu64 "%s", value / unit->factor, unit->name);
}

static void option_format_time(const void *field, char *text, size_t size) {
        if (*(const uint64_t *)field == 0)
                snprintf(text, size, "0s");
        else
                option_format_unit(time_units, array_size(time_units), *(const uint64_t *)field, text, size);
}

static void option_format_size(const void *field, char *text, size_t size) {
        option_format_unit(size_units, array_size(size_units), *(const uint64_t *)field, text, size);
}

static void option_format_count(const void *field, char *text, size_t size) {
        snprintf(text, size, "%" PRIu64, *(const uint64_t *)field);
}

static void option_format_number(const void *field, char *text, size_t size) {
        snprintf(text, size, "%u", *(const unsigned *)field);
}

static void option_format_mode(const void *field, char *text, size_t size) {
        snprintf(text, size, "%04o", (unsigned)*(const mode_t *)field);
}

static void option_format_level(const void *field, char *text, size_t size) {
        snprintf(text, size, "%s", levels[*(const int *)field].name);
}

static void option_format_switch(const void *field, char *text, size_t size) {
        snprintf(text, size, "%s", *(const bool *)field ? "yes" : "no");
}

static void option_format_text(const void *field, char *text, size_t size) {
        snprintf(text, size, "%s", *(char *const *)field ?: "");
}

/* The affinity has two parts in the configuration; its row's offset is that of the set, and an empty set is
 * "none". */
static void option_format_affinity(const void *field, char *text, size_t size) {
        cpus_format(field, text, size);
}

static int option_complain(char *error, size_t size, const char *value, const char *wanted) {
        snprintf(error, size, "'%.128s' is not %s", value, wanted);
        return -EINVAL;
}

static int option_out_of_range(const struct option_row *row, const char *value, char *error, size_t size) {
        void (*format)(const void *, char *, size_t) =
                row->format == option_format_number ? option_format_count : row->format;
        char min[32], max[32];

        format(&row->min, min, sizeof(min));
        format(&row->max, max, sizeof(max));
        snprintf(error, size, "'%.128s' is out of range, %s to %s are accepted", value, min, max);
        return -EINVAL;
}

/* A number in the form that `read` knows, within the row's range. */
static int option_read(const struct option_row *row, bool (*read)(const char *, uint64_t *), const char *form,
                       const char *value, uint64_t *ret, char *error, size_t size) {
        uint64_t number;

        if (!read(value, &number))
                return option_complain(error, size, value, form);
        if (number < row->min || number > row->max)
                return option_out_of_range(row, value, error, size);
        *ret = number;
        return 0;
}

static int option_set_time(const struct option_row *row, void *field, const char *value, char *error,
                           size_t size) {
        return option_read(row, option_read_time, "a time such as 5s, 500ms, 2min or a number of seconds",
                           value, field, error, size);
}

static int option_set_size(const struct option_row *row, void *field, const char *value, char *error,
                           size_t size) {
        return option_read(row, option_read_size, "a size in bytes such as 65536, 64K, 8M or 2G", value,
                           field, error, size);
}

static int option_set_pages(const struct option_row *row, void *field, const char *value, char *error,
                            size_t size) {
        uint64_t bytes;
        int r = option_set_size(row, &bytes, value, error, size);

        if (r < 0)
                return r;
        if (bytes % 4096 != 0)
                return option_complain(error, size, value, "a multiple of 4096 bytes");
        *(uint64_t *)field = bytes;
        return 0;
}

static int option_set_count(const struct option_row *row, void *field, const char *value, char *error,
                            size_t size) {
        return option_read(row, option_read_count, "a number", value, field, error, size);
}

static int option_set_number(const struct option_row *row, void *field, const char *value, char *error,
                             size_t size) {
        uint64_t count;
        int r = option_set_count(row, &count, value, error, size);

        if (r == 0)
                *(unsigned *)field = (unsigned)count;
        return r;
}

static int option_set_mode(const struct option_row *row, void *field, const char *value, char *error,
                           size_t size) {
        unsigned mode = 0;
        size_t digits = strspn(value, "01234567");

        if (digits == 0 || digits > 4 || value[digits] || sscanf(value, "%o", &mode) != 1 || mode > 0777)
                return option_complain(error, size, value, "an octal file mode such as 0660");
        *(mode_t *)field = (mode_t)mode;
        return 0;
}

static int option_set_switch(const struct option_row *row, void *field, const char *value, char *error,
                             size_t size) {
        if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
                return option_complain(error, size, value, "yes or no");
        *(bool *)field = strcmp(value, "yes") == 0;
        return 0;
}

static int option_set_level(const struct option_row *row, void *field, const char *value, char *error,
                            size_t size) {
        for (unsigned i = 0; i < array_size(levels); i++)
                if (strcmp(levels[i].name, value) == 0 || (value[0] == (char)('0' + i) && !value[1])) {
                        *(int *)field = (int)i;
                        return 0;
                }
        return option_complain(
                error, size, value,
                "a log level: emerg, alert, crit, err, warning, notice, info, debug, or 0 to 7");
}

static int option_set_affinity(const struct option_row *row, void *field, const char *value, char *error,
                               size_t size) {
        cpu_set_t set;

        CPU_ZERO(&set);
        if (*value && !cpus_parse(value, &set))
                return option_complain(error, size, value, "a list of CPUs from 0 to 1023, such as 0-3,8");
        *(cpu_set_t *)field = set;
        return 0;
}

static int option_replace_text(void *field, const char *value) {
        char *copy = strdup(value);

        if (!copy)
                return -ENOMEM;
        free(*(char **)field);
        *(char **)field = copy;
        return 0;
}

static int option_set_device(const struct option_row *row, void *field, const char *value, char *error,
                             size_t size) {
        const struct backend_ops *ops;
        int r = registry_find(value, &ops, error, size);

        return r < 0 ? r : option_replace_text(field, value);
}

static int option_set_socket(const struct option_row *row, void *field, const char *value, char *error,
                             size_t size) {
        if (strlen(value) >= sizeof(((struct sockaddr_un *)NULL)->sun_path)) {
                snprintf(error, size, "the path has %zu bytes, a Unix socket's path at most %zu",
                         strlen(value), sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1);
                return -EINVAL;
        }
        return option_replace_text(field, value);
}

static int option_set_group(const struct option_row *row, void *field, const char *value, char *error,
                            size_t size) {
        return option_replace_text(field, value);
}

static int option_set_host(const struct option_row *row, void *field, const char *value, char *error,
                           size_t size) {
        if (strlen(value) > POST_HOST || strpbrk(value, " \t\n") != NULL ||
            (value[0] != '\0' && !name_valid(value)))
                return option_complain(error, size, value, "a word of at most 64 printable characters");
        return option_replace_text(field, value);
}

static int option_set_nccl(const struct option_row *row, void *field, const char *value, char *error,
                           size_t size) {
        if (!environment_valid(value))
                return option_complain(error, size, value,
                                       "settings of NCCL: words NCCL_NAME=VALUE, with spaces between them");
        return option_replace_text(field, value);
}

static int option_set_coordinator(const struct option_row *row, void *field, const char *value, char *error,
                                  size_t size) {
        struct address address;
        int r = value[0] != '\0' && strcmp(value, "self") != 0 ? address_parse(value, &address, error, size)
                                                               : 0;

        return r < 0 ? r : option_replace_text(field, value);
}

/* One that needs no name service, and is an address rather than an interface, whose address may change. */
static int option_set_port(const struct option_row *row, void *field, const char *value, char *error,
                           size_t size) {
        struct sockaddr_storage at;
        struct address address;
        socklen_t length;

        if (value[0] != '\0' && (address_parse(value, &address, error, size) < 0 || address.local ||
                                 address_resolve_here(&address, false, &at, &length) < 0))
                return option_complain(error, size, value,
                                       "an address with a port, such as 127.0.0.1:9464 or [::1]:9464");
        return option_replace_text(field, value);
}

static int option_set_addresses(const struct option_row *row, void *field, const char *value, char *error,
                                size_t size) {
        _cleanup_(freep) char *list = strdup(value);
        struct address address;
        char *rest = NULL;
        int r = list != NULL ? 0 : -ENOMEM;

        for (char *at = r == 0 ? strtok_r(list, ", ", &rest) : NULL; at != NULL && r == 0;
             at = strtok_r(NULL, ", ", &rest))
                r = address_parse(at, &address, error, size);
        return r < 0 ? r : option_replace_text(field, value);
}

_Static_assert(CPU_SETSIZE == 1024, "as the message says");

#define SIZE_OF(name) sizeof(((struct config *)NULL)->name)
#define FIELD(name) .offset = offsetof(struct config, name), .field_size = SIZE_OF(name)
#define OWNED(name) .offset = offsetof(struct config, name)
#define TIME .what = "TIME", .set = option_set_time, .format = option_format_time
#define COUNT .what = "N", .set = option_set_count, .format = option_format_count, .min = 1, .max = 1000000
#define BYTES                                                                                                \
        .what = "SIZE", .set = option_set_size, .format = option_format_size, .min = 4096,                   \
        .max = UINT64_C(1) << 60
#define LIMIT(slot) .reloads = true, FIELD(limits[slot])

const struct option_row option_rows[] = {
        { "daemon", "device", "DEVICE",
          "what to serve: cuda:N or cuda:UUID, a GPU; cpu, or cpu:LABEL to tell several apart; or none",
          "cpu", .set = option_set_device, .format = option_format_text, OWNED(device) },
        { "daemon", "cuda_driver", "PATH",
          "library of the GPU's driver (default: libcuda.so.1, where the system has it)", "",
          .set = option_set_group, .format = option_format_text, OWNED(cuda_driver) },
        { "daemon", "socket", "PATH",
          "socket to listen on (default: by device, below /run/gradsync or $XDG_RUNTIME_DIR)", "",
          .set = option_set_socket, .format = option_format_text, OWNED(socket) },
        { "daemon", "socket_group", "GROUP", "group that the socket is given to (default: leave it)", "",
          .set = option_set_group, .format = option_format_text, OWNED(socket_group) },
        { "daemon", "socket_mode", "MODE", "permissions of the socket", "0660", .set = option_set_mode,
          .format = option_format_mode, FIELD(socket_mode) },
        { "daemon", "metrics_socket", "PATH",
          "Unix socket that gives out metrics in Prometheus' text format (default: none)", "",
          .set = option_set_socket, .format = option_format_text, OWNED(metrics_socket) },
        { "daemon", "metrics_mode", "MODE", "permissions of that socket; its group is socket_group", "0600",
          .set = option_set_mode, .format = option_format_mode, FIELD(metrics_mode) },
        { "daemon", "metrics_listen", "ADDRESS",
          "address and port that give out totals by HTTP, such as 127.0.0.1:9464 (default: none)", "",
          .set = option_set_port, .format = option_format_text, OWNED(metrics_listen) },
        { "daemon", "metrics_listen_jobs", "yes|no", "whether jobs and uids are named there", "no",
          .set = option_set_switch, .format = option_format_switch, FIELD(metrics_listen_jobs) },
        { "daemon", "admin_group", "GROUP", "group that sees all jobs and may act on them", "gradsync-admin",
          .set = option_set_group, .format = option_format_text, OWNED(admin_group) },
        { "daemon", "allow_nobody", "yes|no", "whether uid 65534 (nobody) may connect", "no",
          .set = option_set_switch, .format = option_format_switch, .reloads = true, FIELD(allow_nobody) },
        { "daemon", "workers", "N", "threads that reduce; 0: as many as the CPUs and the cgroup allow", "0",
          .set = option_set_number, .format = option_format_number, .max = 256, FIELD(workers) },
        { "daemon", "affinity", "CPUS", "CPUs for the workers, such as 0-3,8 (default: leave it)", "",
          .set = option_set_affinity, .format = option_format_affinity, OWNED(affinity) },
        { "daemon", "log_level", "LEVEL", "least urgent level to log: err, warning, notice, info, debug",
          "info", .set = option_set_level, .format = option_format_level, .reloads = true,
          FIELD(log_priority) },
        { "daemon", "drain_timeout", TIME, .help = "how long open steps may go on after SIGTERM",
          .fallback = "10s", .max = HOUR, .reloads = true, FIELD(drain_timeout) },
        { "daemon", "handshake_timeout", TIME,
          .help = "how long a new connection may take to introduce itself", .fallback = "5s",
          .min = 10 * USEC_PER_MSEC, .max = HOUR, .reloads = true, FIELD(handshake_timeout) },
        { "daemon", "step_deadline", TIME,
          .help = "how long a step or collective may wait for a member before it is given up",
          .fallback = "30min", .min = 10 * USEC_PER_MSEC, .max = 24 * 30 * HOUR, .reloads = true,
          FIELD(step_deadline) },
        { "daemon", "deadlock_timeout", TIME,
          .help = "how long members may wait for each other before their job is ended; 0: for ever",
          .fallback = "10s", .max = 24 * 30 * HOUR, .reloads = true, FIELD(deadlock_timeout) },
        { "daemon", "stall_notice", TIME,
          .help = "least time a step waits before it is logged and members are told", .fallback = "1s",
          .min = 10 * USEC_PER_MSEC, .max = HOUR, .reloads = true, FIELD(stall_notice) },
        { "daemon", "rejoin_grace", TIME,
          .help = "how long the place of a lost member is kept for its successor", .fallback = "10s",
          .max = 24 * HOUR, .reloads = true, FIELD(rejoin_grace) },
        { "daemon", "staging_bytes", "SIZE", "staging memory of one member, for collectives outside steps",
          "8M", .set = option_set_pages, .format = option_format_size, .min = 64 * KIB, .max = GIB,
          FIELD(staging_bytes) },
        { "cluster", "coordinator", "ADDRESS",
          "coordinator of jobs over several daemons: HOST:PORT, unix:PATH, or self (default: none)", "",
          .set = option_set_coordinator, .format = option_format_text, OWNED(coordinator) },
        { "cluster", "listen", "ADDRESSES",
          "where daemons that this one coordinates connect: HOST:PORT, INTERFACE:PORT, unix:PATH, ...", "",
          .set = option_set_addresses, .format = option_format_text, OWNED(listen) },
        { "cluster", "key_file", "PATH", "what daemons prove themselves with to each other", "",
          .set = option_set_group, .format = option_format_text, OWNED(key_file) },
        { "cluster", "insecure_no_auth", "yes|no", "whether daemons may meet over TCP without a key", "no",
          .set = option_set_switch, .format = option_format_switch, FIELD(insecure_no_auth) },
        { "cluster", "handshakes", COUNT, .help = "handshakes of other daemons in a second",
          .fallback = "200", .reloads = true, FIELD(handshakes) },
        { "cluster", "handshakes_per_address", COUNT, .help = "how many of them from one address",
          .fallback = "20", .reloads = true, FIELD(handshakes_per_address) },
        { "cluster", "host_id", "TEXT", "the same for all daemons of this host (default: its boot id)", "",
          .set = option_set_host, .format = option_format_text, OWNED(host_id) },
        { "cluster", "data_address", "ADDRESS",
          "number or interface under which other nodes reach this one (default: as the coordinator does)", "",
          .set = option_set_host, .format = option_format_text, OWNED(data_address) },
        { "cluster", "gloo_helper", "PATH", "program that exchanges data (default: where it is installed)",
          "", .set = option_set_group, .format = option_format_text, OWNED(gloo_helper) },
        { "cluster", "nccl_library", "PATH",
          "NCCL, which exchanges data between GPUs (default: libnccl.so.2, where the loader finds it)", "",
          .set = option_set_group, .format = option_format_text, OWNED(nccl_library) },
        { "cluster", "nccl_ctas", "N",
          "thread blocks that NCCL may have on the GPU for a communicator; 0: as many as it likes", "16",
          .set = option_set_count, .format = option_format_count, .max = 64, FIELD(nccl_ctas) },
        { "cluster", "nccl_timeout", TIME, .help = "how long a collective between GPUs may take",
          .fallback = "1min", .min = 100 * USEC_PER_MSEC, .max = HOUR, FIELD(nccl_timeout) },
        { "cluster", "nccl_settings", "NAME=VALUE ...",
          "what NCCL reads of its environment; no other NCCL_ variable counts", "", .set = option_set_nccl,
          .format = option_format_text, OWNED(nccl_settings) },
        { "cluster", "nodes_per_job", "N", "coordinator: daemons that have members of one job, at most", "32",
          .set = option_set_number, .format = option_format_number, .min = 1, .max = 64,
          FIELD(nodes_per_job) },
        { "cluster", "heartbeat", TIME, .help = "coordinator: how often daemons say how they are",
          .fallback = "500ms", .min = 10 * USEC_PER_MSEC, .max = HOUR, FIELD(heartbeat) },
        { "cluster", "patience", TIME,
          .help = "coordinator: how long a daemon goes on that does not hear from it", .fallback = "2s",
          .min = 20 * USEC_PER_MSEC, .max = HOUR, FIELD(patience) },
        { "cluster", "death", TIME, .help = "coordinator: after how much silence a daemon is lost",
          .fallback = "5s", .min = 30 * USEC_PER_MSEC, .max = HOUR, FIELD(death) },
        { "cluster", "abandon", TIME,
          .help = "coordinator: after how much silence of it a daemon gives its jobs' steps up",
          .fallback = "30s", .min = 40 * USEC_PER_MSEC, .max = 24 * HOUR, FIELD(abandon) },
        { "cluster", "build", TIME,
          .help = "coordinator: how long daemons may take to connect, or to end that; 0: twice death, or a "
                  "minute on a GPU",
          .fallback = "0s", .max = HOUR, FIELD(build) },
        { "limits", "clients_per_uid", COUNT, .help = "open connections of one user", .fallback = "256",
          LIMIT(ACCOUNT_CLIENTS) },
        { "limits", "connects_per_uid", COUNT, .help = "new connections of one user in a second",
          .fallback = "1000", .reloads = true, FIELD(connects_per_uid) },
        { "limits", "uids", COUNT, .help = "users that are connected at once", .fallback = "256",
          .reloads = true, FIELD(uids) },
        { "limits", "jobs_per_uid", COUNT, .help = "open jobs of one user", .fallback = "64",
          LIMIT(ACCOUNT_JOBS) },
        { "limits", "arenas_per_uid", COUNT, .help = "arenas and staging memories of one user",
          .fallback = "1024", LIMIT(ACCOUNT_ARENAS) },
        { "limits", "fds_per_uid", "N",
          "file descriptors held for one user: half of RLIMIT_NOFILE, at most 4096", .set = option_set_count,
          .format = option_format_count, .min = 1, .max = 10000000, LIMIT(ACCOUNT_FDS) },
        { "limits", "bytes_per_uid", BYTES,
          .help = "bytes of them, and of jobs, of one user: half of the machine's memory",
          LIMIT(ACCOUNT_BYTES) },
        { "limits", "plan_bytes_per_uid", "SIZE", "bytes of descriptions of plans of one user", "64M",
          .set = option_set_size, .format = option_format_size, .min = 4096, .max = UINT64_C(1) << 60,
          LIMIT(ACCOUNT_PLANS) },
        { "limits", "daemon_bytes", BYTES, .help = "bytes of the daemon's own memory, of all users together",
          .fallback = "1G", LIMIT(ACCOUNT_OWN) },
        { "limits", "device_bytes_per_uid", "SIZE",
          "bytes of the GPU's memory for one user; 0: half of what it has", "0", .set = option_set_size,
          .format = option_format_size, .max = UINT64_C(1) << 60, LIMIT(ACCOUNT_DEVICE) },
};
const unsigned option_count = array_size(option_rows);

int option_set(const struct option_row *row, struct config *config, const char *value, char *error,
               size_t size) {
        int r = row->set(row, (char *)config + row->offset, value, error, size);

        if (r == -ENOMEM)
                snprintf(error, size, "out of memory");
        config->has_affinity = CPU_COUNT(&config->affinity) > 0;
        return r;
}

void option_format(const struct option_row *row, const struct config *config, char *text, size_t size) {
        row->format((const char *)config + row->offset, text, size);
}

void option_copy(const struct option_row *row, struct config *to, const struct config *from) {
        memcpy((char *)to + row->offset, (const char *)from + row->offset, row->field_size);
}

void options_free_texts(struct config *config) {
        for (unsigned i = 0; i < option_count; i++)
                if (option_rows[i].format == option_format_text)
                        free(*(char **)((char *)config + option_rows[i].offset));
}

const struct option_row *option_find(const char *section, const char *key) {
        for (unsigned i = 0; i < option_count; i++)
                if (strcmp(option_rows[i].section, section) == 0 && strcmp(option_rows[i].key, key) == 0)
                        return &option_rows[i];
        return NULL;
}

const struct option_row *option_find_anywhere(const char *key) {
        for (unsigned i = 0; i < option_count; i++)
                if (strcmp(option_rows[i].key, key) == 0)
                        return &option_rows[i];
        return NULL;
}

bool option_section_known(const char *section) {
        for (unsigned i = 0; i < option_count; i++)
                if (strcmp(option_rows[i].section, section) == 0)
                        return true;
        return false;
}
