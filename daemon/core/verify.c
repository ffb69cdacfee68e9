/* SPDX-License-Identifier: Apache-2.0 */
#include "core/verify.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/cpus.h"
#include "link/address.h"
#include "link/key.h"
#include "link/link.h"
#include "socket/listener.h"

int verify_affinity(const struct config *config, cpu_set_t *ret, char *text, size_t size) {
        char loss[400];

        text[0] = '\0';
        *ret = config->affinity;
        if (!config->has_affinity || strcmp(config->device, "none") == 0 ||
            cpus_usable(&config->affinity, ret) < 0 || CPU_EQUAL(&config->affinity, ret))
                return 0;
        cpus_describe_loss(&config->affinity, ret, loss, sizeof(loss));
        if (CPU_COUNT(ret) == 0) {
                snprintf(text, size, "affinity: no CPU is left for the workers: %s", loss);
                return -EINVAL;
        }
        snprintf(text, size, "affinity: %s: the workers do without", loss);
        return 1;
}

int verify_times(const struct config *config, char *error, size_t size) {
        if (config->heartbeat < config->patience && config->patience < config->death &&
            config->death < config->abandon && config->death > 2 * config->heartbeat)
                return 0;
        snprintf(error, size,
                 "heartbeat, patience, death and abandon must each be longer than the one before, and death "
                 "longer than two heartbeats");
        return -EINVAL;
}

/* Sockets and credentials that a unit passes cannot be seen from outside of it. */
static bool verify_has_manager(void) {
        return access("/run/systemd/system", F_OK) == 0;
}

/* A socket that the service manager has made has its group, too. */
static int verify_group(const struct config *config, FILE *notes, char *error, size_t size) {
        bool alone = config->metrics_socket[0] == '\0', passed = getenv("LISTEN_FDS") != NULL && alone;

        if (passed || config->socket_group[0] == '\0' || getgrnam(config->socket_group) != NULL)
                return 0;
        if (alone && verify_has_manager()) {
                fprintf(notes,
                        "gradsyncd: socket_group: there is no group '%s': a gradsyncd whose socket the "
                        "service manager makes does without, another one does not start\n",
                        config->socket_group);
                return 0;
        }
        listener_say_no_group(config->socket_group, error, size);
        return -ENOENT;
}

static int verify_keys(const struct config *config, bool *ret_any, FILE *notes, char *error, size_t size) {
        const char *credentials = getenv("CREDENTIALS_DIRECTORY");
        struct keys keys;

        *ret_any = true;
        if (strncmp(config->key_file, "credential:", 11) == 0 && credentials == NULL) {
                fprintf(notes,
                        "gradsyncd: key_file: %s is the service manager's: it cannot be read outside of the "
                        "service\n",
                        config->key_file);
                return 0;
        }
        if (config->key_file[0] == '\0' && credentials == NULL && !config->insecure_no_auth &&
            verify_has_manager()) {
                fprintf(notes, "gradsyncd: key_file is not set: the credential " KEY_CREDENTIAL
                               " of the unit counts, if it has that; without a key there is no TCP between "
                               "daemons\n");
                return 0;
        }
        int r = keys_load(config->key_file, credentials, &keys, error, size);
        *ret_any = r == 0 && keys.n > 0;
        keys_clear(&keys);
        return r;
}

/* `tcp` is the first address for TCP, or "". */
static int verify_listen_on(const char *text, char tcp[ADDRESS_TEXT], char *error, size_t size) {
        struct sockaddr_storage at;
        struct address address;
        socklen_t length;
        int r = address_parse(text, &address, error, size);

        if (r < 0)
                return r;
        if (!address.local && tcp[0] == '\0')
                snprintf(tcp, ADDRESS_TEXT, "%s", address.text);
        r = address_resolve_here(&address, true, &at, &length);
        if (r == -ENOENT)
                snprintf(error, size, "listen: '%s' is neither an address nor an interface of this host",
                         address.host);
        else if (r == 0)
                r = address_check_here(&at, length);
        if (r == -EADDRNOTAVAIL)
                snprintf(error, size, "cannot listen on %s: %s", address.text, strerror(-r));
        return r == -ENOENT || r == -EADDRNOTAVAIL ? r : 0;
}

