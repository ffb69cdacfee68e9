/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sources of settings, in this order: defaults, the file, its drop-ins by name, the command line.
 * options.c has the keys and their values.
 */
#include "config.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <ini.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/proc.h"
#include "options.h"
#include "proto/spelling.h"

#define DEFAULT_FILE "/etc/gradsync/gradsyncd.conf"
#define FILE_MAX (1024 * 1024) /* a configuration beyond that is a mistake */
#define FDS_MOST 4096          /* default of fds_per_uid on a machine that grants many */
#define FLAGS_MOST 128         /* of which each stands for a key */
#define FLAG_NAME 64           /* bytes */

/* The defaults of the keys that depend on the machine. One user alone must not exhaust what all share. */
static uint64_t config_machine_default(const struct option_row *row) {
        struct rlimit files = { 0 };

        if (strcmp(row->key, "fds_per_uid") != 0)
                return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
        getrlimit(RLIMIT_NOFILE, &files);
        if (files.rlim_max / 2 > FDS_MOST)
                return FDS_MOST;
        return files.rlim_max > 2 ? files.rlim_max / 2 : 1;
}

static void config_set_default(const struct option_row *row, struct config *config, int *r) {
        char text[64], error[256];
        const char *value = row->fallback;

        if (*r < 0)
                return;
        if (!value) {
                snprintf(text, sizeof(text), "%llu", (unsigned long long)config_machine_default(row));
                value = text;
        }
        *r = option_set(row, config, value, error, sizeof(error));
}

int config_init(struct config *config) {
        int r = 0;

        *config = (struct config){ 0 };
        for (unsigned i = 0; i < option_count; i++)
                config_set_default(&option_rows[i], config, &r);
        if (r < 0)
                config_deinit(config);
        return r;
}

void config_deinit(struct config *config) {
        options_free_texts(config);
        *config = (struct config){ 0 };
}

/* One buffer on its way through the INI parser. The parser counts the calls of its reader as lines, and so
 * does this code. */
struct parse {
        const char *at, *end;
        int line;
        struct config *config;
        char *error; /* the first one found, in line `line` */
        size_t error_size;
        int result;
};

