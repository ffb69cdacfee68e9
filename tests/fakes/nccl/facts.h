/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of conformance-nccl that lie in files of their own. */
#pragma once

/* ---- facts_arithmetic.c ---- */

void fact_two_ranks_reduce_all_types(void);
void fact_three_ranks_reduce_all_types(void);
void fact_four_ranks_reduce_all_types(void);
void fact_one_rank_copies(void);
void fact_small_floats_are_rounded_after_each_addition(void);
void fact_extremes_leave_nans_out(void);

/* ---- facts_family.c ---- */

void fact_a_communicator_is_split(void);
void fact_a_rank_may_be_of_no_part(void);
void fact_a_configuration_is_inherited_whole_or_not_at_all(void);
void fact_survivors_shrink_a_communicator(void);
void fact_a_shrinking_rank_stays(void);
void fact_a_communicator_grows(void);
