/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher table and the places of the socket. Reads the environment, changes nothing. */
#include "client/lib/base/environ.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/base/fail.h"
#include "client/lib/base/place.h"
#include "gradsync.pb-c.h"
#include "gradsync/gradsync.h"
#include "proto/cleanup.h"
#include "proto/names.h"

#define VARIABLES 5u
#define OTHERS 2u

struct row {
        const char *launcher;
        /* The row counts if all of these are set. */
        const char *needs[VARIABLES];
        /* The row does not count if one of these is set. */
        const char *unless[OTHERS];
        /* One of the needed variables, which counts as not set if it is 0. NULL: none. */
        const char *flag;
        /* `rank` is NULL if the row has none. */
        const char *world, *rank;
        /* Optional variables; NULL: none. */
        const char *local_rank, *incarnation;
        void (*name)(char *text, size_t size);
};

const char *environ_get(const char *name) {
        const char *value = name ? getenv(name) : NULL;

        return value != NULL && *value != 0 ? value : NULL;
}

static void environ_name_gradsync(char *text, size_t size) {
        snprintf(text, size, "%s", environ_get("GRADSYNC_JOB"));
}

/* Adds the place of the launcher to a job's name if all ranks are on this host: a launcher in another
 * container or on another host may have given the same name to another job. */
static void environ_add_place(char *text, size_t size, const char *local_world, const char *world,
                              const char *address) {
        const char *here = environ_get(local_world);
        size_t n = strlen(text);

        if (here != NULL && strcmp(here, environ_get(world)) == 0)
                snprintf(text + n, size - n, "@%016" PRIx64, place_number(address));
}

/* torchrun calls a job without a run id "none". Its rendezvous address distinguishes it from others. */
static void environ_name_torch(char *text, size_t size) {
        const char *id = environ_get("TORCHELASTIC_RUN_ID");
        const char *address = environ_get("MASTER_ADDR"), *port = environ_get("MASTER_PORT");

        if (strcmp(id, "none") != 0 || address == NULL || port == NULL) {
                snprintf(text, size, "%s", id);
                return;
        }
        snprintf(text, size, "%s:%s", address, port);
        environ_add_place(text, size, "LOCAL_WORLD_SIZE", "WORLD_SIZE", text);
}

static void environ_name_slurm(char *text, size_t size) {
        snprintf(text, size, "%s.%s", environ_get("SLURM_JOB_ID"), environ_get("SLURM_STEP_ID"));
}

/* Returns the address of the PMIx server on this host; NULL if not known. Each release of PMIx has its own
 * variable for it. */
static const char *environ_pmix_server(void) {
        static const char *const names[] = { "PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3",
                                             "PMIX_SERVER_URI21", "PMIX_SERVER_URI2", "PMIX_SERVER_URI" };
        const char *found = NULL;

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && found == NULL; i++)
                found = environ_get(names[i]);
        return found;
}

/* A namespace may be any text. Bytes that a job's name may not have are written as %XX, and so is '%', so
 * that two namespaces never become one job. */
static void environ_name_pmix(char *text, size_t size) {
        const char *space = environ_get("PMIX_NAMESPACE");
        size_t n = 0;

        for (; *space != '\0' && n + 1 < size; space++) {
                bool plain = *space > ' ' && *space < 0x7f && *space != '/' && *space != '%';

                n += (size_t)snprintf(text + n, size - n, plain ? "%c" : "%%%02X", (unsigned char)*space);
        }
        environ_add_place(text, size, "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE",
                          environ_pmix_server());
}

