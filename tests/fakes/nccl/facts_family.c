/* SPDX-License-Identifier: Apache-2.0 */
/* What the project relies on in communicators that are made of others. See facts.h. */
#include "facts.h"

#include <dlfcn.h>

#include "ranks.h"

static void split_role(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        nccl_comm part = NULL;

        rank_join(rank, &config);
        nccl_result result =
                rank->nccl.split(rank->comm, (int)rank->number % 2, -(int)rank->number, &part, NULL);
        OK(rank_settle(rank, rank->comm, result));
        CHECK(part != NULL);
        IS(rank_of(rank, part), 1 - (int)rank->number / 2);
        rank_check(rank, part, rank->ranks / 2);
        rank_check(rank, rank->comm, rank->ranks);
        rank_end(rank, part);
        rank_leave(rank);
}

void fact_a_communicator_is_split(void) {
        ranks_run(4, split_role);
}

/* A rank of no color takes part all the same. */
static void split_some_role(struct rank *rank) {
        nccl_comm part = rank->comm;

        rank_join(rank, NULL);
        OK(rank->nccl.split(rank->comm, rank->number == 1 ? -1 : 7, 0, &part, NULL));
        CHECK((part == NULL) == (rank->number == 1));
        if (part != NULL) {
                rank_check(rank, part, 2);
                rank_end(rank, part);
        }
        rank_leave(rank);
}

void fact_a_rank_may_be_of_no_part(void) {
        ranks_run(3, split_some_role);
}

/* What was not said is not inherited: that calls do not block. */
static void split_config_role(struct rank *rank) {
        struct nccl_config config = ranks_free_config(), other = NCCL_CONFIG;
        nccl_comm part = NULL, alike = NULL;
        struct area area;

        rank_join(rank, &config);
        OK(rank_settle(rank, rank->comm, rank->nccl.split(rank->comm, 0, 0, &part, &other)));
        area_new(&rank->gpu, 1, &area);
        OK(rank->nccl.allreduce(pointer(area.address), pointer(area.address), SMALL, NCCL_INT32, NCCL_MAX,
                                part, NULL));
        OK(rank->gpu.cuda.stream_wait(NULL));
        area_free(&rank->gpu, &area);
        rank_end(rank, part);
        OK(rank_settle(rank, rank->comm, rank->nccl.split(rank->comm, 0, 0, &alike, NULL)));
        IS(rank->nccl.finalize(alike), NCCL_IN_PROGRESS);
        OK(rank_settle(rank, alike, NCCL_OK));
        OK(rank->nccl.destroy(alike));
        rank_leave(rank);
}

void fact_a_configuration_is_inherited_whole_or_not_at_all(void) {
        ranks_run(2, split_config_role);
}

/* The one in the middle dies while all reduce. */
static void shrink_role(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        int without[] = { 1 };
        nccl_comm rest = NULL;
        struct area area;

        rank_join(rank, &config);
        area_new(&rank->gpu, 1, &area);
        if (rank->number == 1) {
                ranks_set(0, 1);
                ranks_await(1, 1);
        }
        OK(rank_sum(rank, rank->comm, area.address, SMALL, NULL));
        ranks_await(0, 1);
        if (rank->number == 0)
                ranks_kill(1);
        OK(rank_settle(rank, rank->comm, rank->nccl.shrink(rank->comm, without, 1, &rest, NULL, 1)));
        IS(rank_of(rank, rest), (int)rank->number / 2);
        rank_expect_garbage(rank, area.address, SMALL * sizeof(float));
        rank_check(rank, rest, 2);
        rank_end(rank, rest);
        OK(rank->nccl.abort(rank->comm));
        area_free(&rank->gpu, &area);
}

void fact_survivors_shrink_a_communicator(void) {
        ranks_run(3, shrink_role);
}

static void wrong_shrink_role(struct rank *rank) {
        int own[] = { (int)rank->number }, beyond[] = { 2 }, twice[] = { 1 - (int)rank->number, own[0] };
        nccl_comm rest = NULL;

        rank_join(rank, NULL);
        IS(rank->nccl.shrink(rank->comm, own, 1, &rest, NULL, 0), NCCL_INVALID_ARGUMENT);
        IS(rank->nccl.shrink(rank->comm, beyond, 1, &rest, NULL, 0), NCCL_INVALID_ARGUMENT);
        IS(rank->nccl.shrink(rank->comm, twice, 2, &rest, NULL, 0), NCCL_INVALID_ARGUMENT);
        IS(rank->nccl.shrink(rank->comm, own, 0, &rest, NULL, 0), NCCL_INVALID_ARGUMENT);
        rank_leave(rank);
}

void fact_a_shrinking_rank_stays(void) {
        ranks_run(2, wrong_shrink_role);
}

/* The last rank is new. The first one has the id, and the communicator of all its old ranks. */
static struct nccl_id *id_to_grow;

static void grow_role(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        bool is_new = rank->number + 1 == rank->ranks, is_root = rank->number == 0;
        nccl_result (*get_id)(nccl_comm comm, struct nccl_id * id);
        nccl_comm grown = NULL;

        if (!is_new) {
                rank->ranks--;
                rank_join(rank, &config);
                rank->ranks++;
        }
        *(void **)&get_id = dlsym(rank->nccl.library, "ncclCommGetUniqueId");
        CHECK(get_id != NULL);
        if (is_root)
                OK(get_id(rank->comm, id_to_grow));
        ranks_meet();
        nccl_result result =
                rank->nccl.grow(rank->comm, (int)rank->ranks, is_root || is_new ? id_to_grow : NULL,
                                is_new ? (int)rank->number : -1, &grown, &config);
        OK(rank_settle(rank, grown, result));
        IS(rank_of(rank, grown), (int)rank->number);
        rank_check(rank, grown, rank->ranks);
        if (!is_new) {
                OK(rank_settle(rank, rank->comm, NCCL_OK));
                rank_leave(rank);
        }
        rank_end(rank, grown);
}

void fact_a_communicator_grows(void) {
        id_to_grow = ranks_share(sizeof(*id_to_grow));
        ranks_run(3, grow_role);
}