/* `number` is an address without a port. */
static int verify_data_address(const struct config *config, const char *number, char *error, size_t size) {
        struct sockaddr_storage at;
        struct address address;
        socklen_t length;
        char text[80];

        snprintf(text, sizeof(text), strchr(number, ':') != NULL ? "[%s]:1" : "%s:1", number);
        if (address_parse(text, &address, error, size) < 0 ||
            address_resolve_here(&address, false, &at, &length) < 0 ||
            address_check_here(&at, length) != -EADDRNOTAVAIL)
                return 0;
        snprintf(error, size, "data_address: this host does not have the address %s", config->data_address);
        return -EADDRNOTAVAIL;
}

/* A start does without it, and tries again. */
static void verify_metrics(const struct config *config, FILE *notes) {
        struct sockaddr_storage at;
        struct address address;
        socklen_t length;
        char error[256];

        if (config->metrics_listen[0] != '\0' &&
            address_parse(config->metrics_listen, &address, error, sizeof(error)) == 0 &&
            address_resolve_here(&address, false, &at, &length) == 0 &&
            address_check_here(&at, length) == -EADDRNOTAVAIL)
                fprintf(notes, "gradsyncd: metrics_listen: this host does not have the address of %s\n",
                        config->metrics_listen);
}

static int verify_addresses(const struct config *config, char tcp[ADDRESS_TEXT], char *error, size_t size) {
        _cleanup_(freep) char *list = strdup(config->listen);
        char *rest = NULL, number[64];
        int r = list != NULL ? 0 : -ENOMEM;

        for (char *at = r == 0 ? strtok_r(list, ", ", &rest) : NULL; at != NULL && r == 0;
             at = strtok_r(NULL, ", ", &rest))
                r = verify_listen_on(at, tcp, error, size);
        bool engine = config->coordinator[0] != '\0' && strcmp(config->device, "none") != 0;
        if (r < 0 || !engine || config->data_address[0] == '\0')
                return r;
        if (address_of_host(config->data_address, number, sizeof(number)) == 0)
                return verify_data_address(config, number, error, size);
        snprintf(error, size, "data_address: '%s' is neither an address nor an interface of this host",
                 config->data_address);
        return -EINVAL;
}

static int verify_cluster(const struct config *config, FILE *notes, char *error, size_t size) {
        bool elsewhere = config->coordinator[0] != '\0' && strcmp(config->coordinator, "self") != 0,
             any = true;
        char tcp[ADDRESS_TEXT] = "";

        if (config->coordinator[0] == '\0' && config->listen[0] == '\0')
                return 0;
        int r = verify_times(config, error, size);
        if (r == 0)
                r = verify_addresses(config, tcp, error, size);
        if (r == 0 && (elsewhere || config->listen[0] != '\0'))
                r = verify_keys(config, &any, notes, error, size);
        if (elsewhere && tcp[0] == '\0' && strncmp(config->coordinator, "unix:", 5) != 0)
                snprintf(tcp, sizeof(tcp), "%s", config->coordinator);
        if (r < 0 || any || tcp[0] == '\0' || config->insecure_no_auth)
                return r;
        links_say_no_key(tcp, error, size);
        return -ENOKEY;
}

int verify_settings(const struct config *config, FILE *notes, char *error, size_t size) {
        char text[512];
        cpu_set_t usable;
        int r = verify_affinity(config, &usable, text, sizeof(text));

        if (r < 0)
                snprintf(error, size, "%s", text);
        else if (r > 0)
                fprintf(notes, "gradsyncd: %s\n", text);
        if (r >= 0)
                r = verify_group(config, notes, error, size);
        if (r >= 0)
                r = verify_cluster(config, notes, error, size);
        verify_metrics(config, notes);
        if (r == -ENOMEM)
                snprintf(error, size, "out of memory");
        return r;
}