static const struct row rows[] = {
        { .launcher = "gradsyncctl run",
          .needs = { "GRADSYNC_JOB", "GRADSYNC_WORLD_SIZE", "GRADSYNC_RANK" },
          .world = "GRADSYNC_WORLD_SIZE",
          .rank = "GRADSYNC_RANK",
          .local_rank = "GRADSYNC_LOCAL_RANK",
          .incarnation = "GRADSYNC_INCARNATION",
          .name = environ_name_gradsync },
        { .launcher = "torchrun",
          .needs = { "TORCHELASTIC_RUN_ID", "WORLD_SIZE", "RANK" },
          .world = "WORLD_SIZE",
          .rank = "RANK",
          .local_rank = "LOCAL_RANK",
          .incarnation = "TORCHELASTIC_RESTART_COUNT",
          .name = environ_name_torch },
        { .launcher = "srun",
          .needs = { "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",
                     "SLURM_LOCALID" },
          /* An mpirun starts one process on each host as a step; that process starts the ranks. */
          .unless = { "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID" },
          .world = "SLURM_STEP_NUM_TASKS",
          .rank = "SLURM_PROCID",
          .local_rank = "SLURM_LOCALID",
          .incarnation = "SLURM_RESTART_COUNT",
          .name = environ_name_slurm },
        { .launcher = "mpirun of Open MPI",
          .needs = { "PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK" },
          .world = "OMPI_COMM_WORLD_SIZE",
          .rank = "OMPI_COMM_WORLD_RANK",
          .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
          .name = environ_name_pmix },
        { .launcher = "mpiexec of MPICH",
          .needs = { "GRADSYNC_JOB", "PMI_SIZE", "PMI_RANK" },
          .world = "PMI_SIZE",
          .rank = "PMI_RANK",
          .local_rank = "MPI_LOCALRANKID",
          .name = environ_name_gradsync },
        { .launcher = "a Kubernetes indexed job",
          .needs = { "GRADSYNC_JOB", "GRADSYNC_WORLD_SIZE", "JOB_COMPLETION_INDEX" },
          .unless = { "GRADSYNC_RANK" },
          .world = "GRADSYNC_WORLD_SIZE",
          .rank = "JOB_COMPLETION_INDEX",
          .name = environ_name_gradsync },
        { .launcher = "whoever starts spares",
          .needs = { "GRADSYNC_JOB", "GRADSYNC_WORLD_SIZE", "GRADSYNC_SPARE" },
          .unless = { "GRADSYNC_RANK" },
          .flag = "GRADSYNC_SPARE",
          .world = "GRADSYNC_WORLD_SIZE",
          .incarnation = "GRADSYNC_INCARNATION",
          .name = environ_name_gradsync },
};

/* Returns the number of the row's variables that are set; *ret_missing is the first that is not. */
static unsigned environ_count_set(const struct row *row, const char **ret_missing) {
        unsigned n = 0;

        *ret_missing = NULL;
        for (unsigned i = 0; i < VARIABLES && row->needs[i] != NULL; i++) {
                if (environ_get(row->needs[i]) != NULL)
                        n++;
                else if (*ret_missing == NULL)
                        *ret_missing = row->needs[i];
        }
        return n;
}

static bool environ_is_overruled(const struct row *row) {
        for (unsigned i = 0; i < OTHERS; i++)
                if (environ_get(row->unless[i]) != NULL)
                        return true;
        return false;
}

static bool environ_is_complete(const struct row *row) {
        const char *missing;

        environ_count_set(row, &missing);
        return missing == NULL && !environ_is_overruled(row) &&
               (row->flag == NULL || strcmp(environ_get(row->flag), "0") != 0);
}

static int environ_number(const char *variable, uint64_t least, uint64_t most, uint64_t *ret) {
        const char *text = environ_get(variable);
        char *end;

        errno = 0;
        *ret = strtoull(text, &end, 10);
        if (text[0] < '0' || text[0] > '9' || *end != 0 || errno != 0 || *ret < least || *ret > most)
                return fail(GRADSYNC_INVALID,
                            "the environment variable %s is \"%.64s\", which is no number from %" PRIu64
                            " to %" PRIu64,
                            variable, utf8_valid(text, strlen(text)) ? text : "?", least, most);
        return GRADSYNC_OK;
}

static int environ_optional(const char *variable, uint64_t most, int64_t absent, int64_t *ret) {
        uint64_t value = 0;

        *ret = absent;
        if (environ_get(variable) == NULL)
                return GRADSYNC_OK;
        int r = environ_number(variable, 0, most, &value);
        if (r == GRADSYNC_OK)
                *ret = (int64_t)value;
        return r;
}

static int environ_take_row(const struct row *row, struct environ_job *ret) {
        char name[2 * LIMIT_NAME];
        uint64_t world;

        row->name(name, sizeof(name));
        if (!name_valid_job(name))
                return fail(GRADSYNC_INVALID,
                            "the name of the job from %s is not 1 to %u bytes of UTF-8 without '/' and "
                            "control characters",
                            row->needs[0], LIMIT_NAME);
        snprintf(ret->name, sizeof(ret->name), "%.*s", (int)LIMIT_NAME, name);
        int r = environ_number(row->world, 1, UINT32_MAX, &world);
        if (r == GRADSYNC_OK)
                r = environ_optional(row->rank, world - 1, -1, &ret->rank);
        if (r == GRADSYNC_OK)
                r = environ_optional(row->local_rank, UINT32_MAX, -1, &ret->local_rank);
        if (r == GRADSYNC_OK)
                r = environ_optional(row->incarnation, INT64_MAX, 0, &ret->incarnation);
        /* No launcher has a variable of its own for this. */
        if (r == GRADSYNC_OK && ret->rank >= 0)
                r = environ_optional("GRADSYNC_INSTANCE", INT64_MAX - 1, -1, &ret->instance);
        if (r != GRADSYNC_OK)
                return r;
        ret->world = (uint32_t)world;
        ret->launcher = row->launcher;
        return GRADSYNC_OK;
}