static void config_fail(struct parse *parse, int result, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
static void config_fail(struct parse *parse, int result, const char *format, ...) {
        va_list arguments;

        if (parse->result < 0)
                return;
        parse->result = result;
        va_start(arguments, format);
        vsnprintf(parse->error, parse->error_size, format, arguments);
        va_end(arguments);
}

static bool config_has_control_character(const char *line, size_t length) {
        for (size_t i = 0; i < length; i++) {
                unsigned char c = (unsigned char)line[i];
                if ((c < 0x20 && c != '\t' && !(c == '\r' && i + 1 == length)) || c == 0x7F)
                        return true;
        }
        return false;
}

/* Hands the parser one line, without the indentation that it would take for a continuation. The parser would
 * silently cut what does not fit into its `size` bytes, and stop at a NUL: both are errors here. */
static char *config_next_line(char *line, int size, void *data) {
        struct parse *parse = data;

        if (parse->result < 0 || parse->at == parse->end)
                return NULL;
        parse->line++;

        const char *newline = memchr(parse->at, '\n', (size_t)(parse->end - parse->at));
        const char *end = newline ? newline : parse->end, *start = parse->at;
        parse->at = newline ? newline + 1 : parse->end;
        while (start < end && (*start == ' ' || *start == '\t'))
                start++;

        size_t length = (size_t)(end - start);
        if (length + 2 > (size_t)size) { /* with its newline and the end of the string */
                config_fail(parse, -EINVAL, "the line is longer than %d bytes", size - 2);
                return NULL;
        }
        if (config_has_control_character(start, length)) {
                config_fail(parse, -EINVAL, "the line holds a control character");
                return NULL;
        }
        memcpy(line, start, length);
        memcpy(line + length, "\n", 2);
        return line;
}

/* The key that was meant, and where it belongs; of two that are equally near, the one of this section. */
static void config_say_where(const char *section, const char *key, char *text, size_t size) {
        const struct option_row *row = option_find_anywhere(key);
        struct spelling spelling = { .word = key };

        for (unsigned other = 0; other < 2; other++)
                for (unsigned i = 0; i < option_count; i++)
                        if ((strcmp(option_rows[i].section, section) != 0) == other)
                                spelling_try(&spelling, option_rows[i].key);
        text[0] = '\0';
        if (row)
                snprintf(text, size, ": it belongs to section [%s]", row->section);
        else if (spelling.best)
                snprintf(text, size, ": did you mean '%s' of section [%s]?", spelling.best,
                         option_find_anywhere(spelling.best)->section);
}

static void config_fail_unknown(struct parse *parse, const char *section, const char *key) {
        struct spelling spelling = { .word = section };
        char where[256], meant[64] = "";

        config_say_where(section, key, where, sizeof(where));
        for (unsigned i = 0; i < option_count; i++)
                spelling_try(&spelling, option_rows[i].section);
        if (spelling.best)
                snprintf(meant, sizeof(meant), ": did you mean [%s]?", spelling.best);
        if (!*section)
                config_fail(parse, -EINVAL, "key '%s' stands before the first section%s", key, where);
        else if (!option_section_known(section))
                config_fail(parse, -EINVAL, "unknown section [%s]%s", section, meant);
        else
                config_fail(parse, -EINVAL, "unknown key '%s' in section [%s]%s", key, section, where);
}

static int config_on_value(void *data, const char *section, const char *key, const char *value) {
        struct parse *parse = data;
        char error[256];

        const struct option_row *row = option_find(section, key);
        if (!row) {
                config_fail_unknown(parse, section, key);
                return 0;
        }
        int r = option_set(row, parse->config, value, error, sizeof(error));
        if (r < 0)
                config_fail(parse, r, "%s: %s", key, error);
        return r == 0;
}

int config_parse_buffer(const char *text, size_t length, const char *name, struct config *config, char *error,
                        size_t error_size) {
        char sentence[512] = "";
        struct parse parse = { .at = text,
                               .end = text + length,
                               .config = config,
                               .error = sentence,
                               .error_size = sizeof(sentence) };

        int line = ini_parse_stream(config_next_line, &parse, config_on_value, &parse);
        if (line < 0) {
                snprintf(error, error_size, "%s: out of memory", name);
                return -ENOMEM;
        }
        if (line > 0 && (parse.result == 0 || line < parse.line)) {
                snprintf(error, error_size, "%s:%d: neither a section nor 'key = value'", name, line);
                return -EINVAL;
        }
        if (parse.result < 0)
                snprintf(error, error_size, "%s:%d: %s", name, parse.line, sentence);
        return parse.result;
}

/* Reads a file of bounded size. -ENOENT is silent: the caller knows whether the file had to be there. */
static int config_read_file(const char *path, char **ret, size_t *ret_length, char *error,
                            size_t error_size) {
        _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        _cleanup_(freep) char *text = fd < 0 ? NULL : malloc(FILE_MAX + 1);
        size_t used = 0;
        ssize_t n = fd < 0 ? -1 : 1;

        if (fd >= 0 && !text)
                return -ENOMEM;
        while (n > 0 && used <= FILE_MAX) {
                n = read(fd, text + used, FILE_MAX + 1 - used);
                used += n > 0 ? (size_t)n : 0;
        }
        if (n < 0 || used > FILE_MAX) {
                int r = n < 0 ? -errno : -EFBIG;
                snprintf(error, error_size, "%s: %s", path, strerror(-r));
                return r;
        }
        *ret = pointer_steal(text);
        *ret_length = used;
        return 0;
}

/* `list`, where it is given, gets a line about the file. */
static int config_load_file(struct config *config, const char *path, bool required, FILE *list, char *error,
                            size_t error_size) {
        _cleanup_(freep) char *text = NULL;
        size_t length = 0;

        int r = config_read_file(path, &text, &length, error, error_size);
        if (list && (r == 0 || (r == -ENOENT && !required)))
                fprintf(list, r == 0 ? "%s\n" : "%s: there is none\n", path);
        if (r == -ENOENT && !required)
                return 0;
        if (r < 0)
                return r;
        return config_parse_buffer(text, length, path, config, error, error_size);
}

static int config_is_drop_in(const struct dirent *entry) {
        size_t length = strlen(entry->d_name);
        return entry->d_name[0] != '.' && length > 5 && strcmp(entry->d_name + length - 5, ".conf") == 0;
}

static int config_by_name(const struct dirent **left, const struct dirent **right) {
        return strcmp((*left)->d_name, (*right)->d_name);
}

/* The files of the folder PATH.d in the order of their names. */
static int config_load_drop_ins(struct config *config, const char *path, FILE *list, char *error,
                                size_t error_size) {
        _cleanup_(freep) char *folder = NULL;
        struct dirent **entries = NULL;
        int r = 0;

        if (asprintf(&folder, "%s.d", path) < 0) {
                folder = NULL;
                return -ENOMEM;
        }
        int count = scandir(folder, &entries, config_is_drop_in, config_by_name);
        if (count < 0) {
                r = errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
                if (r < 0)
                        snprintf(error, error_size, "%s: %s", folder, strerror(-r));
                return r;
        }
        for (int i = 0; i < count; i++) {
                _cleanup_(freep) char *file = NULL;
                if (r == 0 && asprintf(&file, "%s/%s", folder, entries[i]->d_name) < 0) {
                        file = NULL;
                        r = -ENOMEM;
                }
                if (r == 0)
                        r = config_load_file(config, file, true, list, error, error_size);
                free(entries[i]);
        }
        free(entries);
        return r;
}

/* The value that getopt returns for each flag. It is beyond all characters: of these getopt returns ':', '?'
 * and short flags. */
enum { FLAG_HELP = 256, FLAG_VERSION, FLAG_CHECK, FLAG_CHECK_CONFIG, FLAG_CONFIG, FLAG_KEY };

struct flags {
        struct option option[FLAGS_MOST + 6];
        char name[FLAGS_MOST][FLAG_NAME];
};

static void flags_init(struct flags *flags) {
        static const struct option others[] = { { "help", no_argument, NULL, FLAG_HELP },
                                                { "version", no_argument, NULL, FLAG_VERSION },
                                                { "check", no_argument, NULL, FLAG_CHECK },
                                                { "check-config", no_argument, NULL, FLAG_CHECK_CONFIG },
                                                { "config", required_argument, NULL, FLAG_CONFIG } };

        assert(option_count <= FLAGS_MOST);
        *flags = (struct flags){ 0 };
        for (unsigned i = 0; i < option_count; i++) {
                snprintf(flags->name[i], sizeof(flags->name[i]), "%s", option_rows[i].key);
                for (char *c = flags->name[i]; *c; c++)
                        *c = *c == '_' ? '-' : *c;
                flags->option[i] =
                        (struct option){ flags->name[i], required_argument, NULL, FLAG_KEY + (int)i };
        }
        memcpy(&flags->option[option_count], others, sizeof(others));
}

/* A word that is none of the flags; the one that was meant may have been written with other dashes. */
static void flags_complain(const struct flags *flags, const char *word, char *error, size_t error_size) {
        char name[FLAG_NAME + 1];
        struct spelling spelling = { .word = name };

        snprintf(name, sizeof(name), "%s", word + strspn(word, "-"));
        name[strcspn(name, "=")] = '\0';
        for (const struct option *option = flags->option; option->name; option++)
                spelling_try(&spelling, option->name);
        if (spelling.best)
                snprintf(error, error_size, "cannot understand '%s': did you mean '--%s'? See --help", word,
                         spelling.best);
        else
                snprintf(error, error_size, "cannot understand '%s'; see --help", word);
}

/* The words of the command line that are no settings. */
struct command {
        enum config_action action;
        const char *file;
};

static int config_take_flag(const struct flags *flags, int flag, struct config *config, char *error,
                            size_t error_size) {
        unsigned i = (unsigned)(flag - FLAG_KEY);
        char why[256];
        int r = option_set(&option_rows[i], config, optarg, why, sizeof(why));

        if (r < 0)
                snprintf(error, error_size, "--%s: %s", flags->name[i], why);
        return r;
}

/* Walks the command line; settings are applied only where `config` is given: the files have to come before
 * them. */
static int config_walk_flags(const struct config_source *source, struct config *config,
                             struct command *command, char *error, size_t error_size) {
        struct flags flags;
        int flag, r = 0;

        flags_init(&flags);
        optind = 0; /* from the start, also at a reload */
        opterr = 0;
        while (r == 0) {
                int first = optind > 0 ? optind : 1; /* a cluster of short flags is left after the last one */

                flag = getopt_long(source->argc, source->argv, "+:hV", flags.option, NULL);
                if (flag < 0)
                        break;
                if (flag == FLAG_HELP || flag == 'h') {
                        command->action = CONFIG_HELP;
                        return 0;
                } else if (flag == FLAG_VERSION || flag == 'V') {
                        command->action = CONFIG_VERSION;
                        return 0;
                } else if (flag == FLAG_CHECK || flag == FLAG_CHECK_CONFIG) {
                        command->action = flag == FLAG_CHECK ? CONFIG_CHECK : CONFIG_CHECK_FILES;
                } else if (flag == FLAG_CONFIG) {
                        command->file = optarg;
                } else if (flag == ':' || flag == '?') {
                        const char *at = source->argv[first];
                        if (flag == ':')
                                snprintf(error, error_size, "a value is missing after '%s'; see --help", at);
                        else
                                flags_complain(&flags, at, error, error_size);
                        return -EINVAL;
                } else if (config) {
                        r = config_take_flag(&flags, flag, config, error, error_size);
                }
        }
        if (r == 0 && optind < source->argc) {
                flags_complain(&flags, source->argv[optind], error, error_size);
                r = -EINVAL;
        }
        return r;
}

int config_default_socket(const char *device, char **ret) {
        const char *folder = geteuid() == 0 ? "/run" : getenv("XDG_RUNTIME_DIR");

        if (!folder || folder[0] != '/')
                return -ENOENT;
        return asprintf(ret, "%s/gradsync/%s/socket", folder, device) < 0 ? -ENOMEM : 0;
}

static int config_fill_socket(struct config *config, char *error, size_t error_size) {
        char *path = NULL;

        if (*config->socket)
                return 0;
        int r = config_default_socket(config->device, &path);
        if (r == -ENOENT)
                snprintf(error, error_size,
                         "there is no XDG_RUNTIME_DIR to put the socket into: set it, or say --socket PATH");
        if (r < 0)
                return r;
        free(config->socket);
        config->socket = path;
        if (strlen(path) < sizeof(((struct sockaddr_un *)NULL)->sun_path))
                return 0;
        snprintf(error, error_size, "%s is too long for a Unix socket: say --socket PATH", path);
        return -EINVAL;
}

int config_load(struct config *config, const struct config_source *source, enum config_action *ret_action,
                char *error, size_t error_size) {
        struct command command = { .action = CONFIG_RUN };

        snprintf(error, error_size, "out of memory"); /* every other failure replaces this */
        *ret_action = CONFIG_USAGE;
        int r = config_walk_flags(source, NULL, &command, error, error_size);
        if (r < 0)
                return r;
        *ret_action = command.action;
        if (command.action == CONFIG_HELP || command.action == CONFIG_VERSION)
                return 0;

        const char *file = command.file ? command.file : DEFAULT_FILE;
        FILE *list = command.action == CONFIG_CHECK_FILES ? source->list : NULL;
        r = config_load_file(config, file, command.file != NULL, list, error, error_size);
        if (r == 0)
                r = config_load_drop_ins(config, file, list, error, error_size);
        if (r < 0)
                return r;
        r = config_walk_flags(source, config, &command, error, error_size);
        if (r < 0)
                *ret_action = CONFIG_USAGE;
        return r == 0 ? config_fill_socket(config, error, error_size) : r;
}

void config_reload(struct config *config, struct config *fresh, char *ignored, size_t ignored_size) {
        size_t used = 0;

        if (ignored_size > 0)
                ignored[0] = '\0';
        for (unsigned i = 0; i < option_count; i++) {
                const struct option_row *row = &option_rows[i];
                char now[4096], then[4096];
                if (row->reloads) {
                        option_copy(row, config, fresh);
                        continue;
                }
                option_format(row, config, now, sizeof(now));
                option_format(row, fresh, then, sizeof(then));
                if (strcmp(now, then) == 0 || used >= ignored_size)
                        continue;
                int n = snprintf(ignored + used, ignored_size - used, "%s%s", used ? ", " : "", row->key);
                used += n > 0 ? (size_t)n : 0;
        }
}

static void config_help_row(FILE *to, const struct option_row *row, const char *flag,
                            const struct config *defaults) {
        char left[96], value[64];

        snprintf(left, sizeof(left), "--%s %s", flag, row->what);
        option_format(row, defaults, value, sizeof(value));
        fprintf(to, "  %-26s  %s", left, row->help);
        fprintf(to, *value ? " [%s]\n" : "\n", value);
}

void config_help(FILE *to) {
        struct config defaults;
        struct flags flags;
        const char *section = "";

        if (config_init(&defaults) < 0)
                return;
        flags_init(&flags);
        fputs("Usage: gradsyncd [OPTION]...\n"
              "Averages gradients for the training processes that attach to its socket. Stays in the "
              "foreground."
              "\n\n"
              "  --config FILE               read FILE and the folder FILE.d instead of the default "
              "[" DEFAULT_FILE "]\n"
              "  --check                     say whether these settings can work, and serve nobody\n"
              "  --check-config              say whether the files and flags are right, and start nothing\n"
              "  -h, --help                  this text\n"
              "  -V, --version               the version\n\n"
              "Each of the following is also a key of the configuration file, with underscores. Flags win "
              "over "
              "drop-ins, drop-ins\n"
              "over the file. Times: 500ms, 5s, 2min, or seconds. Sizes: bytes, or 64K, 8M, 2G. Defaults in "
              "brackets.\n",
              to);
        for (unsigned i = 0; i < option_count; i++) {
                if (strcmp(section, option_rows[i].section) != 0)
                        fprintf(to, "\n[%s]\n", option_rows[i].section);
                section = option_rows[i].section;
                config_help_row(to, &option_rows[i], flags.name[i], &defaults);
        }
        config_deinit(&defaults);
}

int config_check_times(const struct config *config, char *error, size_t size) {
        if (config->heartbeat < config->patience && config->patience < config->death &&
            config->death < config->abandon && config->death > 2 * config->heartbeat)
                return 0;
        snprintf(error, size,
                 "heartbeat, patience, death and abandon must each be longer than the one before, and death "
                 "longer than two heartbeats");
        return -EINVAL;
}

/* NCCL loads kernels and looks at all of the machine first. */
#define BUILD_ON_GPU (60 * USEC_PER_SEC)

uint64_t config_build(const struct config *config) {
        bool gpu = strncmp(config->device, "cuda:", 5) == 0;

        if (config->build > 0)
                return config->build;
        return gpu && 2 * config->death < BUILD_ON_GPU ? BUILD_ON_GPU : 2 * config->death;
}

void config_host(const struct config *config, char host[CONFIG_HOST]) {
        char boot[PROC_BOOT];

        proc_boot(boot);
        snprintf(host, CONFIG_HOST, "%.64s", config->host_id[0] != '\0' ? config->host_id : boot);
}

uint32_t config_device_number(const struct config *config) {
        const char *colon = strrchr(config->device, ':');

        return colon != NULL ? (uint32_t)strtoul(colon + 1, NULL, 10) : 0;
}
