// SPDX-License-Identifier: Apache-2.0
/* Numbers and texts for people: see format.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/base/format.h"

char *format_bytes(char out[FORMAT_SIZE], uint64_t bytes) {
        static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
        double value = (double)bytes / 1024;
        unsigned unit = 0;

        if (bytes < 1024) {
                snprintf(out, FORMAT_SIZE, "%" PRIu64 " B", bytes);
                return out;
        }
        /* A value that would be shown as 1024.0 belongs to the next unit. */
        while (value >= 1023.95 && unit < 5) {
                value /= 1024;
                unit++;
        }
        snprintf(out, FORMAT_SIZE, value < 99.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
        return out;
}

char *format_age(char out[FORMAT_SIZE], uint64_t ms) {
        uint64_t s = ms / 1000;

        if (s < 60)
                snprintf(out, FORMAT_SIZE, "%" PRIu64 ".%" PRIu64 " s", s, ms % 1000 / 100);
        else if (s < 3600)
                snprintf(out, FORMAT_SIZE, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
        else if (s < 86400)
                snprintf(out, FORMAT_SIZE, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s % 3600 / 60);
        else
                snprintf(out, FORMAT_SIZE, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s % 86400 / 3600);
        return out;
}

char *format_short(char out[FORMAT_SIZE], uint64_t us) {
        double ms = (double)us / 1e3;

        if (ms < 9.995)
                snprintf(out, FORMAT_SIZE, "%.2f ms", ms);
        else if (ms < 99.95)
                snprintf(out, FORMAT_SIZE, "%.1f ms", ms);
        else if (ms < 995)
                snprintf(out, FORMAT_SIZE, "%.2f s", ms / 1e3);
        else
                format_age(out, us / 1000);
        return out;
}

char *format_rate(char out[FORMAT_SIZE], double per_second) {
        snprintf(out, FORMAT_SIZE,
                 per_second >= 99.95   ? "%.0f/s"
                 : per_second >= 0.995 ? "%.1f/s"
                                       : "%.2g/s",
                 per_second);
        return out;
}

char *format_share(char out[FORMAT_SIZE], double share) {
        snprintf(out, FORMAT_SIZE, "%.1f %%", share * 100);
        return out;
}

char *format_norm(char out[FORMAT_SIZE], double norm) {
        snprintf(out, FORMAT_SIZE, "%.4g", norm);
        return out;
}

char *format_end(char *out, size_t size, const siginfo_t *info) {
        if (info->si_code == CLD_EXITED)
                snprintf(out, size, "ended with status %d", info->si_status);
        else
                snprintf(out, size, "was killed by signal %d (%s)", info->si_status,
                         strsignal(info->si_status));
        return out;
}

char *format_new_list(const char *format, va_list args) {
        char *text;

        return vasprintf(&text, format, args) < 0 ? NULL : text;
}

char *format_new(const char *format, ...) {
        va_list args;

        va_start(args, format);
        char *text = format_new_list(format, args);
        va_end(args);
        return text;
}

const char *format_plural(uint64_t n) {
        return n == 1 ? "" : "s";
}