int environ_next_job(size_t *at, struct environ_job *ret) {
        *ret = (struct environ_job){ .rank = -1, .local_rank = -1, .instance = -1 };
        while (*at < array_size(rows)) {
                const struct row *row = &rows[(*at)++];

                if (environ_is_complete(row))
                        return environ_take_row(row, ret);
        }
        return GRADSYNC_OK;
}

static bool environ_needs(const struct row *row, const char *variable) {
        for (unsigned i = 0; i < VARIABLES && row->needs[i] != NULL; i++)
                if (strcmp(row->needs[i], variable) == 0)
                        return true;
        return false;
}

/* Only gradsync's own row is looked at: RANK and WORLD_SIZE, which are torchrun's, are often set by hand for
 * torch.distributed. */
bool environ_passes_over(size_t at, const char **ret_set, const char **ret_missing) {
        const struct row *own = &rows[0];

        environ_count_set(own, ret_missing);
        for (unsigned i = 0; i < VARIABLES && own->needs[i] != NULL && *ret_missing != NULL; i++) {
                *ret_set = own->needs[i];
                if (environ_get(*ret_set) != NULL && !environ_needs(&rows[at - 1], *ret_set))
                        return true;
        }
        return false;
}

int environ_job(struct environ_job *ret) {
        size_t first = 0;

        return environ_next_job(&first, ret);
}

static int environ_seconds(const char *variable, int64_t *ret) {
        const char *text = environ_get(variable);
        char *end;

        if (text == NULL)
                return GRADSYNC_OK;
        double seconds = strtod(text, &end);
        if (end == text || *end != '\0' || !(seconds >= 0) || seconds > 1e9)
                return fail(GRADSYNC_INVALID, "%s=%.64s is no number of seconds", variable,
                            utf8_valid(text, strlen(text)) ? text : "?");
        *ret = (int64_t)(seconds * 1000);
        return GRADSYNC_OK;
}

int environ_grace(int64_t *ret) {
        return environ_seconds("GRADSYNC_REJOIN_GRACE", ret);
}

int environ_spare(bool *ret) {
        int64_t value;
        int r = environ_optional("GRADSYNC_SPARE", 1, 0, &value);

        if (r == GRADSYNC_OK)
                *ret = value == 1;
        return r;
}

int environ_scope(const char *given, unsigned *ret) {
        const char *text = given != NULL ? given : environ_get("GRADSYNC_SCOPE");
        const char *source = given != NULL ? "the join option scope" : "GRADSYNC_SCOPE";

        *ret = WIRE__SCOPE__SCOPE_NONE;
        if (text == NULL)
                return GRADSYNC_OK;
        if (strcmp(text, "host") == 0)
                *ret = WIRE__SCOPE__SCOPE_HOST;
        else if (strcmp(text, "cluster") == 0)
                *ret = WIRE__SCOPE__SCOPE_CLUSTER;
        else
                return fail(GRADSYNC_INVALID, "%s=%.64s is neither 'host' nor 'cluster'", source,
                            utf8_valid(text, strlen(text)) ? text : "?");
        return GRADSYNC_OK;
}

int environ_reconnect(int64_t *ret) {
        return environ_seconds("GRADSYNC_RECONNECT_TIMEOUT", ret);
}

const char *environ_job_token(void) {
        return environ_get("GRADSYNC_JOB_TOKEN");
}

/* Variables that only a launcher sets. Slurm's is the one that a batch script does not have. */
static const char *const telling[] = {
        "GRADSYNC_JOB", "GRADSYNC_WORLD_SIZE",  "GRADSYNC_RANK",        "TORCHELASTIC_RUN_ID",  "WORLD_SIZE",
        "RANK",         "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE",
        "PMI_RANK",     "JOB_COMPLETION_INDEX", "GRADSYNC_SPARE",
};

static bool environ_tells(const char *variable) {
        for (size_t i = 0; i < array_size(telling); i++)
                if (strcmp(telling[i], variable) == 0)
                        return environ_get(variable) != NULL;
        return false;
}

const char *environ_launcher_variable(void) {
        for (size_t i = 0; i < array_size(telling); i++)
                if (environ_get(telling[i]) != NULL)
                        return telling[i];
        return NULL;
}

