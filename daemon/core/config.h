/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of the daemon: defaults, then /etc/gradsync/gradsyncd.conf and the files of gradsyncd.conf.d/
 * beside it in the order of their names, then the command line. INI; an unknown key, a value out of range or
 * a line the parser would cut is an error that names file and line. One table of keys drives the parser,
 * --help and the reload.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/account.h"

struct config {
        char *device;             /* "cuda:N", "cuda:UUID", "cpu", "cpu:LABEL", "none" */
        char *cuda_driver;        /* path; "": where the system has it */
        char *socket;             /* path; default: see config_default_socket() */
        char *socket_group;       /* "" : leave */
        mode_t socket_mode;       /* 0660 */
        char *metrics_socket;     /* path; "": none */
        mode_t metrics_mode;      /* 0600 */
        char *metrics_listen;     /* address and port, for HTTP; "": none */
        bool metrics_listen_jobs; /* names of jobs and uids, too */
        char *admin_group; /* its members see all jobs and may act on them; "": there is no such group */
        bool allow_nobody; /* uid 65534 may connect */
        unsigned workers;  /* 0: as many as the CPU limit allows */
        bool has_affinity;
        cpu_set_t affinity;
        int log_priority;
        uint64_t drain_timeout; /* all times in microseconds */
        uint64_t handshake_timeout;
        uint64_t step_deadline;
        uint64_t deadlock_timeout; /* until members that wait for each other are ended; 0: never */
        uint64_t rejoin_grace;
        uint64_t stall_notice; /* least time before a stall is logged */
        uint64_t limits[ACCOUNT_SLOTS];
        uint64_t connects_per_uid; /* new connections a second */
        uint64_t uids;             /* connected at once */
        uint64_t staging_bytes;    /* of one member */
        char *coordinator;         /* address of the cluster's coordinator; "self": this daemon; "": none */
        char *listen;              /* addresses, between commas, where daemons of the cluster connect; "" */
        char *key_file;            /* of the keys by which daemons prove their identity; "": none */
        char *host_id;             /* the same for all daemons of this host; "": the boot id */
        char *data_address;     /* of this host, or an interface, for what nodes exchange; "": see man page */
        char *gloo_helper;      /* program; "": where it is installed */
        unsigned nodes_per_job; /* at the coordinator */
        bool insecure_no_auth;  /* TCP without a key */
        uint64_t handshakes, handshakes_per_address;  /* of strangers, a second */
        uint64_t heartbeat, patience, death, abandon; /* see struct machine_times */
        uint64_t build;                               /* likewise; 0: config_build() chooses */
        char *nccl_library;                           /* path; "": where the loader finds it */
        char *nccl_settings;                          /* words NAME=VALUE */
        uint64_t nccl_ctas;                           /* of a communicator; 0: as many as NCCL likes */
        uint64_t nccl_timeout;                        /* for a collective */
};

enum config_action {
        CONFIG_RUN,
        CONFIG_CHECK,
        CONFIG_CHECK_FILES,
        CONFIG_HELP,
        CONFIG_VERSION,
        CONFIG_USAGE, /* nothing: the command line is wrong */
};

struct config_source { /* what the command line said, kept for reloads */
        int argc;
        char **argv;
        FILE *list; /* for CONFIG_CHECK_FILES: gets the names of the files that are read; NULL: no list */
};

int config_init(struct config *config); /* defaults; 0 or -ENOMEM */
void config_deinit(struct config *config);

/* Reads files and flags. On failure a sentence for people is in `error` and a negative errno is returned; the
 * action is CONFIG_USAGE then if the mistake is on the command line. */
int config_load(struct config *config, const struct config_source *source, enum config_action *ret_action,
                char *error, size_t error_size);
/* Takes over from `fresh` what may change at run time; returns, in `ignored`, the comma-separated keys that
 * differ but need a restart ("" if none). */
void config_reload(struct config *config, struct config *fresh, char *ignored, size_t ignored_size);
/* Pure: takes the settings of one INI text into `config`. `name` stands for the file in `error` ("NAME:LINE:
 * …"). The parser reads at most so many bytes a line as inih was built for and would cut the rest; such a
 * line is refused. A fuzzer calls this. */
int config_parse_buffer(const char *text, size_t length, const char *name, struct config *config, char *error,
                        size_t error_size);
void config_help(FILE *to); /* every flag and key with its default */

/* The path of a device's socket if no setting names one: "/run/gradsync/DEVICE/socket" for root, else
 * "$XDG_RUNTIME_DIR/gradsync/DEVICE/socket". -ENOENT where there is neither. */
int config_default_socket(const char *device, char **ret);
/* Whether the times of a cluster go together: 0, or -EINVAL and a sentence. */
int config_check_times(const struct config *config, char *error, size_t size);
/* How long a communicator may take to be made. */
uint64_t config_build(const struct config *config);
#define CONFIG_HOST 65

/* Writes the id by which daemons know that they are on one host. By default it is new with each start of the
 * machine, and the same for all containers on it. */
void config_host(const struct config *config, char host[CONFIG_HOST]);
/* Ranks on one host go by it: N of "cuda:N" and "cpu:N", 0 of others. */
uint32_t config_device_number(const struct config *config);
