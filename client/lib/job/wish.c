/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the fields that the options of a join leave open from the launcher's variables, and checks that the
 * whole makes sense. */
#include "client/lib/job/wish.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/environ.h"
#include "client/lib/base/fail.h"
#include "client/lib/base/place.h"
#include "proto/names.h"

#define DEFAULT_TIMEOUT_MS (5 * 60 * 1000)
#define DEFAULT_LAST_CALL_MS 2000

/* Makes a name that no other process has, on any machine. In the first seconds after a boot the kernel may
 * have no random numbers yet: then the name is made of place, process and time. */
static void wish_name_alone(struct wish *wish) {
        char when[64];
        uint64_t number;

        if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number)) {
                snprintf(when, sizeof(when), "%d %" PRIu64, (int)getpid(), clock_ns());
                number = place_number(when);
        }
        snprintf(wish->name, sizeof(wish->name), "alone-%016" PRIx64, number);
}

/* Fields that the options leave open are taken from the launcher's variables. */
static int wish_from_environment(struct wish *wish, const struct gradsync_join_options *options,
                                 bool standalone) {
        bool named = options->name != NULL;
        struct environ_job found;
        char missing[256];
        int r = environ_job(&found);

        if (r != GRADSYNC_OK)
                return r;
        if (found.launcher != NULL) {
                if (!named)
                        snprintf(wish->name, sizeof(wish->name), "%s", found.name);
                if (wish->min_world == 0)
                        wish->min_world = wish->max_world = found.world;
                if (wish->rank < 0 && !wish->spare) {
                        wish->rank = found.rank;
                        wish->instance = options->instance == 0 ? found.instance : wish->instance;
                }
                if (wish->local_rank < 0 && !wish->spare)
                        wish->local_rank = found.local_rank;
                wish->incarnation = wish->incarnation >= 0 ? wish->incarnation : found.incarnation;
                return GRADSYNC_OK;
        }
        if (standalone && environ_launcher_variable() == NULL && !named && wish->min_world <= 1 &&
            !wish->spare) {
                wish_name_alone(wish);
                wish->min_world = wish->max_world = 1;
                return GRADSYNC_OK;
        }
        environ_missing(missing, sizeof(missing));
        return fail(GRADSYNC_INVALID,
                    "which job? Neither the join options nor the environment say its %s%s%s%s. Start the "
                    "program with gradsyncctl run, torchrun, srun or mpirun, or set name and min_world%s",
                    named ? "world size" : "name", *missing ? " (" : "", missing, *missing ? ")" : "",
                    environ_launcher_variable() == NULL && !standalone
                            ? "; a process is a job of its own only where no gradsyncd listens"
                            : "");
}

static int wish_check(const struct wish *wish) {
        if (wish->min_world > wish->max_world)
                return fail(GRADSYNC_INVALID, "job '%s': min_world %u is above max_world %u", wish->name,
                            wish->min_world, wish->max_world);
        if (wish->max_world > LIMIT_WORLD)
                return fail(GRADSYNC_INVALID, "job '%s': %u members are too many, %u are possible",
                            wish->name, wish->max_world, LIMIT_WORLD);
        if (wish->rank >= (int64_t)wish->max_world)
                return fail(GRADSYNC_INVALID, "job '%s': rank %" PRId64 " does not exist among %u members",
                            wish->name, wish->rank, wish->max_world);
        if (wish->local_rank > (int64_t)UINT32_MAX)
                return fail(GRADSYNC_INVALID, "job '%s': local rank %" PRId64 " does not exist", wish->name,
                            wish->local_rank);
        if (wish->spare && (wish->rank >= 0 || wish->local_rank >= 0))
                return fail(GRADSYNC_INVALID,
                            "job '%s': a spare takes the place that becomes vacant, so it asks for no rank "
                            "and no local rank",
                            wish->name);
        if (wish->instance >= 0 && wish->rank < 0)
                return fail(GRADSYNC_INVALID,
                            "job '%s': instance %" PRId64
                            " was given without a rank; it counts the processes of one rank",
                            wish->name, wish->instance + 1);
        return GRADSYNC_OK;
}

static int wish_token(struct wish *wish, const char *token) {
        const char *source = token != NULL ? "the join options" : "GRADSYNC_JOB_TOKEN";

        if (token == NULL)
                token = environ_job_token();
        if (token == NULL)
                return GRADSYNC_OK;
        size_t length = strlen(token);
        if (length == 0 || length > LIMIT_TOKEN || !utf8_valid(token, length))
                return fail(GRADSYNC_INVALID, "job '%s': the token from %s is not 1 to %u bytes of UTF-8",
                            wish->name, source, LIMIT_TOKEN);
        memcpy(wish->token, token, length + 1);
        return GRADSYNC_OK;
}

/* The environment may make a process without a rank a spare. A spare waits for ever unless the options have a
 * time-out. */
static int wish_spare(struct wish *wish, const struct gradsync_join_options *options) {
        int r = GRADSYNC_OK;

        if (options->spare == 0 && wish->rank < 0)
                r = environ_spare(&wish->spare);
        wish->join_ms = wish->spare && options->timeout_ms == 0 ? 0 : wish->timeout_ms;
        return r;
}

int wish_make(struct wish *wish, const struct gradsync_join_options *options, bool standalone) {
        bool named = options->name != NULL;
        int r = GRADSYNC_OK;

        *wish = (struct wish){
                .min_world = options->min_world,
                .max_world = options->max_world,
                .rank = options->rank,
                .local_rank = options->local_rank,
                .incarnation = options->incarnation,
                .instance = options->instance > 0 ? options->instance - 1 : -1,
                .spare = options->spare > 0,
                .sequential = options->sequential,
                .timeout_ms = options->timeout_ms == 0  ? DEFAULT_TIMEOUT_MS
                              : options->timeout_ms < 0 ? 0
                                                        : (uint64_t)options->timeout_ms,
                .last_call_ms =
                        options->last_call_ms <= 0 ? DEFAULT_LAST_CALL_MS : (uint64_t)options->last_call_ms,
                .rejoin_grace_ms = options->rejoin_grace_ms == 0  ? -1
                                   : options->rejoin_grace_ms < 0 ? 0
                                                                  : options->rejoin_grace_ms,
        };
        if (named && !name_valid_job(options->name))
                return fail(GRADSYNC_INVALID,
                            "the name of a job is 1 to %u bytes of UTF-8 without '/' and control characters",
                            LIMIT_NAME);
        if (named)
                snprintf(wish->name, sizeof(wish->name), "%.*s", (int)LIMIT_NAME, options->name);
        if (wish->max_world == 0)
                wish->max_world = wish->min_world;
        if (wish->min_world == 0)
                wish->min_world = wish->max_world;
        if (!named || wish->min_world == 0)
                r = wish_from_environment(wish, options, standalone);
        if (wish->incarnation < 0)
                wish->incarnation = 0;
        if (r == GRADSYNC_OK)
                r = wish_spare(wish, options);
        if (r == GRADSYNC_OK && options->rejoin_grace_ms == 0)
                r = environ_grace(&wish->rejoin_grace_ms);
        if (r == GRADSYNC_OK)
                r = wish_token(wish, options->token);
        if (r == GRADSYNC_OK)
                r = environ_scope(options->scope, &wish->scope);
        return r != GRADSYNC_OK ? r : wish_check(wish);
}