/* Whether another row with the same variable for the world size has its rank set, or needs no rank. */
static bool environ_has_another_rank(const struct row *row) {
        for (size_t i = 0; i < array_size(rows); i++)
                if (&rows[i] != row && strcmp(rows[i].world, row->world) == 0 &&
                    environ_get(rows[i].rank != NULL ? rows[i].rank : rows[i].flag) != NULL)
                        return true;
        return false;
}

/* Finds a size without a rank, or a rank without a size: *ret_set is set, *ret_missing is not. */
static bool environ_find_half(const char **ret_set, const char **ret_missing) {
        for (size_t i = 0; i < array_size(rows); i++) {
                const struct row *row = &rows[i];

                if (row->rank == NULL)
                        continue;
                bool size = environ_tells(row->world), rank = environ_tells(row->rank);
                if ((rank && environ_get(row->world) == NULL) ||
                    (size && environ_get(row->rank) == NULL && !environ_has_another_rank(row))) {
                        *ret_set = rank ? row->rank : row->world;
                        *ret_missing = rank ? row->world : row->rank;
                        return true;
                }
        }
        return false;
}

void environ_missing(char *text, size_t size) {
        const char *missing, *best = NULL, *set = NULL;
        unsigned most = environ_find_half(&set, &best) ? VARIABLES : 0;

        for (size_t i = 0; i < array_size(rows); i++) {
                unsigned n = environ_count_set(&rows[i], &missing);

                if (n <= most || missing == NULL)
                        continue;
                most = n;
                best = missing;
                for (unsigned k = 0; k < VARIABLES && rows[i].needs[k] != NULL; k++)
                        if (environ_get(rows[i].needs[k]) != NULL)
                                set = rows[i].needs[k];
        }
        if (best != NULL)
                snprintf(text, size, "%s is set but %s is not", set, best);
        else
                snprintf(text, size, "%s", "");
}

static int environ_add_socket(struct environ_sockets *sockets, const char *what, const char *format,
                              const char *a, const char *b) {
        char *path = sockets->path[sockets->n];
        int n = snprintf(path, sizeof(sockets->path[0]), format, a, b);

        if (n < 1 || (size_t)n >= sizeof(sockets->path[0]))
                return fail(GRADSYNC_INVALID, "the socket path from %s has %d bytes; 1 to %zu are possible",
                            what, n, sizeof(sockets->path[0]) - 1);
        sockets->n++;
        return GRADSYNC_OK;
}

int environ_sockets(struct environ_sockets *ret, const char *socket, const char *device) {
        const char *runtime = environ_get("XDG_RUNTIME_DIR");
        int r = GRADSYNC_OK;

        *ret = (struct environ_sockets){ .named = true };
        if (socket != NULL)
                return environ_add_socket(ret, "the socket option", "%s%s", socket, "");
        if (environ_get("GRADSYNC_SOCKET") != NULL)
                return environ_add_socket(ret, "GRADSYNC_SOCKET", "%s%s", environ_get("GRADSYNC_SOCKET"), "");
        ret->named = false;
        if (device == NULL)
                device = environ_get("GRADSYNC_DEVICE") ? environ_get("GRADSYNC_DEVICE") : "cpu";
        if (!name_valid_job(device) || device[0] == '.')
                return fail(GRADSYNC_INVALID,
                            "\"%.64s\" is no name of a device; it is \"cpu\", \"cpu:LABEL\", \"cuda:N\" or "
                            "\"cuda:UUID\"",
                            utf8_valid(device, strlen(device)) ? device : "?");
        if (runtime != NULL)
                r = environ_add_socket(ret, "XDG_RUNTIME_DIR", "%s/gradsync/%s/socket", runtime, device);
        if (r == GRADSYNC_OK)
                r = environ_add_socket(ret, "the device", "/run/gradsync/%s/socket", device, "");
        return r;
}

bool environ_has_choice(void) {
        return environ_get("GRADSYNC_SOCKET") != NULL || environ_get("GRADSYNC_DEVICE") != NULL;
}

void environ_gpu_sockets(glob_t *ret) {
        const char *runtime = environ_get("XDG_RUNTIME_DIR");
        char pattern[256];
        int n = runtime != NULL ? snprintf(pattern, sizeof(pattern), "%s/gradsync/cuda:*/socket", runtime)
                                : 0;

        *ret = (glob_t){ 0 };
        if (n > 0 && (size_t)n < sizeof(pattern))
                glob(pattern, 0, NULL, ret);
        glob("/run/gradsync/cuda:*/socket", GLOB_APPEND, NULL, ret);
}
